"""The kernels of additive attention against the plain formula in double precision: values, levels and all gradients."""

import pytest
import torch
from paths import far

from regard.nn.kernels.attention.additive import additive_attention, applies
from regard.nn.kernels.attention.additive_plan import WORKSPACE, Sizes

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}  # of a norm: float32, or 8 or 11 bits of a number
INPUTS = ("query", "keys", "score_vector", "values")


def plain(query, keys, score_vector, values, visible=None, first=None, last=None):
    """e_ij = v · tanh(q_i + k_j), a softmax over what is seen, and a sum."""
    scores = (torch.tanh(query[:, :, :, None] + keys[:, :, None]) * score_vector[:, None, None]).sum(-1)
    seen, key = torch.ones_like(scores, dtype=torch.bool), torch.arange(keys.shape[2], device=keys.device)
    for limit in (
        None if visible is None else visible[:, None, None],
        None if first is None else key >= first[..., None],
        None if last is None else key <= last[..., None],
    ):
        seen = seen if limit is None else seen & limit
    level = scores.masked_fill(~seen, -torch.inf).logsumexp(-1)
    weights = torch.where(seen, torch.exp(scores - level.masked_fill(level.isinf(), 0.0)[..., None]), 0.0)
    return weights @ values, level


class Trial:
    """Inputs with a random gradient of the context, for the kernels and for the plain formula."""

    def __init__(self, shape, dtype=torch.float32, limited=False, device="cpu"):
        batch, heads, target, source, size, value = shape
        sizes = [(batch, heads, target, size), (batch, heads, source, size), (heads, size), (batch, heads, source, value)]
        self.inputs = [torch.randn(one, device=device).to(dtype) for one in sizes]
        self.back = torch.randn(batch, heads, target, value, device=device).to(dtype)
        self.limits = self.some_limits(batch, heads, target, source, device) if limited else (None, None, None)

    def some_limits(self, batch, heads, target, source, device):
        """The first sentence sees nothing; some queries have empty ranges, or ones that go beyond the ends."""
        visible = torch.rand(batch, source, device=device) < 0.7
        visible[0] = False
        first = torch.randint(-2, source + 1, (batch, heads, target), device=device)
        return visible, first, first + torch.randint(-2, source + 1, (batch, 1, target), device=device)

    def results(self, attention, dtype=None):
        leaves = [one.detach().to(dtype or one.dtype).requires_grad_() for one in self.inputs]
        context, level = attention(*leaves, *self.limits)
        gradients = torch.autograd.grad(context, leaves, self.back.to(context.dtype))
        seen = level.isfinite()
        found = {"context": context, "level": level.masked_fill(~seen, 0.0), "seen": seen.float()}
        return found | {f"gradient of {name}": one for name, one in zip(INPUTS, gradients, strict=True)}

    def wrong(self, tolerance=None):
        """What the kernels have not right."""
        ours, kind = self.results(additive_attention), self.inputs[-1].dtype
        assert (ours["context"].dtype, ours["level"].dtype) == (kind, torch.float32)
        return far(ours, self.results(plain, torch.float64), tolerance or TOLERANCE[kind])


def saturate(trial, reach):
    """Every |q| and |k| is `reach`, or a little less: half of the pairs cancel, and half are doubled."""
    query, keys = trial.inputs[:2]
    for one in (query, keys):
        one.copy_(torch.randn_like(one).sign() * reach - torch.rand_like(one) * min(1.0, reach / 4))
    return trial


REACHES = [5.4, 10.9, 12.0, 90.0]  # four reciprocals in one, two in one, and the plain exponential of each pair


@pytest.mark.parametrize("shape", [(1, 1), (5, 17), (64, 64), (65, 1000), (512, 512), (8192, 8192), (3, 10**6), (100, 10**6)])
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_chunks_cover_every_row_once_within_the_workspace(batch, shape):
    sizes = Sizes(batch, 3, *shape, 5, 5)
    covered = torch.zeros(3 * batch, sizes.queries, dtype=torch.int32)
    for origin, sequences, begin, rows in sizes.chunks():
        assert (sequences, rows) <= sizes.room
        assert 4 * sequences * rows * sizes.keys <= WORKSPACE or (sequences, rows) == (1, sizes.tile)
        assert rows % sizes.tile == begin % sizes.tile == 0
        covered[origin : origin + sequences, begin : begin + rows] += 1
    assert covered.eq(1).all()
    assert sizes.queries - sizes.tile < sizes.target <= sizes.queries
    assert sizes.in_parts == (len({chunk.begin for chunk in sizes.chunks()}) > 1)


def test_without_a_gpu_and_without_the_interpreter_they_do_not_apply():
    inputs = Trial((1, 1, 2, 2, 2, 2)).inputs
    assert not applies(inputs[0], inputs[1], inputs[3])


# What follows needs a GPU. Each (size, kind of number, limited or not) is compiled anew, which takes seconds.

SHAPES = [(1, 1, 1, 1, 5, 1), (3, 2, 17, 33, 64, 33), (2, 1, 33, 17, 512, 300), (2, 1, 130, 200, 64, 64)]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients_on_a_gpu(shape, dtype):
    assert not Trial(shape, dtype, limited=shape[2] > 1, device="cuda").wrong()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_without_limits_on_a_gpu(dtype):
    assert not Trial(SHAPES[3], dtype, device="cuda").wrong()


@pytest.mark.gpu
@pytest.mark.parametrize("reach", REACHES)
def test_saturation_on_a_gpu(reach):
    assert not saturate(Trial(SHAPES[3], device="cuda"), reach).wrong(1e-4)  # float32 itself has 1e-5 of 90 - 89.99


@pytest.mark.gpu
def test_a_sequence_of_large_numbers_leaves_the_others_alone():
    trial = Trial((3, 2, 130, 200, 64, 64), device="cuda")
    before = trial.results(additive_attention)
    trial.inputs[0][1, 1] *= 50
    after = trial.results(additive_attention)
    for what in ("context", "level", "gradient of query", "gradient of keys", "gradient of values"):
        assert before[what][[0, 2]].equal(after[what][[0, 2]])
        assert before[what][1, 0].equal(after[what][1, 0])
    assert not trial.wrong(1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_runs_are_the_same_to_the_last_bit(dtype):
    trial = Trial(SHAPES[3], dtype, limited=True, device="cuda")
    first, second = trial.results(additive_attention), trial.results(additive_attention)
    assert [what for what in first if not first[what].equal(second[what])] == []


def peak_of(target):
    trial = Trial((1, 1, target, target, 64, 64), torch.bfloat16, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    trial.results(additive_attention)
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.gpu
def test_memory_grows_with_the_length_and_not_with_its_square():
    """4096² scores fill the workspace, so from there on its size does not change."""
    peak_of(64)
    once, twice, four_times = map(peak_of, (4096, 8192, 16384))
    assert four_times - twice < 2.05 * (twice - once)  # a [target, source] tensor would make it 4
    assert four_times < 4 * 16384**2
