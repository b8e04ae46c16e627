"""ConvS2S and ByteNet, written out plainly in float64 and compared; and how far they see, by changing a word."""

import math

import pytest
import torch
from kinds import small
from test_laws import LENGTHS, SOURCE, TARGET, stepped
from tiny_convolutional import BYTENET, KINDS, SIZES, convolutional
from torch.nn.functional import conv1d, embedding, layer_norm, pad

from regard.data.batching import reading
from regard.errors import UserError
from regard.models import build, configure

ROWS = [(SOURCE[row : row + 1, :length], length.item()) for row, length in enumerate(LENGTHS)]


def exact(values):
    """The model in float64, its biases and gains not at their starting values."""
    torch.manual_seed(1)
    model = small(values).double()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
        if name.endswith("gain"):
            parameter.data.mul_(1.5)
        if name.endswith(("embed.weight", "positions.vectors")):
            torch.nn.init.normal_(parameter, std=1.0)
    return model


def weights_of(layer):
    if layer.gain is None:
        return layer.weight
    return layer.gain * layer.weight / layer.weight.square().sum(1, keepdim=True).sqrt()


def linear(layer, states):
    return states @ weights_of(layer).T + layer.bias


def convolve(layer, states, before, after):
    kernel = weights_of(layer).view(len(layer.bias), layer.width, layer.inputs).transpose(1, 2)
    return conv1d(pad(states.mT, (before, after)), kernel, layer.bias, dilation=layer.dilation).mT


def gate(states):
    first, second = states.chunk(2, dim=-1)
    return first / (1 + torch.exp(-second))


def residual(block, states):
    return states if block.project is None else linear(block.project, states)


def placed(side, tokens):
    return side.embed.weight[tokens] + side.positions.vectors[: tokens.shape[1]]


