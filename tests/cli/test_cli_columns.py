"""Columns by the command line: train, predict and evaluate what is no pair of texts; and every wrong use in one message."""

import gzip
import json
import os
import re
import shutil
from threading import Thread

import numpy as np
import pytest
import tasks
import yaml
from calling import refused, regard

from regard.recipe import read


def write_recipe(folder, task, *, files=None, **training):
    """A recipe without data but for a tokenizer and fields, or with that of `files`."""
    values = tasks.recipe(task, files or {"target": folder / "nothing"}, **training)
    if files is None:
        values["data"] = {key: value for key, value in values["data"].items() if key not in ("train", "valid", "test")}
    (folder / f"{task}.yaml").write_text(yaml.safe_dump(values))
    return folder / f"{task}.yaml"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each of these tasks, trained from files that the command line names. Not to be written to."""
    made = {}
    for task in ("tagger", "classifier", "recurrent_texts", "vectors"):
        folder = tmp_path_factory.mktemp(task)
        files = tasks.write(folder, task)
        words = [word for name, path in files.items() for word in option(name, path)]
        valid = [word for name, path in files.items() for word in option(name, path, "valid-")]
        recipe = write_recipe(folder, task)
        assert regard("train", recipe, *words, *valid, "--run", folder / "run", "--quiet") == (0, "", "")
        made[task] = folder
    return made


def option(name, path, before=""):
    return [f"--{before}{name}", path] if name in ("source", "target") else [f"--{before}column", f"{name}={path}"]


def lines(*texts):
    return "".join(f"{text}\n" for text in texts).encode()


def test_columns_of_the_command_line_are_those_of_the_recipe(runs):
    folder = runs["tagger"]
    data = read(folder / "run" / "recipe.yaml").data
    for files in (data.train, data.valid):
        assert files.named == {"source": folder / "source.txt", "tags": folder / "tags.txt"}
    assert data.test == {}


def test_predict_labels_each_line(runs):
    code, out, err = regard("predict", runs["tagger"] / "run", stdin=lines("a b c", "", "d c b a a"))
    assert (code, out, err) == (0, "V C C2\n\nC C2 C2 V V\n", "")
    code, out, _ = regard("predict", runs["classifier"] / "run", "--scores", stdin=lines("c", "d a"))
    (first, label), (second, other) = (line.split("\t") for line in out.splitlines())
    assert (code, label, other) == (0, "without", "with a")
    assert all(0.5 < float(chance) <= 1 for chance in (first, second))


def test_predict_reads_texts_and_files(runs, tmp_path):
    run = runs["tagger"] / "run"
    assert regard("predict", run, "--text", "a b c", "--text", "c").out == "V C C2\nC\n"
    (tmp_path / "texts.gz").write_bytes(gzip.compress(lines("a b c", "", "c")))
    assert regard("predict", run, "--file", tmp_path / "texts.gz").out == "V C C2\n\nC\n"
    labelled = regard("predict", run, "--text", "a c", "--probabilities").out.split()
    assert [one.partition("=")[0] for one in labelled] == ["V", "C"]
    assert all(0.5 < float(one.partition("=")[2]) <= 1 for one in labelled)
    assert "--text and --file both say what to label" in refused("predict", run, "--text", "a", "--file", tmp_path / "texts.gz")
    assert "nothing: cannot be read" in refused("predict", run, "--file", tmp_path / "nothing")


def test_predict_reads_and_writes_json(runs):
    given = lines('{"id": 7, "source": "d a"}', '"c"', "3")
    code, out, err = regard("predict", runs["classifier"] / "run", "--jsonl", "--probabilities", stdin=given)
    first, second, third = map(json.loads, out.splitlines())
    assert (code, err.count("error: <stdin>:3: a JSON object is needed")) == (2, 1)
    assert (first["id"], first["source"], first["label"], second["label"]) == (7, "d a", "with a", "without")
    assert sum(first["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert first["probability"] == max(first["probabilities"].values())
    assert (third["label"], third["error"][:13]) == (None, "a JSON object")
    (tagged,) = map(json.loads, regard("predict", runs["tagger"] / "run", "--jsonl", stdin=lines('"a b c"')).lines)
    assert tagged["tags"] == ["V", "C", "C2"]
    assert tagged.keys() == {"source", "tags", "probability"}


def test_two_runs_are_compared_on_the_same_rows(runs, tmp_path):
    folder = runs["tagger"]
    recipe = write_recipe(tmp_path, "tagger", files=tasks.write(tmp_path, "tagger"), updates=1)
    assert regard("train", recipe, "--run", tmp_path / "worse", "--quiet").code == 0
    files = ["--source", folder / "source.txt", "--column", f"tags={folder / 'tags.txt'}"]
    found = json.loads(regard("evaluate", folder / "run", "--against", tmp_path / "worse", *files, "--json").out)["test"]
    accuracy = next(one for one in found if one["name"] == "accuracy")
    own, other = (scores(run, *files)["test"]["accuracy"] for run in (folder / "run", tmp_path / "worse"))
    assert (accuracy["ours"], accuracy["theirs"]) == (own, other)
    assert accuracy["p_value"] < 0.05
    code, told, _ = regard("evaluate", folder / "run", "--against", tmp_path / "worse", *files, "--metric", "accuracy")
    assert code == 0
    assert re.search(r"^  accuracy +100\.0 +\S+ +\+\S+ \[\S+, \S+\]   p = 0\.0\d\d$", told, flags=re.MULTILINE)
    told = refused("evaluate", folder / "run", "--against", runs["classifier"] / "run", *files)
    assert "it reads and writes source, label, not source, tags" in told
    told = refused("evaluate", folder / "run", "--against", tmp_path / "worse", *files, "--output", tmp_path / "out")
    assert "--output is for one model" in told


def test_predict_answers_line_by_line_and_names_what_it_cannot_read(tmp_path):
    files = tasks.write(tmp_path, "tagger", tasks.ROWS[:3])
    recipe = write_recipe(tmp_path, "tagger", files=files, updates=2)
    sizes = "hidden_size: 8, feedforward_size: 8, layers: 1, attention: {heads: 2}"
    learned = f"model.encoder={{kind: transformer, {sizes}, positions: learned, longest: 4}}"
    assert regard("train", recipe, learned, "--run", tmp_path / "run", "--quiet").code == 0
    found = regard("predict", tmp_path / "run", "--unbuffered", stdin=lines("a b", "a b c d", "d"))
    assert found.code == 2
    assert [len(line.split()) for line in found.lines] == [2, 0, 1]
    assert found.err.startswith("error: <stdin>:2: too long: the source has 5 tokens")
    assert found.err.count("error:") == 1
    scored = regard("predict", tmp_path / "run", "--scores", stdin=lines("a b c d"))
    assert (scored.code, scored.out) == (2, "0.000000\t\n")


def scores(*words):
    code, out, err = regard("evaluate", *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize("task", ["tagger", "classifier"])
def test_evaluate_labels_from_the_command_line(runs, task, tmp_path):
    folder, column = runs[task], {"tagger": "tags", "classifier": "label"}[task]
    words = ["--source", folder / "source.txt", "--column", f"{column}={folder / f'{column}.txt'}"]
    found = scores(folder / "run", *words, "--output", tmp_path / "labels")["test"]
    assert (found["pairs"], found["accuracy"]) == (8, 100)
    assert found["perplexity"] == pytest.approx(np.exp(found["loss"]))
    assert (tmp_path / "labels").read_text() == (folder / f"{column}.txt").read_text()
    shown = regard("evaluate", folder / "run", *words)
    assert shown.out.startswith("test: 8 rows\n")
    assert "accuracy" in shown.out


def test_evaluate_by_columns_of_a_table(runs, tmp_path):
    rows = zip(tasks.tags(), tasks.texts(), strict=True)
    tasks.write_lines(tmp_path / "rows.tsv", ["tags\ttext", *(f"{tags}\t{text}" for tags, text in rows)])
    headed = ["--pairs", tmp_path / "rows.tsv", "--column", "tags=tags", "--column", "source=text"]
    assert scores(runs["tagger"] / "run", *headed)["test"]["accuracy"] == 100
    (tmp_path / "bare.tsv").write_text("".join((tmp_path / "rows.tsv").read_text().splitlines(keepends=True)[1:]))
    bare = ["--pairs", tmp_path / "bare.tsv", "--column", "tags=0", "--column", "source=1"]
    assert scores(runs["tagger"] / "run", *bare)["test"]["pairs"] == 8


def table_of(path):
    """Tags, a number, and a text, in this order."""
    rows = zip(tasks.tags(), tasks.texts(), strict=True)
    return tasks.write_lines(path, [f"{tags}\t{row}\t{text}" for row, (tags, text) in enumerate(rows)])


def test_tables_have_the_columns_of_the_training_table_unless_they_say_others(tmp_path):
    """Those of validation, of tests at the end, and of later ones; of a recipe and of a choice from the data."""
    table = table_of(tmp_path / "rows.tsv")
    turned = tasks.write_lines(tmp_path / "turned.tsv", map("\t".join, zip(tasks.texts(), tasks.tags(), strict=True)))
    named = ["--pairs", table, "--column", "tags=0", "--column", "source=2"]
    recipe, run = write_recipe(tmp_path, "tagger"), tmp_path / "run"
    words = ["--valid-pairs", table, "--test-pairs", table, "--run", run]
    assert regard("train", recipe, *named, *words, "--quiet") == (0, "", "")
    data = read(run / "recipe.yaml").data
    assert data.train.named == data.valid.named == data.test["test"].named == {"tags": 0, "source": 2}
    assert scores(run, "--pairs", table) == scores(run, *named)
    assert scores(run, "--pairs", turned, "--column", "tags=1", "--column", "source=0") == scores(run, *named)
    words = ["--valid-pairs", turned, "--valid-column", "tags=1", "--valid-column", "source=0", "--run", tmp_path / "other"]
    assert regard("train", recipe, *named, *words, "--quiet") == (0, "", "")
    assert read(tmp_path / "other" / "recipe.yaml").data.valid.named == {"tags": 1, "source": 0}
    chosen = ["--valid-pairs", table, "--run", tmp_path / "chosen", "training.updates=1"]
    assert regard("train", *named, *chosen, "--quiet") == (0, "", "")
    assert read(tmp_path / "chosen" / "recipe.yaml").data.valid.named == {"tags": 0, "source": 2}


def test_evaluate_a_language_model(runs):
    folder = runs["recurrent_texts"]
    found = scores(folder / "run", "--target", folder / "target.txt")["test"]
    assert found.keys() == {"pairs", "loss", "perplexity", "intervals", "signatures"}
    assert found["loss"] < 1.5  # nats per word, of four words and an end mark


def test_evaluate_takes_the_recipes_test_sets(tmp_path):
    files = tasks.write(tmp_path, "classifier")
    recipe = write_recipe(tmp_path, "classifier", files=files, updates=2)
    assert regard("train", recipe, "--run", tmp_path / "run", "--quiet").code == 0
    assert scores(tmp_path / "run")["same"]["pairs"] == 8


def test_columns_come_through_pipes_and_the_run_keeps_them(tmp_path):
    files = tasks.write(tmp_path, "tagger")
    recipe = write_recipe(tmp_path, "tagger", updates=2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=lambda: pipe.write_bytes(files["tags"].read_bytes()), daemon=True)
    writer.start()
    words = ["--source", files["source"], "--column", f"tags={pipe}", "--run", tmp_path / "run", "--quiet"]
    assert regard("train", recipe, *words).code == 0
    writer.join()
    kept = tmp_path / "run" / "spooled" / "column-tags"
    assert kept.read_bytes() == files["tags"].read_bytes()
    assert read(tmp_path / "run" / "recipe.yaml").data.train.named["tags"] == kept
    assert regard("train", "--run", tmp_path / "run", "--resume", "--quiet", "training.updates=3").code == 0


def test_vectors_are_trained_with_and_read_by_generate(runs):
    folder = runs["vectors"]
    found = regard("generate", folder / "run", stdin=lines(folder / "0.npy", folder / "none.npy", folder / "1.npy"))
    assert (found.code, found.out) == (2, "a b c\n\nc\n")
    assert found.err == f"error: <stdin>:2: {folder / 'none.npy'}: no such file; its output is empty\n"


def test_images_are_trained_with_and_read_by_generate(tmp_path):
    files = tasks.write(tmp_path, "image")
    recipe = write_recipe(tmp_path, "image", files=files, updates=2)
    assert regard("train", recipe, "--run", tmp_path / "run", "--quiet").code == 0
    found = regard("generate", tmp_path / "run", stdin=lines(tmp_path / "0.npy", tmp_path / "1.npy"))
    assert (found.code, len(found.lines)) == (0, 2)
    assert "max_ratio" not in found.err  # an image has no length to take a multiple of
    np.save(tmp_path / "small.npy", np.zeros((2, 2), np.uint8))
    other = regard("generate", tmp_path / "run", stdin=lines(tmp_path / "small.npy"))
    assert (other.code, other.out) == (2, "\n")
    assert "an image of [2, 2, 1], and training has [4, 6, 1]" in other.err


def test_a_model_of_another_shape_says_what_it_is_and_what_to_use(runs):
    run = runs["tagger"] / "run"
    told = f"{run}: this model (model.kind=tagger) gives labels, and one that writes outputs is needed here; it is used by "
    assert refused("generate", run) == f"{told}`regard predict {run} < texts > labels`"
    assert "this model has no attention, so there is nothing to look at" in refused("look", run, "a b")
    files = ["--source", runs["tagger"] / "source.txt", "--target", runs["tagger"] / "source.txt"]
    assert refused("align", run, *files).startswith(told)
    texts = runs["recurrent_texts"] / "run"
    for verb in ("generate", "predict"):
        told = refused(verb, texts)
        assert f"{texts}: this model (model.kind=language_model) continues texts" in told
        assert f"regard continue {texts} " in told
    told = refused("predict", runs["vectors"] / "run")
    assert "writes outputs, and one that gives labels is needed here" in told
    assert "regard generate" in told


def test_options_for_outputs_are_refused_by_models_without(runs):
    folder = runs["tagger"]
    words = ["--source", folder / "source.txt", "--column", f"tags={folder / 'tags.txt'}"]
    for given in (["--beam", "2"], ["--by-length"]):
        assert refused("evaluate", folder / "run", *words, *given) == (
            f"{folder / 'run'}: {given[0]} is for models that write outputs, and this one gives labels: leave it out"
        )
    texts = runs["recurrent_texts"]
    told = refused("evaluate", texts / "run", "--target", texts / "target.txt", "--output", texts / "outputs")
    assert "--output is for models with outputs or labels, and this one continues texts" in told
    assert not (texts / "outputs").exists()


def test_evaluate_refuses_what_its_model_cannot_read(runs, tmp_path):
    folder = runs["tagger"]
    source = ["--source", folder / "source.txt"]
    assert "`columns` names further columns" in refused("evaluate", folder / "run", *source)
    told = refused("evaluate", folder / "run", *source, "--target", folder / "tags.txt")
    assert told == "a test set of this model has source and tags; this one has no tags"
    bad = tasks.write_lines(tmp_path / "tags", ["V C C2", "Q", *tasks.tags()[2:]])
    told = refused("evaluate", folder / "run", *source, "--column", f"tags={bad}")
    assert f"{bad}:2: the tag 'Q' is not one of training's; choose from" in told
    short = tasks.write_lines(tmp_path / "short", ["V C", *tasks.tags()[1:]])
    told = refused("evaluate", folder / "run", *source, "--column", f"tags={short}")
    assert f"{short}:1: 2 tags for 3 tokens of the source" in told


WRONG = {
    "tags": ("--column tags", "--column tags: write NAME=PLACE, for example --column tags=words.tags"),
    "=f": ("--column =f", "--column =f: write NAME=PLACE"),
    "twice": ("--column tags=a --column tags=b", "--column tags=b: there is --column tags=a already; name it once"),
    "valid": ("--valid-column tags", "--valid-column tags: write NAME=PLACE, for example --valid-column tags=words.tags"),
    "capital": ("--column Tags=a --source b", "'Tags' cannot name a column"),
    "beside": ("--source a --target b --column source=c", "columns.source: there is a `source` beside it already"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_column_is_refused(case, tmp_path):
    words, told = WRONG[case]
    recipe = write_recipe(tmp_path, "tagger")
    assert told in refused("train", recipe, *words.split(), "--run", tmp_path / "run")
    if not case.startswith("valid"):
        assert told in refused("evaluate", tmp_path, *words.split()) or case in ("capital", "beside")
    assert not (tmp_path / "run").exists()


def test_without_a_recipe_a_column_of_tags_wants_a_tagger_and_others_a_recipe(tmp_path):
    files = tasks.write(tmp_path, "tagger")
    told = refused("train", "--source", files["source"], "--column", f"kinds={files['tags']}", "--run", tmp_path / "run")
    assert told.startswith("--column kinds=...: without a recipe a model from source to target, label or tags is trained")
    words = ["--source", files["source"], "--column", f"tags={files['tags']}", "training.updates=2", "--run", tmp_path / "run"]
    code, _, err = regard("train", *words)
    assert (code, "you named a column 'tags'" in err) == (0, True)
    assert read(tmp_path / "run" / "recipe.yaml").model["kind"] == "tagger"


def spoilt(folder, task, column, line, text):
    """The files of a task, with one line of one of them changed."""
    files = tasks.write(folder, task)
    content = files[column].read_text().splitlines()
    content[line - 1] = text
    changed = shutil.copytree(folder, folder / "valid", ignore=lambda *_: ["valid"])
    tasks.write_lines(changed / files[column].name, content)
    return files, {name: changed / path.name for name, path in files.items()}


def test_a_label_that_training_does_not_know_is_told_with_its_line(tmp_path):
    files, valid = spoilt(tmp_path, "classifier", "label", 3, "with e")
    recipe = write_recipe(tmp_path, "classifier", files=files)
    words = ["--valid-source", valid["source"], "--valid-column", f"label={valid['label']}", "--run", tmp_path / "run"]
    told = refused("train", recipe, *words)
    assert f"{valid['label']}:3: the label 'with e' is not one of training's; did you mean 'with a'?" in told


@pytest.mark.parametrize("side", ["train", "valid"])
def test_tags_that_do_not_match_their_tokens_are_told_with_their_line(side, tmp_path):
    files, other = spoilt(tmp_path, "tagger", "tags", 4, "C C V")
    first, second = (other, files) if side == "train" else (files, other)
    recipe = write_recipe(tmp_path, "tagger", files=first)
    words = ["--valid-source", second["source"], "--valid-column", f"tags={second['tags']}", "--run", tmp_path / "run"]
    told = refused("train", recipe, *words)
    assert f"{other['tags']}:4: 3 tags for 4 tokens of the source (a tokenizer that cuts at spaces" in told


@pytest.mark.parametrize("line", [1, 5])
def test_a_vector_file_that_is_missing_is_told_with_its_line(line, tmp_path):
    """The first is no exception, though the others' size is learned from it."""
    files, _ = spoilt(tmp_path, "vectors", "source", line, "none.npy")
    shutil.copy(tmp_path / "valid" / "source.txt", files["source"])
    recipe = write_recipe(tmp_path, "vectors", files=files, updates=2)
    assert f"{files['source']}:{line}: {tmp_path / 'none.npy'}: no such file" in refused(
        "train", recipe, "--run", tmp_path / "run"
    )
    assert regard("train", recipe, "--run", tmp_path / "run", "--quiet", "data.on_bad_row=skip").code == 0
    assert f"source.txt:{line}: " in (tmp_path / "run" / "bad_rows.txt").read_text()


