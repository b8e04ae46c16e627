"""A made-up entry in every table that ARCHITECTURE names, brought by a file, trained with and used."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import tasks
import torch
from calling import refused
from calling import regard as command
from own_parts import PATHS, TABLES, as_in_a_new_process
from test_recipe_obeyed import SOURCES, TARGETS, own_recipe
from tiny_transformer import section

import regard
from regard import run
from regard.decoding.directions import symmetrised
from regard.errors import UserError
from regard.imports import use
from regard.recipe import override

ROOT = Path(__file__).parents[1]
CLASS = "class Mine({table}[{base!r}]):\n    pass\n\n{table}['mine'] = Mine\n"
VALUE = "{table}['mine'] = {table}[{base!r}]\n"
KIND = """
from typing import Literal
class Config({table}[{base!r}].Config):
    kind: Literal["mine"] = "mine"
class Mine({table}[{base!r}]):
    pass
Mine.Config = Config
{table}["mine"] = Mine
"""
TOKENIZER = "class Mine({table}[{base!r}]):\n    kind = 'mine'\n\n{table}['mine'] = Mine\n"
METRIC = """
from regard.evaluation.metrics import Metric, Score
def mine(found, truth):
    return Score("mine", float(sum(map(len, found))))
METRICS["mine"] = Metric(mine, higher_is_better=False, sentence=lambda ours, theirs: float(len(ours) < len(theirs)))
"""
SOURCE = """
from regard.evaluation.metrics import METRICS, Metric, Score
SOURCES["mine"] = lambda question: (len(question.pairs), None)
METRICS["mine"] = Metric(lambda found, truth: Score("mine", float(found)), needs="mine")
"""
SCHEDULE = """
from regard.training.schedules import Schedule
SCHEDULES["mine"] = Schedule(lambda step, warmup, updates: 0.25 * step)
"""
CORPUS = """
from dataclasses import replace
CORPORA["mine"] = replace(CORPORA["arithmetic"], name="mine", sizes={{"train": 20, "valid": 4}})
"""
STACK = {"model": section()}
# what the file says, the entry that it is like, and the recipe that names it
TRAINED = {
    "CELLS": (CLASS, "gru", ["model.encoder.cell=mine", "model.decoder.cell=mine"]),
    "CONNECTIONS": (CLASS, "residual", ["model.encoder.connections=mine", "model.encoder.layers=2"]),
    "SCORES": (CLASS, "additive", ["model.decoder.attention.score=mine"]),
    "SCOPES": (CLASS, "local_m", ["model.decoder.attention.scope=mine"]),
    "SELECTIONS": (CLASS, "sparsemax", ["model.decoder.attention.selection=mine"]),
    "POSITIONS": (CLASS, "sinusoid", [STACK, "model.encoder.positions=mine"]),
    "NORMS": (CLASS, "rms", [STACK, "model.encoder.norm=mine"]),
    "FEEDFORWARDS": (CLASS, "gelu", [STACK, "model.encoder.feedforward=mine"]),
    "MODELS": (KIND, "sequence_to_sequence", ["model.kind=mine"]),
    "COPIES": (CLASS, "added", ["model.decoder.copy_words=mine"]),
    "PENALTIES": (VALUE, "coverage", ["training.penalties.mine=1"]),
    "ACTIVATIONS": (VALUE, "activation", ["training.penalties.mine=1"]),
    "CONTEXTS": (CLASS, "after_cell", ["model.decoder.context=mine"]),
    "ENCODERS": (KIND, "recurrent", ["model.encoder.kind=mine"]),
    "DECODERS": (KIND, "recurrent", ["model.decoder.kind=mine"]),
    "TOKENIZERS": (TOKENIZER, "word", ["data.tokenizer.kind=mine"]),
    "CORPORA": (CORPUS, "", [{"data": {"corpus": {"name": "mine"}, "tokenizer": {"kind": "character"}}}]),
    "SCHEDULES": (SCHEDULE, "", ["training.schedule=mine"]),
    "METRICS": (METRIC, "", ["training.validate_by=mine", "training.risk={reward: mine, candidates: 2}"]),
    "SOURCES": (SOURCE, "", ["training.validate_by=mine"]),
    "RISKS": (VALUE, "minimum_risk", ["training.risk={objective: mine, candidates: 2}"]),
    "SEARCHES": (VALUE, "beam", ["training.risk={objective: minimum_risk, search: mine, candidates: 2}"]),
    "NORMALISATIONS": (VALUE, "gnmt", ["decoding.length_norm=mine"]),
    "STOPS": (VALUE, "first", ["decoding.stop=mine"]),
    "CACHES": (VALUE, "static", ["decoding.cache=mine"]),
}
TOGETHER = ("FIELDS", "INPUTS")  # a modality of one's own is an entry of both: test_new_modality.py
LONG = "decoding.max_length=6"  # a model that has hardly begun never ends


@pytest.fixture(autouse=True)
def forgotten():
    with as_in_a_new_process():
        yield


def bring(folder, table, code, base=""):
    path = folder / "mine.py"
    path.write_text(f"from {TABLES[table]} import {table}\n" + code.format(table=table, base=base))
    use(str(path))
    return path


def recipe_with(folder, changes):
    values = own_recipe(folder, 2, LONG).model_dump(mode="json")
    for change in changes:
        values = override(values, [change]) if isinstance(change, str) else {**values, **change}
    return regard.recipe.parse(regard.recipe.Recipe, values)


@pytest.mark.parametrize("table", TRAINED)
def test_an_entry_of_one_s_own_is_trained_with_and_used(table, tmp_path):
    code, base, changes = TRAINED[table]
    with as_in_a_new_process():
        path = bring(tmp_path, table, code, base)
        recipe = recipe_with(tmp_path, changes)
        run.train(recipe, tmp_path / "run", talk=False)
        outputs = regard.load(tmp_path / "run").generate(SOURCES[:2])
        assert len(outputs) == 2
    with pytest.raises(UserError) as error:  # without it: by name, and with what to do
        run.train(regard.recipe.read(tmp_path / "run" / "recipe.yaml"), tmp_path / "run", resume=True, talk=False)
    assert "'mine'" in str(error.value)
    assert str(error.value).endswith(f"made with --import {path}; give it again")


def test_a_schedule_of_one_s_own_sets_the_rate(tmp_path):
    bring(tmp_path, "SCHEDULES", SCHEDULE)
    run.train(recipe_with(tmp_path, ["training.schedule=mine"]), tmp_path / "run", talk=False)
    rates = [row["lr"] for row in run_rows(tmp_path / "run") if "lr" in row]
    assert rates == pytest.approx([0.25e-3, 0.5e-3])


def test_a_metric_of_one_s_own_is_told_by_evaluate_too(tmp_path):
    from regard.evaluation.evaluate import by_length, evaluate

    bring(tmp_path, "METRICS", METRIC)
    run.train(recipe_with(tmp_path, ["training.validate_by=mine"]), tmp_path / "run", talk=False)
    assert all("valid_mine" in row for row in run_rows(tmp_path / "run") if "valid_loss" in row)
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    scores, outputs = evaluate(regard.load(tmp_path / "run"), pairs)
    assert {score.name: score.value for score in scores}["mine"] == sum(map(len, outputs))
    assert sum(score.value for _, _, score in by_length(pairs, outputs, "mine")) == sum(map(len, outputs))


def test_a_need_of_one_s_own_is_asked_of_every_shape(tmp_path):
    bring(tmp_path, "SOURCES", SOURCE)
    made = regard.recipe.parse(regard.recipe.Recipe, tasks.recipe("tagger", tasks.write(tmp_path, "tagger"), updates=2))
    run.train(made, tmp_path / "run", talk=False)
    from regard.evaluation.evaluate import evaluate

    scores, _ = evaluate(regard.load(tmp_path / "run"), [("a b", "V C")])
    assert {score.name: score.value for score in scores}["mine"] == 1.0


def run_rows(directory):
    from regard.training.journal import read_journal

    return read_journal(directory / "journal.jsonl")


@pytest.mark.parametrize("family", PATHS)
def test_a_path_of_one_s_own_computes(family, tmp_path):
    reference = {"scan": "loop", "attention": "plain"}[family]
    (tmp_path / "mine.py").write_text(
        f"from {PATHS[family]} import APPLIES, FASTEST, PATHS\n"
        "calls = []\n"
        f"PATHS['mine'] = lambda task: (calls.append(1), PATHS[{reference!r}](task))[1]\n"
        "PATHS['mine'].calls = calls\n"
        "APPLIES['mine'] = lambda task: True\n"
        "FASTEST['cpu'] = ('mine',)\n"
    )
    use(str(tmp_path / "mine.py"))
    run.train(recipe_with(tmp_path, [STACK] if family == "attention" else []), tmp_path / "run", talk=False)
    assert import_module(PATHS[family]).PATHS["mine"].calls


@pytest.mark.parametrize(("table", "code", "base", "task", "keys"), [
    ("POOLINGS", VALUE, "max", "classifier", ["model.pooling=mine"]),
    ("BODIES", KIND, "recurrent", "recurrent_texts", ["model.decoder.kind=mine"]),
    ("SPELLINGS", VALUE, "convolutional", "classifier",
     ["data.fields.source.kind=spelled", "model.encoder.input={kind: characters, spelling: mine, size: 4}"]),
])  # fmt: skip
def test_a_part_of_one_s_own_in_another_shape_of_model(table, code, base, task, keys, tmp_path):
    values = tasks.recipe(task, tasks.write(tmp_path, task), updates=2)
    with as_in_a_new_process():
        bring(tmp_path, table, code, base)
        run.train(regard.recipe.parse(regard.recipe.Recipe, override(values, keys)), tmp_path / "run", talk=False)
        assert len(regard.load(tmp_path / "run").score([("a b", "with a")])) == 1
    with pytest.raises(UserError, match=r"'mine'.*mine\.py"):
        regard.load(tmp_path / "run")


@pytest.mark.parametrize(("table", "base", "keys"), [
    ("FITS", "exact", ["data.fields.source.fit=mine"]),
    ("AUGMENTATIONS", "noise", ["training.augment={mine: 0.1}"]),
])  # fmt: skip
def test_a_part_of_one_s_own_for_images(table, base, keys, tmp_path):
    values = tasks.recipe("regions", tasks.write(tmp_path, "regions"), updates=2)
    bring(tmp_path, table, "calls = []\n{table}['mine'] = lambda *given: (calls.append(1), {table}[{base!r}](*given))[1]\n"
          "{table}['mine'].calls = calls\n", base)  # fmt: skip
    run.train(regard.recipe.parse(regard.recipe.Recipe, override(values, keys)), tmp_path / "run", talk=False)
    assert getattr(import_module(TABLES[table]), table)["mine"].calls


def test_a_reader_of_one_s_own_reads(tmp_path):
    bring(tmp_path, "READERS", "{table}['.mine'] = {table}['.tsv']\n")
    (tmp_path / "pairs.mine").write_text("".join(f"{a.strip()}\t{b.strip()}\n" for a, b in zip(SOURCES, TARGETS, strict=True)))
    files = {"pairs": str(tmp_path / "pairs.mine")}
    recipe = recipe_with(tmp_path, [{"data": {"train": files, "valid": files, "tokenizer": {"kind": "word"}}}])
    run.train(recipe, tmp_path / "run", talk=False)
    assert len(regard.load(tmp_path / "run").source) > len(SOURCES)


def test_a_symmetrisation_of_one_s_own_joins(tmp_path):
    with pytest.raises(UserError, match="unknown symmetrisation 'mine'"):
        symmetrised("mine")
    bring(tmp_path, "SYMMETRISATIONS", VALUE, "union")
    assert callable(symmetrised("mine"))


def test_a_task_of_one_s_own_is_compared(tmp_path):
    from dataclasses import replace

    from regard.lab.cells import Comparison, compare
    from regard.lab.settings import SETTINGS

    bring(tmp_path, "TASKS", VALUE, "xml")
    smoke = SETTINGS["smoke"]
    setting = replace(smoke, trials=1, seeds=1, sizes={"mine": smoke.sizes["xml"]}, characters=2000)
    (result,) = compare(Comparison(setting, ["tanh"], ["mine"], None), tmp_path / "lab", talk=False)
    assert result.task == "mine"
    assert result.mean is not None


RULE = """
from regard.decoding.rules import DecodingRule

