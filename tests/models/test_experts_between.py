"""Experts between recurrent layers, equation by equation in float64, with the LSTM of test_deep.py."""

import pytest
import torch
from kinds import small
from test_deep import ROW, SIZE, WORDS, feed, look, lstm, result, run
from test_laws import LENGTHS, SOURCE, TARGET
from tiny_experts import KINDS

from regard.data.batching import reading
from regard.errors import UserError
from regard.models import build, configure
from regard.recipe import read_values

PADDED = TARGET.clone()
PADDED[1, 3:], PADDED[2, 1:] = 0, 0


def model_of(name, **options):
    """Gates that tell rows apart, and no noise in training."""
    torch.manual_seed(2)
    section = KINDS[name]
    sides = {side: {**section[side], "experts": {**section[side]["experts"], **options}} for side in section}
    model = small(sides).double()
    for part, parameter in model.named_parameters():
        if "between" in part:
            torch.nn.init.normal_(parameter)
    return model


def gates(experts, state):
    """softmax over the highest scores, 0 elsewhere."""
    scores = experts.gate.choose.weight @ state
    best = set(scores.argsort(descending=True)[: experts.top_k].tolist())
    return torch.stack([score if at in best else score - torch.inf for at, score in enumerate(scores)]).softmax(dim=0)


def mix(between, state):
    """x + σ(Σ_e G(x)_e (W₂ max(0, W₁ x + b₁) + b₂))"""
    experts, network = between.experts, between.experts.network
    shares = gates(experts, state)
    total = torch.zeros_like(state)
    for share, up, bias, down, offset in zip(
        shares, network.up.weight, network.up.bias, network.down.weight, network.down.bias, strict=True
    ):
        total += share * (down @ (up @ state + bias).clamp(min=0) + offset)
    return state + 1 / (1 + (-total).exp())


@torch.no_grad()
def test_the_third_layer_of_the_encoder_reads_what_experts_add_to_the_second():
    encoder = model_of("shazeer").encoder
    first, second, third = (layer.cells for layer in encoder.stack.layers)
    words = list(encoder.embed(ROW[0]))
    left, right = run(first[0], words)[0], run(first[1], words, from_the_right=True)[0]
    middle = run(second[0], [torch.cat(both) for both in zip(left, right, strict=True)])[0]
    mixed = [mix(encoder.stack.between, state) for state in middle]
    top = [hidden + below for hidden, below in zip(run(third[0], mixed)[0], mixed, strict=True)]
    torch.testing.assert_close(encoder(ROW, torch.tensor([5])).states[0], torch.stack(top))


@torch.no_grad()
def test_the_decoders_experts_stand_between_its_two_layers():
    """The lowest layer's last state asks; it adds the word that it read; the second adds what the experts gave it."""
    model = model_of("shazeer")
    decoder, memory = model.decoder, model.encode(reading(ROW, torch.tensor([5])))
    (low, high), states, expected = decoder.cells, [(torch.zeros(SIZE).double(),) * 2] * 2, []
    for word in WORDS:
        context, _ = look(decoder.attention, states[0][0], memory.states[0])
        first = lstm(low, feed(low, decoder.embed.weight[word]) + decoder.from_fed.weight @ context, states[0])
        mixed = mix(decoder.between, first[0] + decoder.embed.weight[word])
        states = [first, lstm(high, feed(high, mixed), states[1])]
        expected.append(result(decoder, states[1][0] + mixed, context))
    torch.testing.assert_close(model(reading(ROW, torch.tensor([5])), torch.tensor([WORDS]))[0], torch.stack(expected))


@torch.no_grad()
def test_experts_take_part_in_every_step_where_outputs_are_fed_back():
    model = model_of("feeding")
    decoder, memory = model.decoder, model.encode(reading(ROW, torch.tensor([5])))
    (low, high), states, expected = decoder.cells, [(torch.zeros(SIZE).double(),) * 2] * 2, []
    fed = torch.zeros(SIZE).double()
    for word in WORDS:
        first = lstm(low, feed(low, decoder.embed.weight[word]) + decoder.from_fed.weight @ fed, states[0])
        states = [first, lstm(high, feed(high, mix(decoder.between, first[0])), states[1])]
        context, _ = look(decoder.attention, states[1][0], memory.states[0])
        fed = torch.tanh(decoder.join.weight @ torch.cat([states[1][0], context]) + decoder.join.bias)
        expected.append(decoder.output.weight @ fed + decoder.output.bias)
    torch.testing.assert_close(model(reading(ROW, torch.tensor([5])), torch.tensor([WORDS]))[0], torch.stack(expected))


