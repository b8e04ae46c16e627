"""`regard.train` from Python: every way to hold rows gives the run that the command line gives; callbacks; refusals; `look`."""

import io
import json
import os
import random
import signal
from contextlib import redirect_stderr

import pyarrow
import pytest
import yaml
from calling import regard as command

import regard
from regard.errors import DataError, InputTypeError, RecipeError
from regard.insight.drawing import draw_svg
from regard.insight.heatmap import Heatmap
from regard.insight.terminal import terminal
from regard.training import loop
from regard.training.journal import read_journal

WORDS = ["amicus", "bellum", "canis", "domus", "equus", "fīnis", "gladius", "hortus", "insula", "liber"]
UPDATES = 8
CHANGES = {
    "training.updates": UPDATES, "training.log_every": 2, "training.validate_every": 4, "training.save_every": 4,
    "data.tokenizer": {"kind": "word"}, "data.batch_tokens": 256, "decoding.max_length": 12,
    "model.encoder.embedding_size": 8, "model.encoder.hidden_size": 8, "model.decoder.embedding_size": 8,
    "model.decoder.hidden_size": 8, "model.decoder.attention.size": 8,
}  # fmt: skip
WRITTEN = [f"{key}={'{kind: word}' if isinstance(value, dict) else value}" for key, value in CHANGES.items()]
TEXTS = ["amicus bellum canis", "liber", "insula hortus domus domus", "unknown words amicus"]


def pairs_of(seed, count):
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 6))) for _ in range(count)]
    return [(text, text.upper()) for text in texts]


ROWS, VALID, TEST = pairs_of(1, 120), pairs_of(2, 10), pairs_of(3, 10)