class Short(DecodingRule):
    '''Two words, whatever they are.'''
    def __init__(self, left):
        self.left = left
    @classmethod
    def requested(cls, request):
        return cls(request.lengths * 0 + 2)
    def start(self):
        return self.left
    def apply(self, step, words, state):
        return step.cut(state <= 1), state - 1

{table}["short"] = Short
"""


def test_a_rule_of_one_s_own_is_kept(tmp_path):
    run.train(recipe_with(tmp_path, []), tmp_path / "run", talk=False)
    model = regard.load(tmp_path / "run")
    longest = [max(len(one.tokens) for one in found) for found in model.search(SOURCES[:2])]
    bring(tmp_path, "RULES", RULE)
    assert max(longest) > 2
    assert all(len(one.tokens) <= 2 for found in model.search(SOURCES[:2]) for one in found)


def test_a_picture_of_one_s_own_is_drawn(tmp_path):
    bring(tmp_path, "FORMATS", "{table}['mine'] = lambda heatmap, path: path.write_text(' '.join(heatmap.source))\n")
    run.train(recipe_with(tmp_path, []), tmp_path / "run", talk=False)
    drawn = command("look", tmp_path / "run", "s3 a", "--picture", tmp_path / "look.mine")
    assert (drawn.code, drawn.err) == (0, f"written: {tmp_path / 'look.mine'}\n")
    assert (tmp_path / "look.mine").read_text() == "s3 a"
    assert "unknown kind of picture 'gif'" in refused("look", tmp_path / "run", "s3 a", "--picture", tmp_path / "look.gif")


EXPORT = """
from regard.exchange import Export

