"""Batches made roomier so that few shapes recur: nothing of what is learned changes. (Graphs: test_capture, test_gpu.)"""

import numpy as np
import pytest
import torch
from small import small_recipe

from regard import preparation
from regard.data.batching import collate, pad_to_multiple
from regard.data.tokenizers import END
from regard.models import build, configure
from regard.training.distributed import Group
from regard.training.feed import StoreFeed
from regard.training.loop import Trainer
from regard.training.replay import COLUMNS, ROWS, Replay

OPTIONS = {
    "after_cell": [],
    "input_feeding": ["model.decoder.context=input_feeding"],
    "local_p": ["model.decoder.attention.scope=local_p"],
    "copying": ["model.decoder.copy_words=added"],
    "penalties": ["training.penalties.doubly_stochastic=1", "training.penalties.coverage=1"],
    "guided": ["training.penalties.guided=1"],
}
DRY = ["model.encoder.dropout=0", "model.decoder.dropout=0", "data.corpus.size=60"]


def prepared_for(options, folder):
    recipe = small_recipe(2, *DRY, *options)
    recipe = recipe.model_copy(update={"model": configure(recipe.model).model_dump(mode="json")})
    recipe = preparation.with_corpus(recipe, folder)
    prepared = preparation.prepare(recipe, folder, lambda text: None)
    model = build(configure(recipe.model), *prepared.shapes)
    return prepared, Trainer(
        model,
        StoreFeed(prepared.store, prepared.plan, model.writes),
        recipe.training,
        folder,
        Group(0, 1, torch.device("cpu")),
        dict,
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_a_roomier_batch_has_the_same_loss_and_gradients(name, tmp_path):
    _, trainer = prepared_for(OPTIONS[name], tmp_path)
    rows, found = np.arange(5), []
    for replay in (None, Replay(trainer.objective, "float32", torch.device("cpu"))):
        trainer.replay = replay
        loss = trainer.backward(rows, 40, 0)
        found.append([loss.float(), *(parameter.grad.clone() for parameter in trainer.model.parameters())])
        trainer.model.zero_grad(set_to_none=True)
    for direct, replayed in zip(*found, strict=True):
        torch.testing.assert_close(replayed, direct, rtol=1e-4, atol=1e-6)


def test_shapes_are_rounded_up_and_rows_more_say_nothing(tmp_path):
    prepared, _ = prepared_for(OPTIONS["copying"], tmp_path)
    batch = collate(prepared.store, np.arange(5))
    full = pad_to_multiple(batch, ROWS, COLUMNS, "target")
    assert list(full.columns) == list(batch.columns) == ["source", "target", "copies"]
    assert {len(column.values) for column in full.columns.values()} == {ROWS}
    assert not any(column.values.shape[1] % COLUMNS for column in full.columns.values())
    assert batch["copies"].size <= full["copies"].size < batch["copies"].size + COLUMNS
    assert full["copies"].size % COLUMNS == 0
    for name, before in batch.columns.items():
        np.testing.assert_array_equal(full[name].values[tuple(map(slice, before.values.shape))], before.values)
    assert full["source"].values[5:, 0].tolist() == [END] * (ROWS - 5)
    assert full["source"].lengths[5:].tolist() == [1] * (ROWS - 5)
    assert not full["target"].values[5:].any()
    assert not full["target"].lengths[5:].any()
    assert not full["copies"].values[5:].any()
