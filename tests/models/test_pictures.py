"""The laws for models that read images: every way of reading them before every encoder, and every decoder behind."""

import pytest
import torch
from citizens import BODIES
from kinds import KINDS
from test_kinds import quiet
from tiny import FEW, VOCABULARY

from regard.data.batching import Batch, Column
from regard.data.fields import Shape
from regard.errors import RecipeError
from regard.models import build, configure
from regard.models.decoders import DECODERS as ALL_DECODERS
from regard.models.encoders import ENCODERS
from regard.models.inputs import INPUTS
from regard.nn.grid import GRID_NORMS, GRID_POSITIONS
from regard.nn.state import repeat_rows

IMAGE = Shape("image", (6, 8, 3))
READ = [name for name, one in INPUTS.items() if "image" in one.fields]
SMALL = {"kind": "convolutions", "channels": [4, 6], "strides": [2, [1, 2]]}
WAYS = {
    "patches": {"kind": "patches", "side": 2},
    "convolutions": SMALL,
    "deep": {**SMALL, "depth": 2, "norm": "rms", "positions": "sinusoid"},
    "rows": {**SMALL, "row_cell": "lstm", "positions": "none"},
}
TARGET = torch.tensor([[2, 5, 6, 7, 8], [2, 4, 4, 8, 5], [2, 6, 8, 5, 7]])
DECODERS = {
    **{f"recurrent-{name}": {"kind": "recurrent", "embedding_size": 5, "hidden_size": 8, **FEW[name]} for name in FEW},
    "recurrent-gated": {"kind": "recurrent", "embedding_size": 5, "hidden_size": 8, "context": "gated"},
    **{name: one["decoder"] for name, one in KINDS.items() if one.get("decoder", {}).get("start_from", "encoder") != "encoder"},
    **{name: one["decoder"] for name, one in KINDS.items() if "decoder" in one and "start_from" not in one["decoder"]},
}


def images():
    return torch.randint(0, 256, (3, *IMAGE.sizes), generator=torch.Generator().manual_seed(5), dtype=torch.uint8)


def reader(encoder, way, decoder="recurrent-gated"):
    body = {**BODIES[encoder], "input": WAYS[way]}
    size = 6 if DECODERS[decoder].get("kind") == "convolutional" else 8  # even, as rows are read both ways, each by half
    body |= {"embedding_size": size} if "embedding_size" in body else {}
    made = build(configure({"encoder": body, "decoder": DECODERS[decoder]}), IMAGE, VOCABULARY).eval()
    for name, parameter in made.named_parameters():
        if "norm" in name:
            parameter.data.add_(0.2 * torch.randn_like(parameter))
    return made


def batch(values):
    return Batch({"source": Column(values, times=0)})


def stepped(model, values, target):
    step, state = model.start(model.encode(batch(values)))
    logits = []
    for tokens in target.unbind(1):
        one = step(tokens, state)
        state = one.state
        logits.append(one.logits)
    return torch.stack(logits, 1)


PARTNER = {"convolutional": "convolutional"}  # a decoder that reads what its own encoder writes only
CASES = [(PARTNER.get(one.get("kind"), "identity"), "convolutions", name) for name, one in DECODERS.items()]
CASES += [(encoder, way, "recurrent-gated") for encoder in ENCODERS for way in WAYS]


def test_every_way_of_reading_images_is_here():
    assert {way["kind"] for way in WAYS.values()} == set(READ)
    assert {section.get("kind", "recurrent") for section in DECODERS.values()} == set(ALL_DECODERS)


@pytest.mark.parametrize(("encoder", "way", "decoder"), CASES)
def test_stepping_equals_teacher_forcing(encoder, way, decoder):
    model, values = reader(encoder, way, decoder), images()
    torch.testing.assert_close(model(batch(values), TARGET), stepped(model, values, TARGET), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("encoder", "way", "decoder"), CASES)