def write(bundle, directory, quantization):
    (directory / "mine.txt").write_text(type(bundle.model).__name__)
    return {{"loud": True}}

{table}["mine"] = Export(write, {{"HOW.md": __import__("pathlib").Path(__file__)}})
"""


def test_a_format_of_one_s_own_is_exported_to(tmp_path):
    bring(tmp_path, "EXPORTS", EXPORT)
    run.train(recipe_with(tmp_path, []), tmp_path / "run", talk=False)
    assert command("export", tmp_path / "run", "--to", "mine", "--output", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "mine.txt").read_text() == "SequenceToSequence"
    assert '"loud": true' in (tmp_path / "out" / "export.json").read_text()
    assert (tmp_path / "out" / "HOW.md").read_text() == (tmp_path / "mine.py").read_text()


def test_a_kind_of_one_s_own_is_imported(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text('{"model_type": "mine"}')
    assert "unknown model_type" in refused("import", tmp_path / "theirs", "--output", tmp_path / "out")
    bring(tmp_path, "IMPORTS", "{table}['mine'] = lambda directory: {table}['marian'](directory / 'inside')\n")
    assert f"{tmp_path / 'theirs' / 'inside'}/config.json" in refused(
        "import", tmp_path / "theirs", "--output", tmp_path / "out"
    )


ENTRY = """
from regard.tuning.space import Entry