def convs2s(model, source, target):
    """All of Gehring et al. 2017, for one sentence: logits and the weights of every layer."""
    words = placed(model.encoder, source)
    states = linear(model.encoder.enter, words)
    for block in model.encoder.blocks:
        width = block.convolution.width
        found = gate(convolve(block.convolution, states, (width - 1) // 2, width // 2))
        states = math.sqrt(0.5) * (residual(block, states) + found)
    states, decoder, looks = linear(model.encoder.leave, states), model.decoder, []
    read = placed(decoder, target)
    hidden = linear(decoder.enter, read)
    for block in decoder.blocks:
        found = gate(convolve(block.convolution, hidden, block.convolution.width - 1, 0))
        query = linear(block.ask, found) + read
        looks.append((query @ states.mT).softmax(-1))
        context = looks[-1] @ (states + words) * source.shape[1] * math.sqrt(1 / source.shape[1])
        hidden = math.sqrt(0.5) * (residual(block, hidden) + found + linear(block.use, context))
    outputs = linear(decoder.leave, hidden)
    return outputs @ decoder.output.weight.T + decoder.output.bias, torch.cat(looks)


@pytest.mark.parametrize("name", ["convs2s", "convs2s-mixed"])
def test_convs2s_is_what_the_paper_says(name):
    model = exact(KINDS[name])
    logits, steps = (
        model(reading(SOURCE, LENGTHS), TARGET),
        model.teacher_forced(reading(SOURCE, LENGTHS), TARGET, return_weights=True),
    )
    assert steps.weights.shape[1] == len(model.decoder.blocks)
    for row, (source, length) in enumerate(ROWS):
        expected, looks = convs2s(model, source, TARGET[row : row + 1])
        torch.testing.assert_close(logits[row], expected[0])
        torch.testing.assert_close(steps.weights[row, :, :, :length], looks)


def activate(norm, states):
    return layer_norm(states, states.shape[-1:], norm.weight, norm.bias).clamp(min=0)


def dilated(block, states, before, after):
    inner = activate(block.norms[1], linear(block.narrow, activate(block.norms[0], states)))
    past = (block.convolution.width - 1) * block.convolution.dilation
    found = convolve(block.convolution, inner, *((past // 2, past // 2) if after else (past, 0)))
    return states + linear(block.widen, activate(block.norms[2], found))


def bytenet(model, source, target):
    """All of Kalchbrenner et al. 2016, for one sentence."""
    encoder, decoder = model.encoder, model.decoder
    unfolded = math.ceil(encoder.stretch * source.shape[1] + encoder.extra)
    states = linear(encoder.enter, pad(embedding(source, encoder.embed.weight), (0, 0, 0, unfolded - source.shape[1])))
    for block in encoder.blocks:
        states = dilated(block, states, True, True)
    beneath = pad(states, (0, 0, 0, max(0, target.shape[1] - unfolded)))[:, : target.shape[1]]
    both = torch.cat([embedding(target, decoder.embed.weight), beneath], dim=-1)
    states = both @ torch.cat([decoder.enter.weight, decoder.stack.weight], dim=1).T + decoder.enter.bias
    for block in decoder.blocks:
        states = dilated(block, states, True, False)
    outputs = (activate(decoder.norm, states) @ decoder.join.weight.T + decoder.join.bias).clamp(min=0)
    return outputs @ decoder.output.weight.T + decoder.output.bias


@pytest.mark.parametrize("name", ["bytenet", "bytenet-tied"])
def test_bytenet_is_what_the_paper_says(name):
    """Unfolded to 5, 3 and 2 places (or 7, 5 and 4), while targets have 5 steps: some go on beyond their source."""
    model = exact(KINDS[name])
    logits = model(reading(SOURCE, LENGTHS), TARGET)
    for row, (source, _) in enumerate(ROWS):
        torch.testing.assert_close(logits[row], bytenet(model, source, TARGET[row : row + 1])[0])


@pytest.mark.parametrize("stretch", [1.2, 1.0])
def test_a_source_is_unfolded_to_so_many_places(stretch):
    encoder = exact({"encoder": {**BYTENET, "stretch": stretch, "extra": 1}, "decoder": BYTENET}).encoder
    for length in (1, 4, 25):  # 1.2 x 25 is more than 30 in float32
        memory = encoder(torch.full((2, length + 5), 4), torch.tensor([length, 1]))
        assert memory.states.shape[1] == math.ceil(stretch * (length + 5) + 1)
        assert memory.visible.sum(1).tolist() == [math.ceil(stretch * length + 1), math.ceil(stretch + 1)]
        assert memory.states[1, 3:].eq(0).all()


def reached(model, position, length):
    """Which states of some sources change with one of their words."""
    source, lengths = torch.randint(4, 9, (16, length)), torch.full((16,), length)
    changed = source.clone()
    changed[:, position] = source[:, position] % 5 + 4
    before, after = (model.encoder(tokens, lengths).states for tokens in (source, changed))
    return differing(before[..., : model.encoder.summary_size], after[..., : model.encoder.summary_size])


def differing(before, after):
    return (before - after).abs().amax((0, 2)).gt(1e-9).nonzero().flatten().tolist()


def test_an_encoder_sees_as_far_as_its_widths_say():
    model = exact(convolutional({**SIZES, "longest": 60, "layers": 3}, {**SIZES, "layers": 1}))
    assert reached(model, 20, 40) == list(range(17, 24))
    model = exact({"encoder": {**BYTENET, "dilations": [1, 2, 4], "sets": 2, "stretch": 1.0}, "decoder": BYTENET})
    assert reached(model, 30, 60) == list(range(16, 45))  # 2 (1 + 2 + 4) to each side


@pytest.mark.parametrize(("name", "reach"), [("convs2s", 6), ("bytenet", 12)])
def test_a_decoder_remembers_as_much_as_it_sees(name, reach):
    """(width - 1) x dilation inputs a layer, whatever the number of steps, and never a word more than that."""
    model = exact(KINDS[name])
    source, lengths, target = torch.randint(4, 9, (16, 3)), torch.full((16,), 3), torch.randint(4, 9, (16, 16))
    changed = target.clone()
    changed[:, 1] = target[:, 1] % 5 + 4
    assert differing(*(model(reading(source, lengths), tokens) for tokens in (target, changed))) == list(range(1, 2 + reach))
    step, state = model.start(model.encode(reading(source, lengths)))
    sizes = [history.shape for history in state.histories]
    assert sum(shape[1] for shape in sizes) == reach
    for tokens in target.unbind(1)[:2]:
        state = step(tokens, state).state
        assert [history.shape for history in state.histories] == sizes


def test_the_encoder_learns_from_the_mean_of_the_attentions():
    """What reaches z_j is divided by the number of layers that read it; what reaches e_j is not: slopes by differences."""
    model = exact(KINDS["convs2s"])
    memory, layers = model.encoder(SOURCE, LENGTHS), len(model.decoder.blocks)

    def loss(states):
        prepared = model.decoder.prepare(memory._replace(states=states))
        return model.decoder.logits(model.decoder(TARGET, prepared)).square().sum()

    states = memory.states.detach().requires_grad_()
    slope = torch.autograd.grad(loss(states), states)[0]
    for part, divisor in ((slice(0, 6), layers), (slice(6, 12), 1)):
        move = torch.zeros_like(slope)
        move[..., part] = 1e-6 * torch.randn(*slope.shape[:2], 6)
        with torch.no_grad():
            change = (loss(states + move) - loss(states - move)) / 2
        torch.testing.assert_close((slope * move).sum() * divisor, change, rtol=1e-5, atol=0)


def test_places_beyond_the_longest_are_refused_with_the_key():
    model = exact(convolutional({**SIZES, "longest": 4, "layers": 1}, {**SIZES, "longest": 3, "layers": 1}))
    with pytest.raises(UserError, match="longest"):
        model.encoder(torch.full((1, 5), 4), torch.tensor([5]))
    memory = model.encode(reading(SOURCE, LENGTHS))
    with pytest.raises(UserError, match="longest"):
        model.decoder(TARGET, memory)
    with pytest.raises(UserError, match="longest"):
        stepped(model, SOURCE, LENGTHS, TARGET)


def test_layers_are_a_number_or_a_list():
    model = exact(KINDS["convs2s-mixed"])
    assert [(block.size, block.convolution.width) for block in model.encoder.blocks] == [(4, 3), (4, 3), (8, 1), (6, 2)]
    model = exact(KINDS["convs2s"])
    assert [(block.size, block.convolution.width) for block in model.decoder.blocks] == [(8, 3)] * 3


def test_a_memory_of_another_size_is_refused():
    with pytest.raises(UserError, match=r"model\.encoder\.embedding_size=6"):
        small(convolutional({**SIZES, "embedding_size": 8}, SIZES))


@pytest.mark.parametrize("kind", ["convs2s", "bytenet"])
def test_dropout_acts_in_training_only(kind):
    model = build(configure(KINDS[kind]), 9, 9)
    assert not torch.allclose(model(reading(SOURCE, LENGTHS), TARGET), model(reading(SOURCE, LENGTHS), TARGET))
    model.eval()
    assert model(reading(SOURCE, LENGTHS), TARGET).equal(model(reading(SOURCE, LENGTHS), TARGET))


@pytest.mark.parametrize("kind", ["convs2s", "bytenet"])
def test_the_loss_is_the_cross_entropy_of_the_logits(kind):
    model = small(KINDS[kind])
    steps = model.teacher_forced(reading(SOURCE, LENGTHS), TARGET)
    expected = torch.nn.functional.cross_entropy(
        model.decoder.logits(steps).flatten(0, 1), TARGET.flatten(), reduction="sum", label_smoothing=0.1
    )
    torch.testing.assert_close(model.decoder.loss(steps, TARGET, 0.1), expected)
