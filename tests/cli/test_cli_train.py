"""`regard train` on files of one's own, with and without a recipe."""

import gzip
import json
import os

import pytest
import torch
import yaml
from calling import refused, regard
from capitals import TINY

import regard as package
from regard.models.device import tell_threads
from regard.training import loop


def files(corpus):
    return ["--source", corpus / "train.source", "--target", corpus / "train.target"]


def rows_of(corpus):
    sources, targets = ((corpus / f"train.{side}").read_text("utf-8").splitlines() for side in ("source", "target"))
    return list(zip(sources, targets, strict=True))


def test_two_files_are_enough(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = regard("train", *files(corpus), *TINY, "data.held_out=30", "training.log_every=2")
    assert (code, out) == (0, "")
    assert "370 training rows, 30 for validation; source: text of 14, target: text of 14" in err
    assert "step 4/4  valid  loss" in err
    assert "the model is in runs/model/model" in err
    assert len(package.load("runs/model").generate(["amicus", "bellum"])) == 2


def test_quiet_says_nothing(corpus, tmp_path):
    valid = ["--valid-source", corpus / "short.source", "--valid-target", corpus / "short.target"]
    assert regard("train", *files(corpus), *valid, "--run", tmp_path / "run", "--quiet", *TINY) == (0, "", "")
    resolved = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert resolved["training"]["updates"] == 4
    assert resolved["data"]["valid"]["source"] == str(corpus / "short.source")


BAD = {5: b"\xff\n", 9: b"\n", 12: b"nul \0\n"}


def test_bad_rows_are_counted_and_named(corpus, tmp_path):
    lines = (corpus / "train.source").read_bytes().splitlines(keepends=True)
    for number, line in BAD.items():
        lines[number - 1] = line
    (tmp_path / "s").write_bytes(b"".join([*lines, b"one too many\n"]))
    words = ["--source", tmp_path / "s", "--target", corpus / "train.target", "--run", tmp_path / "run", *TINY]
    assert "set data.on_bad_row=skip" in refused("train", *words)
    code, _, err = regard("train", *words, "--run", tmp_path / "other", "data.on_bad_row=skip")
    assert code == 0
    report = tmp_path / "other" / "bad_rows.txt"
    assert f"401 rows = 397 used + 4 reported in {report}" in err
    assert [line.split(": ")[0] for line in report.read_text().splitlines()] == [
        f"{tmp_path / 's'}:{n}" for n in (5, 9, 12, 401)
    ]


def tsv(rows):
    return "".join(f"{source}\t{target}\n" for source, target in rows)


def jsonl(rows):
    return "".join(json.dumps({"target": target, "source": source}) + "\n" for source, target in rows)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("write", [tsv, jsonl], ids=["tsv", "jsonl"])
def test_pairs_in_one_file(corpus, tmp_path, write, packed):
    file = tmp_path / f"pairs.{write.__name__}{'.gz' if packed else ''}"
    content = write(rows_of(corpus)).encode()
    file.write_bytes(gzip.compress(content) if packed else content)
    code, _, err = regard("train", "--pairs", file, "--run", tmp_path / "run", *TINY, "data.held_out=30")
    assert code == 0
    assert "370 training rows, 30 for validation; source: text of 14, target: text of 14" in err


def test_a_finished_run_may_go_on_without_naming_its_recipe(own):
    assert regard("train", "--run", own, "--resume", "training.updates=122", "--quiet") == (0, "", "")
    assert max((own / "checkpoints").glob("step-*")).name == "step-000000122"
    assert "the run began with data.batch_tokens=400, not 100" in refused(
        "train", "--run", own, "--resume", "data.batch_tokens=100"
    )


def test_a_run_is_named_after_its_recipe(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert regard("train", corpus / "capitals.yaml", "training.updates=1", "--quiet") == (0, "", "")
    assert (tmp_path / "runs" / "capitals" / "model" / "config.json").is_file()


def test_threads_are_said_and_can_be_set(corpus, tmp_path, monkeypatch):
    seen, original = [], loop.Trainer.run
    monkeypatch.setattr(loop.Trainer, "run", lambda self, talk: seen.append(torch.get_num_threads()) or original(self, talk))
    words = ["train", "bahdanau2015-small", *files(corpus), "--run", tmp_path / "run", *TINY]
    code, _, err = regard(*words, "training.threads=2")
    assert (code, seen) == (0, [2])
    assert " parameters on cpu, 2 threads" in err
    assert torch.get_num_threads() == 1  # the caller's own again
    assert "training.threads" in refused("train", "demo", "--run", tmp_path / "other", "training.threads=0")


def test_a_busy_machine_is_told_of(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (2.5, 0.0, 0.0))
    assert "training.threads=1 may be faster" in tell_threads(torch.device("cpu"))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.0, 0.0))
    assert tell_threads(torch.device("cpu")) == ", 2 threads"
    assert tell_threads(torch.device("cuda")) == ""