{table}["decay"] = Entry(
    ("training.weight_decay",), lambda point: (0.0, 0.01, 0.1), lambda point: point.flat["training.weight_decay"],
    lambda values, decay: {{"training.weight_decay": decay}}, "a reason",
)
"""


def test_an_entry_of_the_search_of_one_s_own_is_searched(tmp_path):
    bring(tmp_path, "SPACE", ENTRY)
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(SOURCES, TARGETS, strict=True)))
    fixed = ["model.encoder.dropout=0", "training.updates=1", "training.label_smoothing=0", "training.learning_rate=0.1"]
    fixed += ["data.tokenizer.kind=word", "model.encoder.hidden_size=8", "model.encoder.layers=1"]
    words = ("tune", tmp_path / "pairs.tsv", "--run", tmp_path / "study", "--trials", 3, "--quiet", *fixed)
    assert (found := command(*words)).code == 0, found.err
    decays = {run.read(path).training.weight_decay for path in (tmp_path / "study" / "trials").glob("*/recipe.yaml")}
    assert decays == {0.0, 0.01, 0.1}


def test_a_precision_of_one_s_own_computes_and_is_stored(tmp_path):
    run.train(recipe_with(tmp_path, []), tmp_path / "run", talk=False)
    (tmp_path / "in").write_text("s3 a\n")
    ask = ("generate", tmp_path / "run", "--precision", "mine", "--input", tmp_path / "in", "--processes", "1")
    assert "unknown precision 'mine'" in refused(*ask)
    counted = "lambda weight, bias: (calls.append(1), {table}['float32'](weight, bias))[1]"
    bring(tmp_path, "PRECISIONS", f"calls = []\n{{table}}['mine'] = {counted}\n{{table}}['mine'].calls = calls\n")
    assert command(*ask).code == 0
    assert import_module(TABLES["PRECISIONS"]).PRECISIONS["mine"].calls
    bring(tmp_path, "STORED", VALUE, "bfloat16")
    weights = regard.models.rounded.split({"a": torch.full((2, 2), 0.1)}, "mine")
    assert weights["a"].dtype == torch.bfloat16


FUSED = """
from regard.nn.recurrent.cells import GRUCell


