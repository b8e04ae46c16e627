"""The typed recipe: what is refused, and with which words."""

from pathlib import Path

import pytest
import yaml

from regard.models import MODELS, configure
from regard.models.decoders import DECODERS
from regard.models.encoders import ENCODERS
from regard.nn.recurrent.cells import CELLS
from regard.preflight import check_names
from regard.recipe import Recipe, RecipeError, built_in, merge, override, parse, read, to_yaml
from regard.tables import TABLES

WRONG = {
    "training.updaets=3": "unknown key 'training.updaets'; did you mean 'updates'?",
    "training.updates=-1": "training.updates: input should be greater than 0 (given: -1)",
    "training.updates=many": "training.updates: input should be a valid integer",
    "trainng.updates=3": "unknown key 'trainng'; did you mean 'training'?",
    "data.tokenizer.kind=bep": "data.tokenizer.kind: unknown tokenizer 'bep'; did you mean 'bpe'?",
    "data.tokenizer.kind=5": "data.tokenizer.kind: input should be a valid string (given: 5)",
    "training.schedule=x": "schedule: unknown schedule 'x'; choose from constant, cosine, inverse_sqrt, linear, plateau",
    "training.validate_by=blue": "training.validate_by: unknown metric 'blue'; did you mean 'bleu'?",
    "training.risk.reward=aer": "training.risk.reward: unknown reward 'aer'; did you mean 'wer'?",
    "training.risk.objective=reinforced": "training.risk.objective: unknown objective 'reinforced'; did you mean 'reinforce'?",
    "training.risk.search=x": "training.risk.search: unknown search 'x'; choose from beam, sample",
    "decoding.length_norm=gmt": "decoding.length_norm: unknown normalisation of length 'gmt'; did you mean 'gnmt'?",
    "data.corpus.name=latn": "data.corpus.name: unknown corpus 'latn'; did you mean 'latin'?",
    "data.train.source=a.txt": "data.train: name either `source` and `target`",
    "data.test.news.soruce=3": "unknown key 'data.test.news.soruce'; did you mean 'source'?",
    "data.train={pairs: a.tsv, source_column: 10000000}": "data.train.source_column: input should be less than 1000000 (given",
    "data.train={source: a, target: b, pairs: c.tsv}": "data.train: name either `source` and `target`",
    "data.train={pairs: a.tsv, source_column: null, target_column: null}": "data.train: name either `source` and `target`",
    "data.train={source: a, target: b, columns: {label: 2}}": "data.train: columns.label: 2 is a column of a table",
    "data.train={source: a, columns: {source: b, tags: c}}": "columns.source: there is a `source` beside it already",
    "data.train={pairs: a.tsv, target_column: 1, columns: {target: 2}}": "columns.target: there is a `target` beside it",
    "data.train={source: a, columns: {../tags: b}}": "data.train.columns: '../tags' cannot name a column; take small",
    "data.train={pairs: a.tsv, columns: {tags: 10000000}}": "data.train.columns.tags: input should be less than 1000000 (given",
    "data.train={pairs: a.tsv, columns: {tags: [1]}}": "data.train.columns.tags: input should be a valid integer",
    "updates": "'updates' is no override; write key.path=value",
    "training.updates.more=3": "training.updates.more: 'updates' is a value, not a section",
    "training.epsilon=0": "training.epsilon: input should be greater than 0 (given: 0)",
    "training.epsilon=.inf": "training.epsilon: input should be a finite number (given: inf)",
    "training.epsilon=null": "training.epsilon: input should be a valid number",
    "training.clip=0": "training.clip: input should be greater than 0 (given: 0)",
    "training.clip=none": "training.clip: input should be a valid number",
    "training.updates=[1": "the value is not valid YAML",
}


def test_names_are_checked_though_their_tables_came_late():
    """A recipe may be read before what it names has been imported: `preflight` and `plan` look again."""
    tables = dict(TABLES)
    TABLES.clear()
    try:
        late = parse(Recipe, override({}, ["training.risk.reward=glue", "data.tokenizer.kind=bep"]))
    finally:
        TABLES.update(tables)
    with pytest.raises(RecipeError, match=r"^data\.tokenizer\.kind: unknown tokenizer 'bep'; did you mean 'bpe'\?$"):
        check_names(late)
    late = late.model_copy(update={"data": Recipe().data})
    with pytest.raises(RecipeError, match=r"^training\.risk\.reward: unknown reward 'glue'; did you mean 'gleu'\?$"):
        check_names(late)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_refused_says_where_and_what_is_allowed(text):
    with pytest.raises(RecipeError) as error:
        parse(Recipe, override({"training": {"updates": 5}}, [text]))
    assert WRONG[text] in str(error.value)


COLUMNS: list[tuple[dict[str, object], dict[str, object]]] = [
    ({"source": "a", "target": "b"}, {"source": Path("a"), "target": Path("b")}),
    ({"target": "b"}, {"target": Path("b")}),
    ({"source": "a", "columns": {"tags": "b"}}, {"source": Path("a"), "tags": Path("b")}),
    ({"columns": {"label": "b"}}, {"label": Path("b")}),
    ({"pairs": "t.tsv"}, {"source": 0, "target": 1}),
    ({"pairs": "t.tsv", "target_column": "de"}, {"source": 0, "target": "de"}),
    ({"pairs": "t.tsv", "columns": {"source": 0, "label": "topic"}}, {"source": 0, "label": "topic"}),
    ({"pairs": "t.tsv", "source_column": 2, "columns": {"label": 0}}, {"source": 2, "label": 0}),
]


