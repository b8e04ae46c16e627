"""Training on a GPU: resume goes on, the model decodes alike on both kinds of device."""

import pytest
from small import small_recipe

import regard
from regard import run
from regard.training.journal import read_journal

pytestmark = pytest.mark.gpu


def test_a_resumed_run_goes_on_where_it_stopped(tmp_path):
    """With training.deterministic the losses are those of a run that was not interrupted."""
    changes = ("training.device=cuda", "training.deterministic=true", "training.log_every=1")
    run.train(small_recipe(20, *changes), tmp_path / "whole", talk=False)
    run.train(small_recipe(10, *changes, "training.schedule=constant"), tmp_path / "parts", talk=False)
    run.train(small_recipe(20, *changes, "training.schedule=constant"), tmp_path / "parts", resume=True, talk=False)
    run.train(small_recipe(20, *changes, "training.schedule=constant"), tmp_path / "other", talk=False)
    parts, other = (read_journal(tmp_path / name / "journal.jsonl") for name in ("parts", "other"))
    losses = [[row["loss"] for row in rows if "loss" in row] for rows in (parts, other)]
    assert losses[0] == losses[1]


def test_both_devices_decode_alike(tmp_path):
    run.train(small_recipe(60, "training.device=cuda"), tmp_path / "run", talk=False)
    texts = ["servus in horto laborat .", "Caecilius est in atrio ."]
    assert regard.load(tmp_path / "run", "cpu").generate(texts) == regard.load(tmp_path / "run", "cuda").generate(texts)
