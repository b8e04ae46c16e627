"""Additive attention in one call against the same attention as it was trained."""

import pytest
import torch

from regard.engine import native
from regard.engine.products import PRECISIONS
from regard.engine.recurrent import FusedAttention, with_products
from regard.nn.attention import Attention

pytestmark = pytest.mark.skipif(native.library() is None, reason="no compiler, or a processor without AVX512-VNNI")
FUSED = {
    "additive": {}, "concat": {"score": "concat"}, "biased": {"bias": True}, "temperature": {"temperature": 0.4},
    "heads": {"heads": 3, "size": 51}, "heads-of-their-own-values": {"heads": 3, "size": 9, "values": 63},
}  # fmt: skip
OTHERS = {
    "covered": {"coverage": True}, "bounded": {"scope": "local_m"}, "hard": {"selection": "hard"}, "dot": {"score": "scaled"},
    "relu": {"score": "network", "activation": "relu"},
}  # fmt: skip


def both(query, memory, **given):
    plain = Attention(query, memory, **given).requires_grad_(False).eval()
    for parameter in plain.parameters():
        parameter.normal_(0, 0.5)
    fused = with_products(plain, PRECISIONS["float32"])
    assert type(fused) is FusedAttention
    return plain, fused


def steps(attention, memory, visible, queries):
    prepared = attention.prepare(memory, visible)
    step, state = attention.bind(prepared), attention.start(prepared)
    rows = torch.arange(len(memory)).repeat_interleave(len(queries[0]) // len(memory))
    state = type(state)(*(one[rows] for one in state))
    found = []
    for query in queries:
        found.append(step(query, state))
        state = found[-1].attention_state
    return found


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize(("batch", "width", "source", "padded"), [(1, 1, 1, False), (3, 1, 5, True), (2, 4, 37, True)])
@torch.inference_mode()
def test_one_call_reads_what_attention_reads(name, batch, width, source, padded, monkeypatch):
    plain, fused = both(12, 70, **FUSED[name])
    memory, queries = torch.randn(batch, source, 70), torch.randn(3, batch * width, 12)
    visible = torch.arange(source) < torch.randint(1, source + 1, (batch, 1)) if padded else None
    expected, calls = steps(plain, memory, visible, queries), []
    monkeypatch.setattr(native, "attend", lambda *given, attend=native.attend: calls.append(1) or attend(*given))
    found = steps(fused, memory, visible, queries)
    assert len(calls) == 3
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.context, other.context, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(one.weights, other.weights, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", OTHERS)
@torch.inference_mode()
def test_what_it_does_not_have_goes_as_before(name, monkeypatch):
    plain, fused = both(12, 12, **OTHERS[name])
    monkeypatch.setattr(native, "attend", lambda *_: pytest.fail("one call"))
    given = torch.randn(2, 7, 12), None, torch.randn(2, 4, 12)
    for one, other in zip(steps(fused, *given), steps(plain, *given), strict=True):
        torch.testing.assert_close(one.context, other.context)


@torch.inference_mode()
def test_numbers_that_exponentials_do_not_hold(monkeypatch):
    """Queries may be of any size; keys beyond 20 are compared as before. Who sees nothing reads nothing."""
    plain, fused = both(8, 8)
    memory, queries = torch.randn(2, 6, 8), torch.randn(2, 2, 8) * torch.tensor([1e3, 1e-30])[:, None, None]
    visible = torch.tensor([[False] * 6, [True] * 6])
    for scale in (1, 100):
        given = memory * scale, visible, queries
        for one, other in zip(steps(fused, *given), steps(plain, *given), strict=True):
            torch.testing.assert_close(one.context, other.context, atol=1e-4, rtol=1e-4)
            assert one.context[0].eq(0).all()
