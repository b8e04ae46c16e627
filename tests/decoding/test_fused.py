"""The decoder that a GPU steps by few kernels, by the formulas they follow: the outputs of searches whose tensors grow."""

import pytest
import torch
from test_static import ALLOWED, KINDS, Played, in_use, reader_of_images, same, same_of_images

from regard.decoding import slots, strides
from regard.engine.device import device_problem
from regard.nn.attention import SCOPES
from regard.nn.kernels.steps import early


@pytest.fixture(autouse=True)
def fused(monkeypatch):
    monkeypatch.setattr(strides, "here", lambda like: True)


def ours(name):
    trained = in_use(name)
    assert device_problem(trained.model.decoder) is None
    return trained


@pytest.mark.parametrize("name", [name for name in KINDS if name.startswith("transformer")])
@pytest.mark.parametrize("beam", [1, 4])
def test_every_transformer_writes_the_same(name, beam):
    same(in_use(name), beam=beam)


def test_it_takes_what_it_says():
    taken = {name for name in KINDS if name.startswith("transformer") and device_problem(in_use(name).model.decoder) is None}
    assert "transformer-positions-sinusoid" in taken
    assert not taken & {f"transformer-own-scope-{scope}" for scope in SCOPES if scope not in ("global", "causal")}
    assert len(taken) > 5


@pytest.mark.parametrize("beam", [1, 4, 5])
@pytest.mark.parametrize("changes", [*ALLOWED, {"batch_tokens": 1}], ids=lambda changes: "-".join(map(str, changes)))
def test_every_penalty_and_rule_that_is_allowed(beam, changes):
    same(in_use("transformer-positions-sinusoid"), beam=beam, **changes)


@pytest.mark.parametrize("name", ["layer", "rms"])
@pytest.mark.parametrize("beam", [1, 4])
def test_norms_before_sublayers(name, beam, monkeypatch):
    values = KINDS[f"transformer-norm-{name}-pre"]
    monkeypatch.setitem(
        KINDS, "before", {**values, **{side: {**values[side], "positions": "sinusoid"} for side in ("encoder", "decoder")}}
    )
    same(ours("before"), beam=beam)


def test_groups():
    same(in_use("transformer-positions-sinusoid"), beam=4, groups=2, diversity=0.7)


@pytest.mark.parametrize("beam", [1, 3])
def test_replays_and_weights_that_move(beam, monkeypatch):
    """Joined weights are copies, which follow training; those that lie elsewhere make another search."""
    monkeypatch.setattr(slots, "Recorded", Played)
    monkeypatch.setitem(slots.BEHIND, "cpu", 1)
    trained = in_use("transformer-positions-learned")
    for _ in range(4):
        same(trained, beam=beam)
        for parameter in trained.model.parameters():
            parameter.data.mul_(0.9)
    for parameter in trained.model.parameters():
        parameter.data = parameter.data * 0.9
    same(trained, beam=beam)


@pytest.mark.parametrize("beam", [1, 3])
def test_caches_get_more_room(beam):
    trained = in_use("transformer-positions-sinusoid")
    trained.model.decoder.output.weight.data[3] = -5.0  # END is not written soon
    same(trained, ["ab", "c", "abcde"], beam=beam, min_length=66, max_length=70, max_ratio=100.0)


def test_not_a_number_is_an_error():
    from regard.errors import UserError

    trained = in_use("transformer-positions-sinusoid")
    trained.model.decoder.stack.layers[0].feedforward.down.weight.data[:] = float("nan")
    for beam in (1, 3):
        with pytest.raises(UserError, match="not-a-number"):
            trained.search("ab", cache="static", beam=beam)


def test_a_step_is_the_modules_step():
    """Logits of three words, one after the other, in float64."""
    from regard.engine.device import DeviceDecoder

    trained = ours("transformer-positions-sinusoid")
    memory = trained.model.encode(trained.inputs(trained.encoded("source", ["abca", "b"])[0]))
    decoder, rows = trained.model.decoder, torch.tensor([4, 5])
    own = DeviceDecoder(decoder, 8)
    step, state = own.bind(memory), own.start(memory, 8, several=False)
    exact, before = decoder.start(memory), None
    move = decoder.stepper(memory)
    before = exact
    with torch.inference_mode():
        for _ in range(3):
            one, other = step(rows, state), move(rows, before)
            torch.testing.assert_close(one.logits, other.logits)
            state = one.state._replace(places=one.state.places + 1)
            before, rows = other.state, other.logits.argmax(1)


@pytest.mark.parametrize("beam", [1, 5])
def test_long_outputs_of_images(beam):
    trained, images = reader_of_images()
    assert max(same_of_images(trained, images, beam=beam)) == 120
    assert trained.slotted.strides.fused is not None


def test_few_rows_are_launched_early_where_a_gpu_can(monkeypatch):
    assert not early.early(1)["EARLY"]
    monkeypatch.setattr(early, "able", lambda: True)
    assert early.early(8) == {"EARLY": True, "launch_pdl": True}
    assert early.early(9) == {"EARLY": False}
