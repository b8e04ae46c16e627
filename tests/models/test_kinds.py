"""The laws, over every encoder and decoder that is not recurrent."""

import pytest
import torch
from bounded import bounded
from kinds import KINDS, small
from test_laws import LENGTHS, SOURCE, TARGET, stepped
from tiny import END

from regard.data.batching import reading
from regard.decoding.beam import beam_search
from regard.nn.state import repeat_rows

ALL = pytest.mark.parametrize("name", KINDS)
# searches take long, and a kind that steps as it is taught to is searched as every other
SOME = [name if number % 4 == 0 else pytest.param(name, marks=pytest.mark.slow) for number, name in enumerate(KINDS)]


@ALL
def test_stepping_equals_teacher_forcing(name):
    model = small(KINDS[name])
    logits, weights = stepped(model, SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(model(reading(SOURCE, LENGTHS), TARGET), logits, rtol=1e-4, atol=1e-5)
    forced = model.teacher_forced(reading(SOURCE, LENGTHS), TARGET, return_weights=True).weights
    assert (forced is None) == (weights is None) == (not model.decoder.has_attention)
    if weights is not None:
        torch.testing.assert_close(forced, weights, rtol=1e-4, atol=1e-5)


@ALL
def test_the_future_does_not_reach_the_past(name):
    model, changed = small(KINDS[name]), TARGET.clone()
    changed[:, 3:] = changed[:, 3:] % 5 + 4
    before, after = model(reading(SOURCE, LENGTHS), TARGET), model(reading(SOURCE, LENGTHS), changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@ALL
def test_padding_reaches_nothing(name):
    model = small(KINDS[name])
    together = model(reading(SOURCE, LENGTHS), TARGET)
    noisy = torch.where(SOURCE == 0, torch.tensor(7), SOURCE)
    torch.testing.assert_close(model(reading(noisy, LENGTHS), TARGET), together)
    for row, length in enumerate(LENGTHS):
        alone = model(reading(SOURCE[row : row + 1, :length], LENGTHS[row : row + 1]), TARGET[row : row + 1])
        torch.testing.assert_close(alone, together[row : row + 1], rtol=1e-4, atol=1e-5)


@ALL
def test_the_source_reaches_every_step(name):
    """Changed at its first word, it changes every row's first step: no model forgets to look."""
    model, changed = small(KINDS[name]), SOURCE.clone()
    changed[:, 0] = changed[:, 0] % 5 + 4
    before, after = model(reading(SOURCE, LENGTHS), TARGET), model(reading(changed, LENGTHS), TARGET)
    assert not any(torch.allclose(one, other, atol=1e-6) for one, other in zip(before[:, 0], after[:, 0], strict=True))


@ALL
def test_weights_are_a_distribution_over_the_source(name):
    model = small(KINDS[name])
    if not model.decoder.has_attention:
        pytest.skip("no attention, no weights")
    weights = model.teacher_forced(reading(SOURCE, LENGTHS), TARGET, return_weights=True).weights
    total = weights.sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert weights[1, ..., 2:].eq(0).all()
    assert weights[2, ..., 1:].eq(0).all()


@ALL
def test_every_parameter_learns(name):
    model = small(KINDS[name]).train()
    model(reading(SOURCE, LENGTHS), TARGET).square().sum().backward()
    idle = [name for name, parameter in model.named_parameters() if parameter.grad is None or parameter.grad.eq(0).all()]
    assert not idle


@ALL
def test_hypotheses_of_one_sentence_share_its_memory(name):
    model, tokens = small(KINDS[name]), torch.tensor([4, 5, 6, 7, 8, 4])
    step, state = model.start(model.encode(reading(SOURCE, LENGTHS)))
    twice = SOURCE.repeat_interleave(2, 0), LENGTHS.repeat_interleave(2, 0)
    other, other_state = model.start(model.encode(reading(*twice)))
    state = repeat_rows(state, 2)
    for words in (tokens, tokens.flip(0)):
        one, two = step(words, state), other(words, other_state)
        torch.testing.assert_close(one.logits, two.logits, rtol=1e-4, atol=1e-5)
        state, other_state = one.state, two.state


@pytest.mark.parametrize("name", SOME)
@torch.no_grad()
def test_a_sentence_decodes_alike_alone_and_in_any_order(name):
    model = small(KINDS[name], scale=2.0)
    found = search(model, SOURCE, LENGTHS)
    turned = search(model, SOURCE.flip(0), LENGTHS.flip(0))[::-1]
    alone = [search(model, SOURCE[row : row + 1, :length], LENGTHS[row : row + 1])[0] for row, length in enumerate(LENGTHS)]
    for one, *others in zip(found, turned, alone, strict=True):
        for other in others:
            assert one.tokens == other.tokens
            assert abs(one.score - other.score) < 1e-4


def search(model, source, lengths):
    step, state = model.start(model.encode(reading(source, lengths)))
    found = beam_search(*bounded(step, state, lengths + 4), width=3, end=END)
    return [best[0] for best in found]


@ALL
@pytest.mark.gpu
def test_a_gpu_computes_what_a_cpu_computes(name):
    """Values and gradients in float32, through every kernel that applies; sums in another order."""
    if "hard" in name or "gumbel" in name:
        pytest.skip("draws differ between devices")
    here, there = small(KINDS[name]), small(KINDS[name])
    there.load_state_dict(here.state_dict())
    there = there.cuda()
    quiet(here)
    quiet(there)
    for model, device in ((here, "cpu"), (there, "cuda")):
        steps = model.teacher_forced(reading(SOURCE.to(device), LENGTHS.to(device)), TARGET.to(device))
        model.decoder.loss(steps, TARGET.to(device), 0.1).backward()
    for (part, ours), theirs in zip(here.named_parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(
            theirs.grad.cpu(), ours.grad, rtol=2e-3, atol=2e-4, msg=lambda text, part=part: f"{part}: {text}"
        )
    logits, _ = stepped(there.eval(), SOURCE.cuda(), LENGTHS.cuda(), TARGET.cuda())
    torch.testing.assert_close(logits.cpu(), stepped(here.eval(), SOURCE, LENGTHS, TARGET)[0], rtol=1e-3, atol=1e-4)


def quiet(model):
    """As in training, but nothing is dropped or drawn."""
    model.train()
    for part in model.modules():
        if hasattr(part, "p"):
            part.p = 0.0
        if hasattr(part, "weight_drop"):
            part.weight_drop = 0.0
        if hasattr(part, "noise") and hasattr(part, "choose"):
            part.noise = None
