"""A decoder alone against a plainly written language model over joined tokens; every kind of Transformer in bfloat16."""

import math

import pytest
import torch
from kinds import KINDS, small
from test_laws import LENGTHS, SOURCE, TARGET, stepped
from tiny_alone import section
from torch.nn import functional

from regard.data.batching import reading
from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.models import build, configure

SIZE, HEADS = 8, 2
OURS = [name for name in KINDS if name.startswith(("transformer-", "alone-"))]
LABELS = torch.tensor([[5, 6, 7, 8, 3], [4, 4, 8, 5, 3], [6, 8, 5, 7, 3]])


def plain_places(time):
    """sin and cos in turns."""
    angles = torch.arange(time)[:, None] / 10000 ** (torch.arange(0, SIZE, 2) / SIZE)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def plain_attention(layer, states, hidden):
    attention = layer.self_attention.attention
    sides = attention.score.project_query, attention.score.project_key, attention.project_value
    queries, keys, values = ((states @ side.weight.T).view(-1, HEADS, SIZE // HEADS).transpose(0, 1) for side in sides)
    scores = queries @ keys.mT / math.sqrt(SIZE // HEADS)
    context = scores.masked_fill(hidden, -math.inf).softmax(dim=-1) @ values
    return context.transpose(0, 1).flatten(1) @ layer.self_output.weight.T


def plain_norm(norm, states):
    return functional.layer_norm(states, (SIZE,), norm.weight, norm.offset)


def plain_model(decoder, tokens, prefix):
    """log p(next word) at every place of one sequence, whose first `prefix` places see each other."""
    time = len(tokens)
    hidden = torch.ones(time, time, dtype=torch.bool).triu(1)
    hidden[:prefix, :prefix] = False
    states = math.sqrt(SIZE) * decoder.embed.weight[tokens] + plain_places(time)
    for layer in decoder.stack.layers:
        states = plain_norm(layer.after_self.norm, states + plain_attention(layer, states, hidden))
        enter, leave = layer.feedforward.up, layer.feedforward.down
        made = (states @ enter.weight.T + enter.bias).relu() @ leave.weight.T + leave.bias
        states = plain_norm(layer.after_feedforward.norm, states + made)
    return (states @ decoder.embed.weight.T + decoder.output.bias).log_softmax(dim=-1)


@pytest.mark.parametrize("two_way", [False, True])
def test_it_is_a_language_model_of_source_and_target(two_way):
    """Each sentence alone there, all in one padded batch here. The loss is on the target's part; gradients are everywhere."""
    model = small(section(two_way_source=two_way, dropout=0.0, output_bias=True)).train()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    found, expected = model(reading(SOURCE, LENGTHS), TARGET).log_softmax(dim=-1), []
    for row, length in enumerate(LENGTHS.tolist()):
        joined = torch.cat([SOURCE[row, :length], TARGET[row]])
        expected.append(plain_model(model.decoder, joined, length if two_way else 0)[length:])
    expected = torch.stack(expected)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    loss = model.decoder.loss(model.teacher_forced(reading(SOURCE, LENGTHS), TARGET), LABELS)
    plain = -expected.gather(2, LABELS[..., None]).sum()
    torch.testing.assert_close(loss, plain)
    weights = list(model.parameters())
    for ours, theirs in zip(torch.autograd.grad(loss, weights), torch.autograd.grad(plain, weights), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoid", "buckets", "shaw"])
@pytest.mark.parametrize("two_way", [False, True])
def test_source_words_see_those_behind_them_only_if_asked_to(two_way, positions):
    """And tell how far ahead those are."""
    model = small(section(two_way_source=two_way, positions=positions, layers=1)).double()
    first, behind = SOURCE[:1].clone(), SOURCE[:1].clone()
    behind[0, 3] = 8
    swapped = SOURCE[:1, [0, 1, 3, 2]]
    states = [model.encode(reading(tokens, LENGTHS[:1])).states[:, 0] for tokens in (first, behind, swapped)]
    assert torch.allclose(states[0], states[1]) is not two_way
    assert torch.allclose(states[0], states[2]) is not two_way


def test_the_target_never_reaches_the_source():
    model = small(section(two_way_source=True, layers=2)).double()
    places = LENGTHS[:, None] + torch.arange(TARGET.shape[1])
    source = model.encode(reading(SOURCE, LENGTHS)).states
    tokens = functional.pad(SOURCE, (0, 5)).scatter(1, places, TARGET)
    joined = model.decoder.stack(model.decoder.words(tokens), None, prefix=LENGTHS).states
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(joined[row, :length], source[row, :length])


@pytest.mark.parametrize("options", [{"norm": "batch"}, {"experts": {"number": 3, "every": 1, "noise": False}}],
                         ids=["batch norm", "experts"])  # fmt: skip
def test_padding_reaches_nothing_in_training(options):
    """Of the source or of the target, whatever it is; moments over a batch and experts see words only."""
    found = []
    for source, more in ((SOURCE, 0), (functional.pad(SOURCE, (0, 9), value=7), 3)):
        torch.manual_seed(0)
        model = small(section(dropout=0.0, **options)).train()
        steps = model.teacher_forced(reading(source, LENGTHS), functional.pad(TARGET, (0, more)))
        found.append((steps.outputs[:, :5], steps.cost))
    torch.testing.assert_close(found[0], found[1])


def test_sources_of_one_word_and_of_none():
    model = small(section(two_way_source=True)).double()
    one = model(reading(SOURCE[:, :1], torch.ones(3, dtype=torch.long)), TARGET)
    torch.testing.assert_close(stepped(model, SOURCE[:, :1], torch.ones(3, dtype=torch.long), TARGET)[0], one)
    none = torch.zeros(3, dtype=torch.long)
    torch.testing.assert_close(stepped(model, SOURCE, none, TARGET)[0], model(reading(SOURCE, none), TARGET))


def test_it_reads_both_by_one_vocabulary():
    with pytest.raises(UserError, match=r"data\.tokenizer\.shared=true"):
        build(configure(section()), 9, 10)


def test_learned_positions_count_source_and_target():
    model = small(section(positions="learned", longest=9))
    model(reading(SOURCE, LENGTHS), TARGET)
    model = small(section(positions="learned", longest=8))
    for read in (lambda *given: model(reading(*given[:2]), given[2]), lambda *given: stepped(model, *given)):
        with pytest.raises(UserError, match="know 8 places, and a sequence has 9 tokens"):
            read(SOURCE, LENGTHS, TARGET)


@pytest.mark.parametrize("name", OURS)
def test_every_kind_stays_finite(name):
    """bfloat16, a source of nothing but padding, and a target of nothing but its start: there and back."""
    model, lengths, target = small(KINDS[name]).train(), torch.tensor([4, 2, 0]), TARGET.clone()
    target[2, 1:] = PAD
    with torch.autocast("cpu", torch.bfloat16):
        steps = model.teacher_forced(reading(SOURCE, lengths), target)
        loss = model.decoder.loss(steps, target, 0.1)
    (loss if steps.cost is None else loss + steps.cost).backward()
    assert loss.isfinite()
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize("name", [name for name in OURS if name.startswith("alone-")])
@torch.no_grad()
def test_steps_stay_finite(name):
    model, lengths = small(KINDS[name]), torch.tensor([4, 2, 0])
    with torch.autocast("cpu", torch.bfloat16):
        logits, weights = stepped(model, SOURCE, lengths, TARGET[:, :2])
    assert logits.isfinite().all()
    assert weights.isfinite().all()
