"""Runs that hide words or make up stems: a batch is the same after a crash, and however it is dealt out."""

import os
import signal

import pytest
from small import digests, small_recipe

from regard import run
from regard.training import loop
from regard.training.journal import read_journal

HIDING = ["model.decoder.copy_words=added", "training.unknown_words=0.5"]
DRY = ["model.encoder.dropout=0", "model.decoder.dropout=0", "training.log_every=1", "decoding.max_length=4"]


def test_a_run_that_was_stopped_goes_on_with_the_same_words_hidden(tmp_path, monkeypatch):
    run.train(small_recipe(8, *HIDING), tmp_path / "whole", talk=False)
    original = loop.Trainer.update

    def update(self, progress):
        original(self, progress)
        if progress.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop.Trainer, "update", update)
    assert run.train(small_recipe(8, *HIDING), tmp_path / "cut", talk=False) == signal.SIGTERM
    monkeypatch.undo()
    assert run.train(small_recipe(8, *HIDING), tmp_path / "cut", resume=True, talk=False) is None
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")


def losses(folder, *changes):
    run.train(small_recipe(4, *DRY, *changes), folder, talk=False)
    return [row["loss"] for row in read_journal(folder / "journal.jsonl") if "loss" in row]


def test_pieces_of_a_batch_make_up_what_the_whole_does(tmp_path):
    stems = ["model.decoder.copy_words=added", "training.made_up_stems=0.9", "data.tokenizer.kind=character"]
    whole = losses(tmp_path / "1", *stems)
    assert losses(tmp_path / "3", *stems, "training.accumulate=3") == pytest.approx(whole, abs=1e-5)
    assert losses(tmp_path / "none", stems[0], stems[2]) != pytest.approx(whole, abs=1e-3)


def test_pieces_of_a_batch_hide_what_the_whole_does(tmp_path):
    whole = losses(tmp_path / "1", *HIDING)
    assert losses(tmp_path / "3", *HIDING, "training.accumulate=3") == pytest.approx(whole, abs=1e-5)
    assert losses(tmp_path / "none", HIDING[0]) != pytest.approx(whole, abs=1e-2)
