"""The laws of decoders that copy: every way of copying, by every decoder that has it."""

import pytest
import torch
from kinds import small
from test_laws import LENGTHS, SOURCE, TARGET
from tiny import VOCABULARY
from tiny_transformer import section

from regard.data.batching import reading
from regard.models.decoders import DECODERS
from regard.nn.copying import COPIES

RECURRENT = {"embedding_size": 5, "hidden_size": 4}
SECTIONS = {
    "transformer": section(),
    "recurrent": {"encoder": RECURRENT, "decoder": {**RECURRENT, "kind": "recurrent"}},
}
COPYABLE = torch.tensor([[4, 9, 10, 9], [8, 11, 0, 0], [9, 0, 0, 0]])  # 9 to 11 are past the vocabulary
WRITTEN = torch.tensor([[2, 9, 6, 10, 8], [2, 4, 11, 8, 5], [2, 9, 9, 5, 7]])
SIZE = VOCABULARY + 3


def model_of(kind, way):
    values = SECTIONS[kind]
    return small({**values, "decoder": {**values["decoder"], "copy_words": way}})


def test_every_decoder_that_copies_is_here():
    assert {name for name, one in DECODERS.items() if "copy_words" in one.Config.model_fields} == SECTIONS.keys()


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", SECTIONS)
def test_stepping_equals_teacher_forcing(kind, way):
    model, batch = model_of(kind, way), reading(SOURCE, LENGTHS, COPYABLE, SIZE)
    step, state = model.start(model.encode(batch))
    logits = []
    for tokens in WRITTEN.unbind(1):
        one = step(tokens, state)
        state = one.state
        logits.append(one.logits)
    forced = model(batch, WRITTEN)
    torch.testing.assert_close(forced, torch.stack(logits, 1), rtol=1e-4, atol=1e-5)
    assert forced.shape[-1] == SIZE
    assert forced[0, :, 9:11].isfinite().all()
    assert forced[0, :, 11].eq(float("-inf")).all()  # no word of that sentence


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", SECTIONS)
def test_padding_and_the_future_reach_nothing(kind, way):
    model = model_of(kind, way)
    together = model(reading(SOURCE, LENGTHS, COPYABLE, SIZE), WRITTEN)
    noisy = torch.where(SOURCE == 0, 7, SOURCE), LENGTHS, torch.where(COPYABLE == 0, 10, COPYABLE), SIZE
    torch.testing.assert_close(model(reading(*noisy), WRITTEN), together, rtol=1e-4, atol=1e-5)
    changed = torch.cat([WRITTEN[:, :3], TARGET[:, 3:] % 5 + 4], dim=1)
    after = model(reading(SOURCE, LENGTHS, COPYABLE, SIZE), changed)
    torch.testing.assert_close(after[:, :3], together[:, :3], rtol=1e-4, atol=1e-5)
    for row, length in enumerate(LENGTHS):
        part = SOURCE[row : row + 1, :length], LENGTHS[row : row + 1], COPYABLE[row : row + 1, :length], SIZE
        alone = model(reading(*part), WRITTEN[row : row + 1])
        torch.testing.assert_close(alone, together[row : row + 1], rtol=1e-4, atol=1e-5)