@pytest.mark.parametrize(("given", "named"), COLUMNS)
def test_columns_by_name(given, named):
    """Also as they are written into a run's own recipe and read again."""
    recipe = parse(Recipe, {"data": {"train": given}})
    for one in recipe, parse(Recipe, yaml.safe_load(to_yaml(recipe))):
        assert one == recipe
        assert one.data.train.named == named
        assert one.data.train.files == ((Path("t.tsv"),) if "pairs" in given else tuple(named.values()))
        assert all(one.data.train.file_of(name) == (Path("t.tsv") if "pairs" in given else named[name]) for name in named)


WRONG_MODELS = {
    "unknown model 'transformr'": {"kind": "transformr"},
    "unknown key 'model.encoder.cel'; did you mean 'cell'?": {"encoder": {"cel": "gru"}},
    "model.encoder.cell: unknown cell 'gr'; did you mean 'gru'?": {"encoder": {"cell": "gr"}},
    "model.decoder.attention.score: unknown attention score 'addtive'; did you mean 'additive'?": {
        "decoder": {"attention": {"score": "addtive"}}
    },
    "`attention: null` goes with `context: none`": {"decoder": {"context": "none"}},
    "model.decoder.dropout: input should be less than 1": {"decoder": {"dropout": 1.5}},
}


@pytest.mark.parametrize("message", WRONG_MODELS)
def test_a_wrong_model_is_refused(message):
    with pytest.raises(RecipeError) as error:
        configure(WRONG_MODELS[message])
    assert message in str(error.value)


def test_overrides_are_yaml_values():
    values = override({"a": {"b": 1}}, ["a.b=2", "a.c=[1, x]", "a.d=true", "e.f=null", "a.g=1e-3", "a.h=text=with=signs"])
    assert values == {"a": {"b": 2, "c": [1, "x"], "d": True, "g": 0.001, "h": "text=with=signs"}, "e": {"f": None}}


@pytest.mark.parametrize("name", built_in())
def test_a_resolved_recipe_reads_back_as_itself(name, tmp_path):
    recipe = read(name)
    (tmp_path / "recipe.yaml").write_text(to_yaml(recipe))
    assert read(tmp_path / "recipe.yaml") == recipe


def test_a_broken_file_is_told_by_line(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("training:\n  updates: 3\n bad: [\n")
    with pytest.raises(RecipeError, match=r"mine\.yaml:\d: not valid YAML"):
        read(path)
    path.write_text("- a list\n")
    with pytest.raises(RecipeError, match="a recipe is a mapping"):
        read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        read(path)


def test_unknown_recipes_get_a_hint():
    with pytest.raises(RecipeError, match="did you mean 'bahdanau2015'"):
        read("bahdanau2014")


def test_a_recipe_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Recipe().training.updates = 3


def test_yaml_cannot_run_code(tmp_path):
    (tmp_path / "evil.yaml").write_text("about: !!python/object/apply:os.system ['touch ran']\n")
    with pytest.raises(RecipeError, match="not valid YAML"):
        read(tmp_path / "evil.yaml")


def test_tables_and_kinds_agree():
    for table in (MODELS, ENCODERS, DECODERS):
        for name, entry in table.items():
            assert entry.Config().kind == name


def test_a_recipe_lies_over_its_base(tmp_path):
    (tmp_path / "mine.yaml").write_text("base: demo\nmodel: {encoder: {cell: mut1, hidden_size: 7}}\ntraining: {updates: 3}\n")
    mine, demo = read(tmp_path / "mine.yaml"), read("demo")
    assert mine.model["encoder"] == {**demo.model["encoder"], "cell": "mut1", "hidden_size": 7}
    assert mine.model["decoder"] == demo.model["decoder"]
    assert mine.training == demo.training.model_copy(update={"updates": 3})
    (tmp_path / "mine.yaml").write_text("base: dmeo\n")
    with pytest.raises(RecipeError, match="unknown base recipe 'dmeo'; did you mean 'demo'"):
        read(tmp_path / "mine.yaml")


def test_every_cell_has_a_recipe():
    found = {
        read(name).model["encoder"]["cell"]
        for name in built_in()
        if name.startswith("latin-") and "encoder" in read(name).model
    }
    assert found == CELLS.keys()


def test_a_section_of_another_kind_takes_the_place_of_its_base():
    under = {"model": {"encoder": {"layers": 2}, "size": 1}, "data": {"a": 1}}
    assert merge(under, {"model": {"size": 2}}) == {"model": {"encoder": {"layers": 2}, "size": 2}, "data": {"a": 1}}
    assert merge(under, {"model": {"kind": "other", "size": 2}}) == {"model": {"kind": "other", "size": 2}, "data": {"a": 1}}


def test_what_a_wrong_key_is_told_beside_a_list_of_sections():
    """A stack's attention is a section or a list of them: the key is named, not the two ways that were tried."""
    for given, key in (({"scor": "dot"}, "scor"), ([{"heads": 2}, {"scor": "dot"}], "1.scor")):
        values = {"encoder": {"kind": "transformer", "attention": given}}
        with pytest.raises(RecipeError) as error:
            configure(values)
        assert str(error.value) == f"unknown key 'model.encoder.attention.{key}'; did you mean 'score'?"


def test_a_list_in_the_place_of_a_section_is_told():
    with pytest.raises(RecipeError, match=r"training: input should be a valid dictionary"):
        parse(Recipe, {"training": []})
