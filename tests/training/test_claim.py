"""Nothing of the user's is deleted, replaced or mixed with a run, by any verb."""

import shutil

import pytest
from calling import refused, regard
from small import digests, small_recipe

from regard import run
from regard.data.sealed import MANIFEST, sealed
from regard.errors import UserError
from regard.models.directory import find_model
from regard.run_directory import HEADER

FOLDERS = ["data", "model", "fields", "tokenizers", "checkpoints", "best", "corpus", "events"]


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_texts(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for side in ("la", "en"):
        (folder / f"train.{side}").write_text("".join(f"{side} {number}\n" for number in range(30)))
    return ["--source", folder / "train.la", "--target", folder / "train.en"]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_the_users_is_no_place_for_a_run(tmp_path, monkeypatch, name):
    """`regard train --source data/train.la --target data/train.en --run .` deleted `data`."""
    monkeypatch.chdir(tmp_path)
    files = write_texts(tmp_path / "data")
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / "mine.txt").write_text("years of work")
    (tmp_path / "recipe.yaml").write_text("base: demo\n")
    before = contents(tmp_path)
    for options in ([], ["--resume"]):
        message = refused("train", "demo", *files, "--run", ".", *options)
        assert "give --run a new directory" in message
    assert contents(tmp_path) == before


@pytest.mark.parametrize("value", ["", " "])
def test_an_unset_variable_is_no_directory(tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    files = write_texts(tmp_path / "data")
    before = contents(tmp_path)
    assert "--run is empty" in refused("train", "demo", *files, "--run", value)
    assert contents(tmp_path) == before


def test_a_file_is_no_directory_of_a_run(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UserError, match="a file stands"):
        run.train(small_recipe(2), tmp_path / "run", talk=False)


def test_an_empty_directory_and_what_a_kill_leaves_of_a_run_are_taken(tmp_path):
    (tmp_path / ".lock").write_text("123456")
    (tmp_path / ".tmp-recipe.yaml").write_text("half")
    (tmp_path / ".tmp-99999999-data").mkdir()
    run.train(small_recipe(2), tmp_path, talk=False)
    assert (tmp_path / "recipe.yaml").read_text().startswith(HEADER)


@pytest.mark.parametrize("name", ["data", "model", "fields", "tokenizers"])
def test_what_a_user_puts_in_the_place_of_a_runs_own_stays(own, name):
    shutil.rmtree(own / name, ignore_errors=name == "tokenizers")  # where runs kept their fields once
    (own / name).mkdir()
    (own / name / "mine.txt").write_text("years of work")
    before = contents(own)
    with pytest.raises(UserError, match="regard did not write this"):
        run.train(small_recipe(6), own, resume=True, talk=False)
    assert contents(own) == before


def test_a_users_file_in_a_model_stays_when_a_finished_run_is_resumed(own):
    (own / "model" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt"):
        run.train(small_recipe(8), own, resume=True, talk=False)
    assert (own / "model" / "notes.txt").read_text() == "mine"


def test_a_users_files_beside_a_runs_own_do_no_harm(own, finished):
    (own / "notes.txt").write_text("mine")
    (own / "pictures").mkdir()
    run.train(small_recipe(6), own, resume=True, talk=False)
    assert (own / "notes.txt").exists()
    assert (own / "pictures").is_dir()
    assert digests(own) == digests(finished)


def test_a_sealed_directory_replaces_nothing_that_is_not_sealed(tmp_path):
    for content in ("", "mine"):
        target = tmp_path / f"of {content}"
        target.mkdir()
        (target / "mine.txt").write_text(content)
        with pytest.raises(UserError, match="did not write this"), sealed(target, {}):
            pass
        assert contents(target)


def test_a_directory_whose_manifest_is_damaged_is_set_aside_and_not_deleted(tmp_path):
    for text in ("first", "second"):
        with sealed(tmp_path / "x", {}) as inside:
            (inside / "a.txt").write_text(text)
        (tmp_path / "x" / MANIFEST).write_text("spoilt")
    with sealed(tmp_path / "x", {}) as inside:
        (inside / "a.txt").write_text("third")
    texts = {path.parent.name: path.read_text() for path in tmp_path.glob("*/a.txt")}
    assert texts == {"damaged-1-x": "first", "damaged-2-x": "second", "x": "third"}


def test_a_corpus_replaces_no_other_text(tmp_path):
    assert regard("corpora", "latin", "--out", tmp_path, "--size", "5").code == 0
    before = contents(tmp_path)
    assert regard("corpora", "latin", "--out", tmp_path, "--size", "5").code == 0
    assert "another text stands there" in refused("corpora", "latin", "--out", tmp_path, "--size", "6")
    assert contents(tmp_path) == before


def test_generated_test_sets_are_written_into_no_model_and_no_folder_of_the_users(own, tmp_path):
    before = contents(own / "model")
    assert regard("evaluate", own / "model", "--beam", "1").code == 0
    assert contents(own / "model") == before


@pytest.mark.parametrize("experiment", ["cells", "attention"])
def test_an_experiment_is_mixed_with_nothing(tmp_path, experiment):
    (tmp_path / "trials.jsonl").write_text("mine")
    assert "no experiment of ours" in refused("lab", experiment, "--out", tmp_path)
    assert contents(tmp_path) == {(tmp_path / "trials.jsonl").relative_to(tmp_path): b"mine"}


def test_a_model_that_was_being_replaced_is_found_again(own):
    """`regard align --choose`, killed between its two renames."""
    (own / "model").rename(own / ".tmp-99999999~model")
    assert find_model(own) == own / "model"
    (own / "model").rename(own / ".tmp-99999999~model")
    assert find_model(own / "model") == own / "model"