def train(data, changes=CHANGES, **options):
    return regard.train(data, changes, talk=False, **options)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, rows in {"train": ROWS, "valid": VALID, "test": TEST}.items():
        for side, number in (("source", 0), ("target", 1)):
            (folder / f"{name}.{side}").write_text("".join(f"{row[number]}\n" for row in rows), encoding="utf-8")
        (folder / f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def typed(files, tmp_path_factory):
    """The run of the command line, with rows that it holds out itself."""
    run = tmp_path_factory.mktemp("runs") / "typed"
    words = ["--source", files / "train.source", "--target", files / "train.target", "--run", run, "--quiet"]
    assert command("train", *words, *WRITTEN) == (0, "", "")
    return run


class Column:
    """A column of a frame that is no sequence of str itself, as those of pandas and polars."""

    def __init__(self, values):
        self.values = values

    def to_list(self):
        return list(self.values)


class Frame:
    """What pandas and polars have in common: columns by name."""

    def __init__(self, **columns):
        self.values, self.columns = columns, list(columns)

    def __getitem__(self, name):
        return Column(self.values[name])


class Stream:
    """A table that can do nothing but hand over Arrow batches."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


SOURCES, TARGETS = [list(side) for side in zip(*ROWS, strict=True)]
FORMS = {
    "pairs": lambda files: ROWS,
    "lists": lambda files: [list(row) for row in ROWS],
    "an iterator": lambda files: iter(ROWS),
    "dicts": lambda files: [{"target": target, "id": 3, "source": source} for source, target in ROWS],
    "a dict of columns": lambda files: {"source": SOURCES, "target": TARGETS},
    "a frame": lambda files: Frame(id=list(range(120)), target=TARGETS, source=SOURCES),
    "a frame of two columns": lambda files: Frame(la=SOURCES, en=TARGETS),
    "an Arrow table": lambda files: pyarrow.table({"target": TARGETS, "source": SOURCES}),
    "an Arrow stream": lambda files: Stream(pyarrow.table({"source": SOURCES, "target": TARGETS})),
    "a table": lambda files: files / "train.tsv",
    "a table by name": lambda files: str(files / "train.tsv"),
    "two files": lambda files: {"source": files / "train.source", "target": str(files / "train.target")},
    "a table's columns": lambda files: {"pairs": files / "train.tsv", "source_column": 0, "target_column": 1},
}


def values_in(run):
    """The recipe without the names of its files."""
    values = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
    del values["data"]["train"]
    return values


def learned(run):
    """What a run has come to, byte for byte."""
    return [(run / part).read_bytes() for part in ("journal.jsonl", "model/model.safetensors")]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rows_gives_the_run_of_the_command_line(form, typed, files, tmp_path):
    model = train(FORMS[form](files), run=tmp_path / "run")
    assert values_in(tmp_path / "run") == values_in(typed)
    assert learned(tmp_path / "run") == learned(typed)
    assert (tmp_path / "run" / "valid.jsonl").read_bytes() == (typed / "valid.jsonl").read_bytes()
    assert model.search(TEXTS, beam=2) == regard.load(typed).search(TEXTS, beam=2)


def test_without_a_run_nothing_is_left(typed, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = train(ROWS)
    assert list(tmp_path.iterdir()) == []
    assert model.path is None
    assert model.search(TEXTS) == regard.load(typed).search(TEXTS)


def test_validation_and_test_rows_are_the_runs_own(files, tmp_path):
    words = ["--pairs", files / "train.tsv", "--valid-pairs", files / "valid.tsv", "--test-pairs", files / "test.tsv"]
    assert command("train", *words, "--run", tmp_path / "typed", "--quiet", *WRITTEN) == (0, "", "")
    train(ROWS, valid=VALID, test=iter(TEST), run=tmp_path / "run")
    assert learned(tmp_path / "run") == learned(tmp_path / "typed")
    data = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text(encoding="utf-8"))["data"]
    assert {path.name for path in (tmp_path / "run" / "spooled").glob("*.jsonl")} == {"data.jsonl", "valid.jsonl", "test.jsonl"}
    assert data["test"]["test"]["pairs"] == str(tmp_path / "run" / "spooled" / "test.jsonl")
    judged = [
        command("evaluate", tmp_path / name, "--json", "--metric", "exact", "--metric", "loss") for name in ("run", "typed")
    ]
    assert judged[0] == judged[1]
    assert json.loads(judged[0].out)["test"]["pairs"] == len(TEST)


def test_a_recipe_by_name_as_a_value_and_beside_rows(files, tmp_path):
    words = ["--pairs", files / "train.tsv", "--run", tmp_path / "typed", "--quiet"]
    assert command("train", "luong2015-small", *words, *WRITTEN) == (0, "", "")
    train(ROWS, recipe="luong2015-small", run=tmp_path / "named")
    read = regard.read_recipe("luong2015-small")
    train({"pairs": files / "train.tsv"}, recipe=read, run=tmp_path / "value")
    whole = regard.read_recipe("luong2015-small", [f"data.train.pairs={files / 'train.tsv'}", *WRITTEN])
    train(whole, (), run=tmp_path / "whole")
    train(str(tmp_path / "typed"), [], run=tmp_path / "again")  # a run as a recipe
    for name in ("named", "value", "whole", "again"):
        assert learned(tmp_path / name) == learned(tmp_path / "typed")
        assert values_in(tmp_path / name) == values_in(tmp_path / "typed")


def test_minutes_choose_as_on_the_command_line(monkeypatch, tmp_path):
    asked = []

    def within(minutes, recipe, overrides, talk):
        asked.append((minutes, overrides, talk))
        return recipe

    monkeypatch.setattr("regard.drafting.within", within)
    train(ROWS, minutes=2, run=tmp_path / "run")
    assert asked == [(2, CHANGES, False)]
    with pytest.raises(regard.Error, match="minutes goes with data and no recipe"):
        train(ROWS, recipe="demo", minutes=2)


def test_callbacks_are_told_what_the_journal_holds(typed, tmp_path):
    steps, validations = [], []
    train(
        ROWS,
        run=tmp_path / "run",
        on_step=lambda step, numbers: steps.append({"step": step, **numbers}),
        on_validation=lambda step, scores: validations.append({"step": step, **{f"valid_{k}": v for k, v in scores.items()}}),
    )
    rows = read_journal(tmp_path / "run" / "journal.jsonl")
    assert steps == [row for row in rows if "loss" in row] != []
    assert validations == [row for row in rows if "valid_loss" in row] != []
    assert learned(tmp_path / "run") == learned(typed)  # to be watched changes nothing


def test_on_validation_ends_the_training_with_the_model_of_that_step(tmp_path):
    model = train(ROWS, run=tmp_path / "ended", on_validation=lambda step, scores: step == 4)
    assert [row["step"] for row in read_journal(tmp_path / "ended" / "journal.jsonl")] == [2, 4, 4]
    assert model.path is not None
    assert "step: 4 (" in (tmp_path / "ended" / "model" / "README.md").read_text(encoding="utf-8")


def test_on_step_ends_the_training_and_the_last_weights_are_validated(tmp_path):
    told = []
    with redirect_stderr(io.StringIO()) as heard:
        regard.train(
            ROWS,
            CHANGES,
            run=tmp_path / "ended",
            on_step=lambda step, row: step == 6,
            on_validation=lambda *row: told.append(row),
        )
    assert [step for step, _ in told] == [4, 6]
    assert "a callback ends the training at step 6" in heard.getvalue()
    assert "validations brought" not in heard.getvalue()


def test_what_a_callback_ended_goes_on_to_the_same_end(typed, tmp_path):
    train(ROWS, run=tmp_path / "run", on_step=lambda step, numbers: step == 4)
    train(None, (), run=tmp_path / "run", resume=True)
    assert learned(tmp_path / "run") == learned(typed)


@pytest.mark.parametrize("answer", [None, 1, "yes", [0], {"a": 1}])
def test_only_true_ends_the_training(answer, tmp_path):
    train(ROWS, CHANGES | {"training.updates": 4}, run=tmp_path / "run", on_step=lambda *_: answer)
    assert read_journal(tmp_path / "run" / "journal.jsonl")[-1]["step"] == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_run_goes_on_with_the_same_rows_only(number, typed, tmp_path, monkeypatch):
    original = loop.Trainer.update

    def update(self, progress):
        original(self, progress)
        if progress.step == 5:
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "update", update)
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as caught:
            train(ROWS, run=tmp_path / "run")
    assert number != signal.SIGTERM or caught.value.code == 143
    with pytest.raises(regard.Error, match="there is a run already; continue it with resume=True"):
        train(ROWS, run=tmp_path / "run")
    with pytest.raises(regard.Error, match="the run began with other text than is given now"):
        train(ROWS[:-1], run=tmp_path / "run", resume=True)
    train(ROWS if number == signal.SIGINT else None, run=tmp_path / "run", resume=True)
    assert learned(tmp_path / "run") == learned(typed)


PAIRS = r"data is a list of \(source, target\) pairs of str, a data frame, "


@pytest.mark.parametrize(
    ("data", "error", "told"),
    [
        (3, InputTypeError, PAIRS + r".*; this is 3 \(int\)"),
        (b"a", InputTypeError, r"this is b'a' \(bytes\)"),
        ([], DataError, r"data: no rows; give at least one"),
        (("a", "b"), InputTypeError, r"data\[0\] is 'a' \(str\)"),
        (["a b"], InputTypeError, r"data\[0\] is 'a b' \(str\)"),
        ([("a", "b"), ("a",)], InputTypeError, r"data\[1\] is \('a',\) \(tuple\)"),
        ([("a", "b", "c")], InputTypeError, r"data\[0\] is \('a', 'b', 'c'\)"),
        ([("a", "b"), None], InputTypeError, r"data\[1\] is None \(NoneType\)"),
        ([("a", "b"), ("a", None)], InputTypeError, r"the target of data\[1\] is None \(NoneType\)"),
        ([(1, "b")], InputTypeError, r"the source of data\[0\] is 1 \(int\)"),
        ([{"source": "a"}], InputTypeError, r"the target of data\[0\] is None"),
        (Frame(source=["a"], target=[float("nan")]), InputTypeError, r"the target of data\[0\] is nan \(float\)"),
        (Frame(text=["a"]), DataError, r"columns named 'source' and 'target' are needed, or exactly two; this has 'text'"),
        (Frame(a=["a"], b=["b"], c=["c"]), DataError, r"this has 'a', 'b', 'c': choose two of them"),
        (pyarrow.table([["a"], ["b"]], names=["x", "x"]), DataError, r"this has 'x', 'x'"),
        ({"source": ["a", "b"], "target": ["c"]}, DataError, r"data: 2 values of 'source' and 1 of 'target'"),
        ({"sauce": "a.txt", "target": "b.txt"}, RecipeError, r"data.train.sauce"),
        ({"source": "missing.txt", "target": "missing.txt"}, DataError, r"missing.txt"),
        ("no-such-recipe", RecipeError, r"unknown recipe 'no-such-recipe'"),
        ("missing.tsv", DataError, r"missing.tsv"),
        ([("a", "b"), (" ", "b")], DataError, r"data.jsonl:2: the source is empty"),
        ([("a", "b\ud800")], DataError, r"data.jsonl:1: "),
        (None, regard.Error, r"train on what\? Give rows, or a recipe"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_refused_in_words(data, error, told, tmp_path):
    with pytest.raises(error, match=told) as caught:
        train(data, run=tmp_path / "run")
    assert isinstance(caught.value, regard.Error)
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"overrides": "runs/x"}, InputTypeError, r"overrides are a dict such as .*, not 'runs/x' \(str\)"),
        ({"overrides": 3}, InputTypeError, r"not 3 \(int\)"),
        ({"overrides": {3: 4}}, RecipeError, r"3 is no override"),
        ({"overrides": [3]}, RecipeError, r"3 is no override"),
        ({"overrides": {"training.updats": 4}}, RecipeError, r"training.updats"),
        ({"overrides": {"training.updates": "many"}}, RecipeError, r"training.updates"),
        ({"on_step": 3}, InputTypeError, r"on_step is a function of \(step, numbers\); this is 3"),
        ({"on_validation": "x"}, InputTypeError, r"on_validation is a function"),
        ({"run": 3}, InputTypeError, r"run is the name of a directory"),
        ({"run": " "}, regard.Error, r"run is empty"),
        ({"minutes": "2"}, InputTypeError, r"minutes is a number"),
        ({"minutes": 0}, regard.Error, r"minutes=0: a tenth of a minute is the least"),
        ({"valid": 3}, InputTypeError, r"valid is a list of .*; this is 3"),
        ({"test": [("a", 1)]}, InputTypeError, r"the target of test\[0\] is 1"),
        ({"data": "demo", "recipe": "demo"}, regard.Error, r"two recipes"),
        ({"data": None, "run": "nowhere", "resume": True}, regard.Error, r"nowhere: no run to continue"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_in_words(options, error, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=told):
        regard.train(**{"data": ROWS, "talk": False} | options)
    assert list(tmp_path.iterdir()) == []


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(regard.Error, match=r"regard\.train works in one process"):
        train(ROWS)


@pytest.fixture(scope="module")
def model(typed):
    return regard.load(typed)


def test_look_shows_what_align_found(model, tmp_path):
    text = "amicus bellum"
    for look, output in (
        (model.look(text), model.generate(text)),
        (model.look(text, "CANIS LIBER DOMUS"), "CANIS LIBER DOMUS"),
    ):
        found = model.align((text, output))
        assert (look.text, look.output, look.source, look.target) == (text, output, found.source, found.target)
        assert (look.weights == found.weights).all()
        heatmap = Heatmap(found.source, found.target, found.weights, f"{model.path}: additive attention", found.end)
        assert repr(look) == f"{output}\n\n{terminal(heatmap, color=False)}"
        assert look._repr_html_() == draw_svg(heatmap)
    look.png(tmp_path / "a.png")
    look.svg(str(tmp_path / "a.svg"))
    look.html(tmp_path / "a.html")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == draw_svg(heatmap)
    assert '<th scope="row"><bdi>CANIS</bdi></th>' in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_look_refuses_in_words_what_cannot_be_looked_at(model):
    for given, told in (((None,), "text is None"), ((["a"],), r"text is \['a'\] \(list\)"), (("a", 3), r"output is 3 \(int\)")):
        with pytest.raises(InputTypeError, match=told):
            model.look(*given)
    for given, told in ((("", "A"), "the text is empty"), (("amicus", " "), "the output is empty")):
        with pytest.raises(regard.Error, match=f"there is nothing to look at: {told}"):
            model.look(*given)


def test_models_without_attention_or_outputs_say_so():
    blind = train(ROWS, {key: value for key, value in CHANGES.items() if "attention" not in key}, recipe="sutskever2014-small")
    with pytest.raises(regard.Error, match="this model has no attention"):
        blind.look("amicus")
