"""Training on a GPU: resume goes on, the model decodes alike on both kinds of device."""

import pytest
import torch
from small import small_recipe

import regard
from regard import run
from regard.models import build, configure
from regard.training.distributed import Group
from regard.training.journal import read_journal
from regard.training.loop import Trainer

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


@pytest.mark.parametrize("options", [[], ["model.decoder.context=input_feeding"], ["model.decoder.copy_words=added"]])
def test_a_replayed_step_has_the_gradients_of_a_direct_one(tmp_path, options):
    """Rows and columns that only make shapes recur change nothing; nor does the graph, whichever batch it was recorded with."""
    recipe = small_recipe(20, "training.device=cuda", "model.encoder.dropout=0", "model.decoder.dropout=0", *options)
    run.train(recipe, tmp_path / "run", talk=False)
    whole = run.with_corpus(recipe, tmp_path / "run")
    prepared = run.prepare(whole, tmp_path / "run", lambda text: None)
    model = build(configure(recipe.model), len(prepared.source), len(prepared.target)).cuda()
    ways = [
        Trainer(model, prepared.store, prepared.plan, training, tmp_path, Group(0, 1, torch.device("cuda")), dict)
        for training in (recipe.training, recipe.training.model_copy(update={"capture": True}))
    ]
    for step in range(30):
        rows, found = prepared.plan.batch(step % 6), []
        for trainer in ways:
            trainer.objective.train()
            loss = trainer.backward(rows, 100)
            found.append([loss.float(), *(parameter.grad.clone() for parameter in model.parameters())])
            model.zero_grad(set_to_none=True)
        for direct, replayed in zip(*found, strict=True):
            torch.testing.assert_close(replayed, direct, rtol=1e-3, atol=1e-5)  # other sizes of products, other order of sums
    assert ways[1].replay.captured.recordings
