"""A step in one call of layers.c against the same layers one after the other, on the same weights."""

import pytest
import torch
from bounded import bounded
from kinds import KINDS, small
from tiny import END, batch
from tiny_transformer import section

from regard.data.batching import reading
from regard.decoding.beam import beam_search
from regard.engine import native
from regard.engine.engines import engine_for
from regard.nn.state import repeat_rows, select_rows
from regard.nn.transformer.feedforward import FEEDFORWARDS
from regard.nn.transformer.norms import NORMS, BatchNorm, LayerNorm

pytestmark = pytest.mark.skipif(native.library() is None, reason="no compiler, or a processor without AVX512-VNNI")
ODD = {"hidden_size": 42, "feedforward_size": 70, "attention": {"heads": 3, "bias": True}}  # multiples of nothing
OWN = {
    **{f"{norm}-{place}": section(norm=norm, norm_place=place) for norm in NORMS for place in ("pre", "post")},
    **{name: section(feedforward=name, **ODD) for name in FEEDFORWARDS},
    "other-heads-across": section({"cross_attention": {"heads": 4}}),
}


def engines(name, precision="int8"):
    """One engine by one call and one by layers. None of their norms is one that changes nothing, nor is its ε."""
    model = small(OWN[name], scale=1.5)
    for part in model.modules():
        if isinstance(part, LayerNorm):
            part.eps = 0.3
        if isinstance(part, BatchNorm):
            part.mean.normal_()
            part.variance.uniform_(4, 16)  # so that states grow from layer to layer by little
        for own in (getattr(part, "weight", None), getattr(part, "offset", None)):
            if own is not None and own.dim() == 1:
                own.data.normal_(1)
    whole, by_layers = (engine_for(model, precision).model for _ in range(2))
    assert whole.decoder.whole is not None, name
    by_layers.decoder.whole = None
    return whole, by_layers


def sources(rows):
    lengths = torch.randint(0, 9, (rows,)).tolist()
    return batch(*[[*torch.randint(4, 9, (length,)).tolist(), END] for length in lengths])


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("rows", [1, 2, 5, 13, 17])
@torch.inference_mode()
def test_one_call_is_what_the_layers_are(name, rows, precision):
    """Where sums are added up in another order an integer may be the next one; most are the same. Rows are re-ordered, dropped
    and doubled, and caches grow."""
    both = []
    given, width = sources(rows), 1 if rows == 5 else 3
    for model in engines(name, precision):
        step, state = model.start(model.encode(reading(*given)))
        both.append((step, repeat_rows(state, width)))
    words, differences = torch.full((rows * width,), 2), []
    for _ in range(4 if rows != 2 else 40):
        (found, expected) = (step(words, state) for step, state in both)
        for side in ("logits", "weights"):
            numbers = getattr(found, side), getattr(expected, side)
            differences.append((numbers[0] - numbers[1]).flatten())
            if precision == "float32":
                most = numbers[1].abs().max().clamp(min=1).item()
                torch.testing.assert_close(*numbers, atol=2e-5 * most, rtol=1e-4)
        torch.testing.assert_close(found.weights.sum(-1), torch.ones_like(found.weights[..., 0]))
        order = torch.arange(rows)[:, None] * width + torch.randint(width, (rows, width))
        order = order.flatten() if width > 1 else torch.arange(rows)
        both = [(both[0][0], select_rows(found.state, order)), (both[1][0], select_rows(expected.state, order))]
        words = torch.randint(4, 9, words.shape)
    apart = torch.cat(differences).abs()
    assert apart.median() < 1e-5
    assert apart.max() < 0.1
    assert (apart > 1e-3).float().mean() < 0.2


@pytest.mark.parametrize("name", list(OWN)[:7:2])
@torch.inference_mode()
def test_searches_find_the_same_in_one_call(name):
    whole, by_layers = engines(name)
    given = sources(7)
    found, expected = (
        beam_search(*bounded(*one.start(one.encode(reading(*given))), given[1] + 3), width=3, end=END)
        for one in (whole, by_layers)
    )
    assert [each[0].tokens for each in found] == [each[0].tokens for each in expected]


@torch.inference_mode()
def test_what_layers_lack_goes_layer_by_layer():
    """Other products, and networks that nobody knows here."""
    model = small(KINDS["transformer-positions-sinusoid"])
    assert engine_for(model, "float32").model.decoder.whole is not None
    assert engine_for(model, "bfloat16").model.decoder.whole is None

    class Odd(type(model.decoder.stack.layers[0].feedforward)):
        pass

    model.decoder.stack.layers[0].feedforward.__class__ = Odd
    assert engine_for(model, "int8").model.decoder.whole is None