@torch.no_grad()
def test_the_sigmoid_may_be_left_out():
    between, states = model_of("after-cell").decoder.between, torch.randn(3, 5, SIZE).double()
    torch.testing.assert_close(between(states).states, states + between.experts(states).states)


def variation(counts):
    mean = sum(counts) / len(counts)
    return sum((count - mean) ** 2 for count in counts) / len(counts) / mean**2


def uneven(experts, rows):
    """0.01 (CV(importance)² + CV(load)²); without noise the load is a count."""
    shares = torch.stack([gates(experts, row) for row in rows])
    return 0.01 * sum(variation(side.sum(dim=0).tolist()) for side in (shares, shares > 0))


@torch.no_grad()
@pytest.mark.parametrize("name", ["shazeer", "feeding", "after-cell"])
def test_the_cost_is_of_all_words_of_both_sides_at_once_and_of_no_padding(name):
    """Also where experts serve one step after another; a column's are its own."""
    model, read = model_of(name, noise=False).train(), {}

    def remember(part, inputs, _):
        read.setdefault(part, []).append([given.flatten(0, -2 + at) for at, given in enumerate(inputs)])

    mixtures = [part for part in model.modules() if type(part).__name__ == "Between"]
    for part in mixtures:
        part.register_forward_hook(remember)
    cost = model.teacher_forced(reading(SOURCE, LENGTHS), PADDED).cost
    expected, rows = 0.0, []
    for part in mixtures:
        states, present = (torch.cat(side) for side in zip(*read[part], strict=True))
        rows.append(int(present.sum()))
        expected += uneven(part.experts, states[present])
    assert rows == [LENGTHS.sum()] * (len(rows) - 1) + [(PADDED != 0).sum()]
    torch.testing.assert_close(cost, torch.tensor(expected))
    assert model.eval().teacher_forced(reading(SOURCE, LENGTHS), PADDED).cost is None


@torch.no_grad()
def test_padding_takes_no_room_while_experts_are_crowded():
    """Words get in training what they get without the padding beside them."""
    model = model_of("shazeer", noise=False, capacity=0.7).train()
    wider = reading(torch.nn.functional.pad(SOURCE, (0, 5)), LENGTHS), torch.nn.functional.pad(PADDED, (0, 4))
    mixtures = [model.encoder.stack.between.experts, model.decoder.between.experts]
    before, counted = model(reading(SOURCE, LENGTHS), PADDED), [part.overflowed.clone() for part in mixtures]
    after = model(*wider)[:, :5]
    torch.testing.assert_close(after[PADDED != 0], before[PADDED != 0])
    for part, count in zip(mixtures, counted, strict=True):
        assert part.overflowed.sum() > 0
        assert part.overflowed.equal(2 * count)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"layers": 1, "experts": {}}, "under layer 1 of 1"),
        ({"layers": 2, "experts": {"under": 3}}, "under layer 3 of 2"),
        ({"layers": 2, "experts": {"under": 1}}, "greater than or equal to 2"),
        ({"layers": 2, "experts": {"every": 1}}, "every"),
        ({"layers": 2, "experts": {"top_k": 5}}, "top_k=5 of num_experts=4"),
    ],
)
def test_experts_that_have_no_place_are_refused(side, options, told):
    with pytest.raises(UserError, match=told):
        configure({side: options})


def test_the_recipe_has_the_sizes_of_the_paper():
    """3 + 2 layers of 512, 2048 experts of 2048 under the last of each side, 4 a word (Shazeer et al. 2017, appendix E)."""
    values = read_values("shazeer2017-moe")["model"]
    with torch.device("meta"):
        model = build(configure(values), 100, 100)
    assert (len(model.encoder.stack.layers), len(model.decoder.cells)) == (3, 2)
    assert (model.encoder.stack.experts_under, model.decoder.experts_under) == (3, 2)
    for between in (model.encoder.stack.between, model.decoder.between):
        assert between.experts.network.up.weight.shape == (2048, 2048, 512)
        assert between.experts.top_k == 4
        assert between.sigmoid