def test_a_column_of_files_of_which_none_can_be_read(tmp_path):
    files = tasks.write(tmp_path, "vectors")
    tasks.write_lines(files["source"], ["none.npy"] * 8)
    told = refused("train", write_recipe(tmp_path, "vectors", files=files), "--run", tmp_path / "run")
    assert "none of the files that the column names can be read" in told
    assert f"{tmp_path / 'none.npy'}: no such file" in told


MISUSED = {
    "validate_by": ("tagger", "training.validate_by=bleu",
                    "bleu is not for this shape of model (tagger): take loss, perplexity, accuracy, macro_f1, span_f1"),
    "validate_texts": ("recurrent_texts", "training.validate_by=accuracy", "not for this shape of model (language_model)"),
    "penalties": ("tagger", "training.penalties.coverage=1", "training.penalties asks where the model looks"),
    "sampling": ("tagger", "training.scheduled_sampling=0.2", "are for models that write a sequence"),
    "risk": ("tagger", "training.risk={candidates: 2}", "training.risk is for models that write a sequence"),
    "risk_texts": ("recurrent_texts", "training.risk={candidates: 2}", "training.risk is for models that write a sequence"),
    "risk_vectors": ("vectors", "training.risk={candidates: 2}", "models that write a sequence for a text"),
    "kind": ("tagger", "model.kind=classifier", "names no `label`, which the model needs: data.train.columns.label=PLACE"),
    "field": ("tagger", "data.fields.tag={kind: tags}", "data.fields.tag: the model has no column 'tag'; did you mean 'tags'?"),
    "modality": ("tagger", "data.fields.source.kind=vector", "did you mean 'vectors'?"),
    "input": ("vectors", "model.encoder.input.kind=patches", "input `patches` reads image"),
    "side": ("image", "model.encoder.input.side=3", "model.encoder.input.side=3 does not divide images of 4 x 6 pixels"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISUSED)
def test_what_does_not_go_with_a_model_is_refused(case, tmp_path):
    task, change, told = MISUSED[case]
    files = tasks.write(tmp_path, task)
    recipe = write_recipe(tmp_path, task, files=files)
    assert told in refused("train", recipe, change, "--run", tmp_path / "run")
    assert case == "side" or not (tmp_path / "run").exists()  # the size of images is known once one is read