def test_an_image_is_read_alike_alone_and_in_any_batch(encoder, way, decoder):
    model, values = reader(encoder, way, decoder), images()
    together = model(batch(values), TARGET)
    for row in range(len(values)):
        alone = model(batch(values[row : row + 1]), TARGET[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(batch(values.flip(0)), TARGET.flip(0)).flip(0), together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("encoder", "way", "decoder"), CASES)
def test_every_parameter_learns(encoder, way, decoder):
    model = reader(encoder, way, decoder).train()
    model(batch(images()), TARGET).square().sum().backward()
    idle = [name for name, parameter in model.named_parameters() if parameter.grad is None or parameter.grad.eq(0).all()]
    assert not idle


@pytest.mark.parametrize(("encoder", "way", "decoder"), CASES[:6])
def test_hypotheses_of_one_image_share_its_memory(encoder, way, decoder):
    model, values, tokens = reader(encoder, way, decoder), images(), torch.tensor([4, 5, 6, 7, 8, 4])
    step, state = model.start(model.encode(batch(values)))
    other, other_state = model.start(model.encode(batch(values.repeat_interleave(2, 0))))
    torch.testing.assert_close(step(tokens, repeat_rows(state, 2)).logits, other(tokens, other_state).logits)


@pytest.mark.parametrize("norm", GRID_NORMS)
@pytest.mark.parametrize("way", [*GRID_POSITIONS, "rows"])
def test_each_cell_is_a_state_over_its_own_pixels(way, norm):
    """What changes in the last corner of an image changes the state there; without rows, and far from it, nothing else, but for
    what a norm over the whole picture tells of it."""
    config = {**SMALL, **({"row_cell": "gru"} if way == "rows" else {"positions": way}), "norm": norm, "channels": [16, 16]}
    section = {**BODIES["identity"], "input": config, "embedding_size": 8}
    encoder = ENCODERS["identity"](ENCODERS["identity"].Config(**section), Shape("image", (24, 32, 3))).eval()
    assert (encoder.embed.grid, encoder.embed.cell) == ((12, 8), (2, 4))
    values = torch.randint(0, 256, (1, 24, 32, 3), dtype=torch.uint8)
    changed = values.clone()
    changed[:, -2:, -4:] = 255 - changed[:, -2:, -4:]
    moved = (encoder(changed).states - encoder(values).states).abs().sum(-1).view(12, 8)
    assert moved[-1, -1] > 1e-4
    assert moved[0].eq(0).all() == (norm != "group")
    assert (moved[-1, 0] > 0) == (way == "rows" or norm == "group")
    assert moved[-1, -1] > moved[0, 0]


def test_the_gate_follows_its_equation():
    """β_1 = σ(w s_0 + b) and the cell reads β_1 c_1 (Xu et al. 2015, section 4.2.1)."""
    model, values = reader("identity", "convolutions"), images()
    memory, decoder = model.encode(batch(values)), model.decoder
    state, words = decoder.start(memory), torch.tensor([2, 5, 6])
    one = decoder.step(words, memory, state)
    start = state.cells[0].hidden
    gate = torch.sigmoid(start @ decoder.gate.weight.T + decoder.gate.bias)
    context = gate * torch.einsum("bhs,bsd->bd", one.weights, memory.states)
    cell = decoder.cells[0]
    shares = cell.project(decoder.embed(words)) + decoder.from_fed(context)
    hidden = cell.bind(None)(shares, state.cells[0]).hidden
    torch.testing.assert_close(one.state.cells[0].hidden, hidden)
    known = torch.tanh(decoder.join(torch.cat([hidden, context], dim=-1)))
    torch.testing.assert_close(one.logits, decoder.output(known))
    assert (gate - 1).abs().min() > 0.1


def test_what_does_not_fit_is_said():
    with pytest.raises(RecipeError, match="2 blocks \\(channels\\) and 1 strides: give one for each block"):
        configure({"encoder": {"kind": "identity", "input": {**SMALL, "strides": [2]}}})
    section = {"encoder": {"kind": "identity", "embedding_size": 5, "input": WAYS["rows"]}}
    with pytest.raises(RecipeError, match="row_cell gives half of each vector a direction: 5 elements are odd"):
        build(configure(section), IMAGE, VOCABULARY)


@pytest.mark.gpu
@pytest.mark.parametrize(("encoder", "way", "decoder"), CASES)
def test_a_gpu_computes_what_a_cpu_computes(encoder, way, decoder):
    if "hard" in decoder or "gumbel" in decoder:
        pytest.skip("draws differ between devices")
    here, there, values = reader(encoder, way, decoder), reader(encoder, way, decoder), images()
    there.load_state_dict(here.state_dict())
    there = there.cuda()
    quiet(here)  # cuDNN has no way back but in training
    quiet(there)
    for model, device in ((here, "cpu"), (there, "cuda")):
        model(batch(values.to(device)), TARGET.to(device)).square().sum().backward()
    largest = max(ours.grad.abs().max() for ours in here.parameters() if ours.grad is not None)
    for (part, ours), theirs in zip(here.named_parameters(), there.parameters(), strict=True):
        if ours.grad is None:  # experts that nothing was sent to
            assert theirs.grad is None
            continue
        # of a key's bias under a softmax, or an offset before a norm over batches, the gradient is 0 but for rounding
        scale = ours.grad.abs().max().clamp(min=1e-3 * largest)
        torch.testing.assert_close(theirs.grad.cpu() / scale, ours.grad / scale, rtol=5e-3, atol=5e-4, msg=part)
