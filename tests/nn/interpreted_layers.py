"""The kernels of a Transformer's layers under Triton's interpreter: test_interpreted.py runs this file with TRITON_INTERPRET=1.

In float32 queries come 16 at a time, so that 33 of them are three blocks, the last nearly empty.
"""

import os

import pytest
import torch
from test_layer_kernels import PHI, Activated, Attention, Joined, distance, fused_and_exact

from regard.nn.attention import attention as whole_attention
from regard.nn.attention import self_attention as own
from regard.nn.kernels.attention import short
from regard.nn.kernels.layers import activation, norm
from regard.nn.kernels.random import Seed
from regard.nn.positions import POSITIONS

assert os.environ.get("TRITON_INTERPRET") == "1"

PATHS = "short", "plain"
ALL = {"masked": True, "limited": 2, "causal": True}
SHAPES = [(2, 2, 1, 1, 5, 3), (2, 2, 17, 9, 7, 20), (2, 2, 33, 17, 16, 16), (1, 2, 5, 33, 48, 33)]


@pytest.mark.parametrize("scope", [{}, ALL])
@pytest.mark.parametrize("shape", SHAPES)
def test_short_attention_is_the_formula(shape, scope):
    trial = Attention(shape, **scope)
    assert short.applies(*trial.tensors)
    assert trial.distance() < 1e-5


@pytest.mark.parametrize("scope", [{"masked": True}, {"limited": 1}, {"causal": True}])
def test_one_limit_alone(scope):
    assert Attention((3, 2, 9, 7, 4, 5), **scope).distance() < 1e-5


def test_large_scores():
    assert Attention((1, 1, 5, 9, 4, 3), spread=100.0).distance() < 1e-4


def test_whole_sentences_in_one_block_and_several_heads_a_program(monkeypatch):
    """As numbers of 16 bits are multiplied."""
    monkeypatch.setattr(short, "plan_of", lambda target, *rest: short.ShortPlan(target, 2, 4, None))
    assert Attention((2, 4, 17, 9, 7, 20), masked=True, limited=4).distance() < 1e-5


@pytest.mark.parametrize("asked", [None, 5])
@pytest.mark.parametrize("scope", [{}, ALL])
def test_attention_of_a_fused_tensor(scope, asked):
    ours, exact = fused_and_exact((2, 2, 17, 7), asked=asked, **scope)
    assert distance(ours, exact) < 1e-5
    assert all(one.is_contiguous() for one in ours[:2])


def test_cross_attention_reads_keys_and_values_of_one_product():
    """As a layer uses it; and says the same as the plain path."""
    torch.manual_seed(1)
    layer = whole_attention.Attention(8, 8, score="projected", heads=2, values=8, bias=True)
    query, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8, requires_grad=True)
    visible = torch.arange(5) < torch.tensor([5, 2])[:, None]
    found = []
    for path in PATHS:
        prepared = layer.prepare(memory, visible)
        assert prepared.fused.shape == (2, 5, 2, 2, 4)
        read = layer(query, prepared, path=path).context
        leaves = [memory, *layer.parameters()]
        found.append([read, *torch.autograd.grad(read.square().sum(), leaves)])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["rotary", "none"])
def test_keys_that_positions_turn_are_not_read_where_they_lay(name):
    torch.manual_seed(1)
    layer = own.SelfAttention(whole_attention.Attention(8, 8, score="projected", heads=2, values=8))
    states, where = torch.randn(2, 5, 8), whole_attention.QueryPositions(positions=POSITIONS[name](8, 2))
    projected = layer.project(states, None, where)
    reads = (layer.attention.read(projected.queries, states, projected.prepared, path=path, where=where) for path in PATHS)
    torch.testing.assert_close(*(read.context for read in reads), rtol=1e-4, atol=1e-6)


def test_time_comes_before_heads_in_memory():
    context, *gradients = Attention((2, 3, 5, 7, 4, 6)).results()
    assert all(one.transpose(1, 2).is_contiguous() for one in (context, *gradients))


def test_parts_of_one_product_and_gradients_that_are_no_rows():
    """Views are read where they lie; values of all heads may be one; sum() gives a gradient without strides."""
    product = torch.randn(2, 5, 3, 2, 4)
    query, keys, values = short.sides(product)
    values, gradients = values[:, :1].expand(-1, 2, -1, -1), []
    for kind in (torch.float32, torch.float64):
        leaves = [part.to(kind).detach().requires_grad_() for part in (query, keys, values)]
        found = short.short_attention(*leaves, scale=0.5)
        gradients.append([found, *torch.autograd.grad(found.sum(), leaves)])
    assert not short.applies(*leaves)
    assert distance(*gradients) < 1e-5


def test_a_query_that_sees_nothing_gives_and_gets_nothing():
    context, by_query, by_keys, by_values = Attention((3, 2, 5, 7, 4, 6), masked=True).results()
    for part in (context, by_query, by_keys, by_values):
        assert part[0].eq(0).all()
        assert part[1:].ne(0).any()


def test_what_is_hidden_reaches_nothing():
    trial = Attention((3, 2, 5, 7, 4, 6), masked=True)
    before = trial.results()
    for part in trial.tensors[1:]:
        part.masked_fill_(~trial.scope["visible"][:, None, :, None], float("nan"))
    assert all(torch.equal(one, other) for one, other in zip(trial.results(), before, strict=True))