class Mine(GRUCell):
    steps = []

    def bind(self, mask=None):
        self.steps.append(1)
        return super().bind(mask)


{table}[GRUCell] = Mine
"""


def test_a_cell_of_an_engine_of_one_s_own_makes_the_steps(tmp_path):
    run.train(recipe_with(tmp_path, ["model.decoder.cell=gru"]), tmp_path / "run", talk=False)
    bring(tmp_path, "FUSED", FUSED)
    regard.load(tmp_path / "run", "cpu", precision="float32", engine="native").generate(SOURCES[:1])
    assert next(one for one in import_module(TABLES["FUSED"]).FUSED.values() if one.__name__ == "Mine").steps


def test_an_engine_of_one_s_own_writes(tmp_path):
    run.train(recipe_with(tmp_path, []), tmp_path / "run", talk=False)
    (tmp_path / "in").write_text("s3 a\n")
    ask = ("generate", tmp_path / "run", "--engine", "mine", "--input", tmp_path / "in", "--processes", "1")
    assert "unknown engine 'mine'" in refused(*ask)
    bring(tmp_path, "ENGINES", "{table}['mine'] = lambda *given: {table}['native'](*given) + ', as mine'\n")
    found = command(*ask)
    assert found.code == 0, found.err
    assert ", as mine\n" in found.err


def test_a_property_and_a_case_of_one_s_own(tmp_path):
    bring(tmp_path, "TRACKED", "{table}['mine'] = lambda tokens: [float(len(token)) for token in tokens]\n")
    assert "mine" not in refused("lab", "neurons", tmp_path / "none", "--track", "mine")  # the run is what is missing
    bring(tmp_path, "CASES", VALUE, "recurrent")
    measured = command("lab", "complexity", "--setting", "smoke", "--names", "mine", "--out", tmp_path / "lab", "--json")
    assert measured.code == 0, measured.err
    assert '"mine"' in measured.out


def test_every_table_of_the_architecture_is_tried():
    """Recipes are a folder; experiments, verbs and settings stand in lists; choices and remarks are tried in test_choices."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text[text.index("## Where do I add") : text.index("## Laws")]
    named = {name for row in table.splitlines() for name in re.findall(r"`([A-Z]+)`", row.rpartition(" | ")[2])}
    assert named - {"SETTINGS", "EXPERIMENTS", "PATHS", "APPLIES", "FASTEST", "CHOICES", "REMARKS"} == TABLES.keys()
    tried = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in TABLES if f'"{name}"' not in tried] == []
