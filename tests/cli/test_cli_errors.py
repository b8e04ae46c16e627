"""Errors of users: exit code 2 and one message that says what is wrong, where, and what is allowed."""

import pytest
from calling import refused, regard, start

from regard.errors import UserError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["deemo"], "unknown recipe 'deemo' (and no .yaml file); did you mean 'demo'?"),
        (["vaswani2017"], "did you mean 'vaswani2017-small' or 'vaswani2017-base' or 'vaswani2017-big'?"),
        (["Bahdanau"], "did you mean 'bahdanau2015-small' or 'bahdanau2015'?"),
        (["demo", "model.encoder.cell=GRU"], "model.encoder.cell: unknown cell 'GRU'; did you mean 'gru'?"),
        (["."], ".: a directory without recipe.yaml; name a recipe, a .yaml file, a run or a model directory"),
        (["zzz"], "choose from arithmetic, bahdanau2015, bahdanau2015-small, bytenet2016,"),
        (["demo", "training.updatess=3"], "unknown key 'training.updatess'; did you mean 'updates'?"),
        (["demo", "trainin.updates=3"], "unknown key 'trainin'; did you mean 'training'?"),
        (["demo", "training.updates=many"], "training.updates: input should be a valid integer"),
        (["demo", "training.updates=0"], "training.updates: input should be greater than 0 (given: 0)"),
        (["demo", "training.updates.more=1"], "is a value, not a section"),
        (["demo", "model.encoder.cell=gruu"], "model.encoder.cell: unknown cell 'gruu'; did you mean 'gru'?"),
        (["demo", "=3"], "'=3' is no override; write key.path=value"),
        (["demo", "training.updates=["], "the value is not valid YAML"),
        (["demo", "luong2015-small"], "one recipe at a time, not demo and luong2015-small"),
        (["nowhere.yaml"], "nowhere.yaml: "),
        ([], "name a recipe"),
        (["--resume"], "--run DIR --resume"),
        (["--run", "nowhere", "--resume"], "nowhere: no run to continue"),
        (["--source", "nowhere.txt", "--target", "nowhere.txt"], "nowhere.txt: cannot be read: No such file"),
        (["--source", "nowhere.txt"], "name either `source` and `target`"),
        (["demo", "--target", "nowhere.txt"], "data.train names no `source`, which the model needs: data.train.source=FILE"),
        (["--pairs", "nowhere.txt"], "nowhere.txt: cannot be read: No such file"),
        (["demo", "data.corpus.name=latn"], "unknown corpus 'latn'; did you mean 'latin'?"),
        (["bahdanau2015-small"], "the recipe names no data: give --source and --target"),
    ],
)
def test_train(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused("train", *words)


BROKEN_FILES = {
    "unequal": (b"a\nb\nc\n", b"A\nB\n", "s:3: no line to go with it: {target} has only 2 lines"),
    "longer target": (b"a\nb\n", b"A\nB\nC\n", "t:3: no line to go with it: {source} has only 2 lines"),
    "bytes": (b"a\nb\xff\nc\n", b"A\nB\nC\n", "s:2: not UTF-8: byte 0xff at byte 2 of the line"),
    "empty line": (b"a\n\nc\n", b"A\nB\nC\n", "s:2: the source is empty"),
    "empty": (b"", b"", "{source} and {target}: no rows"),
}


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_training_files(name, tmp_path):
    source, target = tmp_path / "s", tmp_path / "t"
    *contents, message = BROKEN_FILES[name]
    for file, content in zip((source, target), contents, strict=True):
        file.write_bytes(content)
    told = refused("train", "--source", source, "--target", target, "--run", tmp_path / "run")
    assert message.format(source=source, target=target) in told


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"data: {}\nmodel: [1,\ntraining: {", "{file}:3: not valid YAML"),
        (b"\x00\xff\xfe\x80" * 20, "{file}: cannot read the recipe"),
        (b"only text", "{file}: a recipe is a mapping of keys to values"),
        (b"", "{file}: a recipe is a mapping of keys to values"),
        (b"model: !!python/object/apply:os.system ['exit 3']", "{file}:1: not valid YAML"),
    ],
)
def test_recipe_files(content, message, tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_bytes(content)
    assert message.format(file=file) in refused("train", file, "--run", tmp_path / "run")


def test_a_run_is_not_begun_twice(trained, corpus):
    assert "there is a run already; continue it with --resume" in refused("train", corpus / "capitals.yaml", "--run", trained)


USERS = [["generate"], ["evaluate", "--source", "a", "--target", "b"], ["look"]]


def use(verb, run):
    return [verb[0], run, *verb[1:], *(["text"] if verb[0] == "look" else [])]


@pytest.mark.parametrize("verb", USERS, ids=lambda verb: verb[0])
def test_what_is_no_model(verb, tmp_path):
    (tmp_path / "begun" / "checkpoints").mkdir(parents=True)
    assert "neither a run nor a model directory" in refused(*use(verb, tmp_path))
    assert "neither a run nor a model directory" in refused(*use(verb, tmp_path / "nowhere"))
    assert "the run has no model yet; finish it with `regard train --run" in refused(*use(verb, tmp_path / "begun"))


@pytest.mark.parametrize("verb", USERS, ids=lambda verb: verb[0])
def test_a_damaged_model(verb, own):
    file = own / "model" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert f"{file}: damaged" in refused(*use(verb, own))


def test_a_model_without_attention_has_nothing_to_show(blind, tmp_path):
    assert "no attention" in refused("look", blind, "amicus")
    assert "no attention" in refused("generate", blind, "--alignments", tmp_path / "links")
    assert regard("generate", blind, stdin=b"amicus\n\n").out.count("\n") == 2


def test_other_verbs(trained, corpus, tmp_path):
    assert refused("corpora", "latn", "--out", tmp_path) == "unknown corpus 'latn'; did you mean 'latin'?"
    assert "--out DIR" in refused("corpora", "latin")
    assert refused("recipes", "deemo") == "unknown recipe 'deemo' (and no .yaml file); did you mean 'demo'?"
    assert "name a text to look at, or --file" in refused("look", trained)
    assert "2 texts and 1 targets" in refused("look", trained, "a", "b", "--target", "c")
    assert "--gold links words of given targets" in refused("look", trained, "a", "--gold", corpus / "short.align")
    assert "lines of links for 1 texts" in refused("look", trained, "a", "--target", "b", "--gold", corpus / "short.align")
    assert "--grid is every layer and head" in refused("look", trained, "a", "--grid", "--layer", "1")
    assert "--alignment goes with" in refused("evaluate", trained, "--alignment", corpus / "short.align")
    assert "name either `source` and `target`" in refused("evaluate", trained, "--source", corpus / "short.source")
    told = "a test set of this model has source and target; this one has no source"
    assert told in refused("evaluate", trained, "--target", corpus / "short.source")


def test_a_file_that_cannot_be_written_is_named_without_a_number(trained, tmp_path):
    missing = tmp_path / "nowhere" / "links"
    assert refused("generate", trained, "--alignments", missing) == f"{missing}: No such file or directory"


@pytest.mark.parametrize("words", [["bogus"], ["generate"], ["generate", "run", "--beam", "0"], ["train", "--bogus"]])
def test_wrong_usage(words):
    code, out, err = regard(*words)
    assert (code, out) == (2, "")
    assert "Usage: regard" in err
    assert "Traceback" not in err


def test_debug_shows_where_an_error_came_from():
    with pytest.raises(UserError, match="deemo"):
        regard("--debug", "train", "deemo")


def test_a_process_leaves_with_the_code_and_the_message():
    with start("train", "deemo") as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"error: unknown recipe")
    with start("--debug", "train", "deemo") as process:
        assert b"Traceback" in process.communicate()[1]