@pytest.mark.parametrize("shape", [(0, 2, 3, 3, 4, 4), (2, 2, 0, 3, 4, 4), (2, 2, 3, 0, 4, 4)])
def test_of_nothing_comes_nothing(shape):
    assert all(one.eq(0).all() for one in Attention(shape).results())


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("shape", [(1, 7), (3, 17, 48), (20, 130)])
def test_add_norm_is_the_formula(shape, kind, rate):
    """One row; several programs, and several rounds of each."""
    assert Joined(shape).distance(rate, kind) < 1e-5


@pytest.mark.parametrize("without", ["residual", "bias", "offset", "total", "normed"])
def test_add_norm_without_one_of_its_parts_or_gradients(without):
    assert Joined((5, 7), without=(without,)).distance(0.3) < 1e-5


def test_add_norm_alone():
    assert Joined((5, 7), without=("residual", "bias", "offset", "total")).distance() < 1e-5


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("name", PHI)
def test_activations_are_the_formula(name, rate):
    for shape in ((1, 7), (3, 17, 48), (9, 130)):
        assert Activated(shape, name).distance(rate) < 1e-5
    assert Activated((5, 7), name, biased=False).distance(rate) < 1e-5


@pytest.mark.parametrize("name", PHI)
def test_columns_of_several_programs(name, monkeypatch):
    monkeypatch.setattr(activation, "COLUMNS", 16)
    assert Activated((5, 37), name).distance(0.3) < 1e-5


def test_rows_of_a_wider_tensor():
    wide, weight = torch.randn(5, 3, 20), torch.ones(7)
    for function in (
        lambda x: norm.add_norm(x, x, None, weight, None),
        lambda x: [activation.activate(x, weight, kind="gelu")],
    ):
        assert all(map(torch.equal, function(wide[..., 4:11]), function(wide[..., 4:11].contiguous())))


def masks(rate=0.25, rows=64, width=96, **options):
    ones = torch.ones(rows, width)
    return norm.add_norm(ones, None, None, ones[0], None, rate=rate, **options)[0].gt(0)


def test_draws_have_their_rate_and_do_not_know_each_other():
    """Within 5 deviations: of all, of each of the 8 draws of a call of Philox, of pairs, over columns, rows and calls."""
    seed = torch.tensor([2**61 + 7])
    kept, other = masks(seed=Seed(seed)), masks(seed=Seed(seed, 1))

    def usual(hits, chance):
        return abs(hits.double().mean() - chance) < 5 * (chance * (1 - chance) / hits.numel()) ** 0.5

    assert usual(kept, 0.75)
    assert all(usual(kept[:, lane::8], 0.75) for lane in range(8))
    for step in range(1, 9):
        assert usual(kept[:, step:] & kept[:, :-step], 0.75**2)
        assert usual(kept[step:] & kept[:-step], 0.75**2)
    assert usual(kept & other, 0.75**2)
    assert usual(kept & masks(seed=Seed(seed + 1)), 0.75**2)
    assert usual(masks(rate=0.1), 0.9)


def test_columns_of_several_programs_draw_on_their_own(monkeypatch):
    monkeypatch.setattr(activation, "COLUMNS", 16)
    left, right = activation.activate(torch.ones(64, 32), None, rate=0.5).gt(0).chunk(2, dim=1)
    assert 0.4 < left.eq(right).double().mean() < 0.6


def test_what_is_no_number_stays_so():
    for name in PHI:
        assert activation.activate(torch.full((1, 4), float("nan")), None, kind=name).isnan().all()


def test_draws_are_torchs_and_there_are_none_at_rate_0():
    torch.manual_seed(1)
    first = masks()
    assert not torch.equal(first, masks())
    torch.manual_seed(1)
    assert torch.equal(first, masks())
    state = torch.get_rng_state()
    assert masks(rate=0.0).all()
    assert torch.equal(state, torch.get_rng_state())
    assert not masks(rate=1.0).any()


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_two_readers_of_what_was_normed_give_back_the_sum(kind):
    """Either alone, and both: as float64's layer norm says."""
    tensors = [torch.randn(5, 48) for _ in range(2)] + [torch.randn(48) for _ in range(3)]
    slopes = [torch.randn(5, 48) for _ in range(2)]
    for uses in ((0,), (1,), (0, 1)):
        ours = [tensor.clone().requires_grad_() for tensor in tensors]
        exact = [tensor.double().requires_grad_() for tensor in tensors]
        two = norm.add_norm_for_two(*ours, kind=kind)
        one = norm.plain_add_norm(*exact, kind=kind)[1]
        for read in two:
            torch.testing.assert_close(read.double(), one, rtol=1e-5, atol=1e-5)
        sum((two[use] * slopes[use]).sum() for use in uses).backward()
        sum((one * slopes[use].double()).sum() for use in uses).backward()
        for tensor, other in zip(ours, exact, strict=True):
            torch.testing.assert_close(tensor.grad.double(), other.grad, rtol=1e-4, atol=1e-5)


def test_lines_are_added_up():
    sums = torch.randn(131, 3, 37)
    torch.testing.assert_close(norm.added(sums), sums.double().sum(0).float(), rtol=1e-5, atol=1e-5)
