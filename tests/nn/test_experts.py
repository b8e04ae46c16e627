"""Experts against the dense sum over all of them in float64, the load against drawing the noise again, and every path of the
grouped products against the loop."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard.errors import UserError
from regard.nn.kernels.layers.grouped import PATHS, Groups, products
from regard.nn.transformer.experts import Experts, Routing, Scored, fill, probability, share, variation
from regard.nn.transformer.feedforward import FEEDFORWARDS

SIZE, INNER = 8, 12
ACTIVATIONS = {
    "relu": lambda hidden: hidden.clamp(min=0),
    "gelu": lambda hidden: hidden * (1 + torch.erf(hidden / 2**0.5)) / 2,
    "swish": lambda hidden: hidden * torch.sigmoid(hidden),
    "swiglu": lambda hidden: hidden[..., :INNER] * torch.sigmoid(hidden[..., :INNER]) * hidden[..., INNER:],
}


def made(kind=torch.float64, **options):
    """Experts with weights large enough to matter, those of the gate too."""
    experts = Experts(SIZE, INNER, **options).to(kind)
    for parameter in experts.parameters():
        nn.init.normal_(parameter, std=0.7)
    return experts


def dense(experts, rows, scores, activation="relu"):
    """Σ_i G(x)_i E_i(x), all experts computed."""
    up, down = experts.network.up, experts.network.down
    last = scores.sort(dim=1, descending=True).values[:, experts.top_k - 1 : experts.top_k]
    gates = scores.masked_fill(scores < last, float("-inf")).softmax(dim=1)
    hidden = torch.einsum("rs,eis->rei", rows, up.weight) + up.bias
    outputs = torch.einsum("rei,esi->res", ACTIVATIONS[activation](hidden), down.weight) + down.bias
    return torch.einsum("re,res->rs", gates, outputs), gates


def noisy_scores(experts, rows):
    """The scores that a pass with the seed 3 draws."""
    torch.manual_seed(3)
    deviation = torch.log1p((rows @ experts.gate.noise.weight.T).exp())
    return rows @ experts.gate.choose.weight.T + torch.randn(len(rows), experts.num_experts, dtype=rows.dtype) * deviation


def with_seed(experts, *arguments):
    torch.manual_seed(3)
    return experts(*arguments)


def test_every_activation_has_its_formula():
    assert ACTIVATIONS.keys() == FEEDFORWARDS.keys()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("training", [True, False])
def test_the_mixture_is_the_dense_sum_with_all_its_gradients(activation, training):
    experts = made(activation=activation, num_experts=5, top_k=2).train(training)
    rows = torch.randn(7, SIZE, dtype=torch.float64, requires_grad=True)
    scores = noisy_scores(experts, rows) if training else rows @ experts.gate.choose.weight.T
    leaves = [rows, *(p for p in experts.parameters() if training or p is not experts.gate.noise.weight)]
    slope = torch.randn(7, SIZE, dtype=torch.float64)
    fed, oracle = with_seed(experts, rows), dense(experts, rows, scores, activation)[0]
    torch.testing.assert_close(fed.states, oracle)
    for ours, theirs in zip(*(torch.autograd.grad(each, leaves, slope) for each in (fed.states, oracle)), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert (fed.cost is None) is not training


@pytest.mark.parametrize("chosen", [1, 3, 4])
def test_any_number_may_be_chosen_and_rows_may_have_any_shape(chosen):
    experts = made(num_experts=4, top_k=chosen).eval()
    states = torch.randn(2, 3, 5, SIZE, dtype=torch.float64)
    rows = states.view(-1, SIZE)
    expected = dense(experts, rows, rows @ experts.gate.choose.weight.T)[0]
    torch.testing.assert_close(experts(states).states, expected.view_as(states))
    assert experts(states[:0]).states.shape == (0, 3, 5, SIZE)


def test_many_experts_of_which_most_are_idle_have_no_gradients():
    experts = made(num_experts=256, top_k=2)
    fed = with_seed(experts, torch.randn(5, SIZE, dtype=torch.float64))
    fed.states.sum().backward()
    used = experts.network.down.bias.grad.ne(0).any(dim=1)
    assert 2 <= used.sum() <= 10
    for parameter in experts.network.parameters():
        assert parameter.grad[~used].eq(0).all()
        assert parameter.grad[used].flatten(1).ne(0).any(dim=1).all()


def test_alone_in_any_batch_in_any_order_and_beside_padding():
    experts = made(torch.float32, num_experts=16, top_k=2, capacity=0.5).eval()
    states = torch.randn(6, 9, SIZE)
    visible = torch.arange(9) < torch.tensor([9, 4, 1, 9, 7, 2])[:, None]
    together = experts(states, visible).states
    shuffled = torch.randperm(6)
    torch.testing.assert_close(experts(states[shuffled], visible[shuffled]).states, together[shuffled], rtol=1e-6, atol=1e-6)
    for sentence, shown, result in zip(states, visible, together, strict=True):
        torch.testing.assert_close(experts(sentence[shown]).states, result[shown], rtol=1e-6, atol=1e-6)
        assert result[~shown].eq(0).all()
    assert experts.overflowed.tolist() == [0, 0]


def test_padding_reaches_no_result_no_cost_and_no_gradient():
    experts = made(num_experts=4)
    states, visible = torch.randn(5, SIZE, dtype=torch.float64), torch.tensor([True, True, False, True, False])
    results = []
    for filler in (0.0, 9.0):
        experts.zero_grad()
        states[~visible] = filler
        fed = with_seed(experts, states, visible)
        (fed.states.sum() + fed.cost).backward()
        results.append([fed.states.detach(), fed.cost.detach(), *(p.grad.clone() for p in experts.parameters())])
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second)


def test_padding_costs_no_product():
    experts, states = made(torch.float32, num_experts=4).eval(), torch.randn(5, SIZE)
    states[3:] = float("nan")
    fed = experts(states, torch.arange(5) < 3)
    torch.testing.assert_close(fed.states, torch.cat([experts(states[:3]).states, torch.zeros(2, SIZE)]))


def test_the_cost_is_the_papers_formula_with_its_gradients():
    """Importance and load written with loops over rows and experts."""
    experts = made(num_experts=4, top_k=2, balance=0.3)
    rows, visible = torch.randn(6, SIZE, dtype=torch.float64), torch.tensor([True] * 4 + [False, True])
    scores = noisy_scores(experts, rows)
    clean, deviation = rows @ experts.gate.choose.weight.T, functional.softplus(rows @ experts.gate.noise.weight.T)
    load = [torch.zeros((), dtype=torch.float64) for _ in range(4)]
    for row in visible.nonzero().flatten().tolist():
        for expert in range(4):
            others = sorted((scores[row, other] for other in range(4) if other != expert), reverse=True)
            z = (clean[row, expert] - others[experts.top_k - 1]) / deviation[row, expert]
            load[expert] = load[expert] + (1 + torch.erf(z / 2**0.5)) / 2
    importance = dense(experts, rows, scores)[1][visible].sum(dim=0)
    expected = sum(0.3 * side.var(correction=0) / side.mean() ** 2 for side in (importance, torch.stack(load)))
    cost = with_seed(experts, rows, visible).cost
    assert cost.dtype == torch.float32
    assert cost.shape == ()
    torch.testing.assert_close(cost, expected.float())
    gates = list(experts.gate.parameters())
    for ours, theirs in zip(*(torch.autograd.grad(each, gates) for each in (cost, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
        assert ours.ne(0).any()


def test_the_load_is_how_often_noise_drawn_again_chooses_an_expert():
    clean, deviation = torch.randn(3, 5), torch.rand(3, 5) + 0.5
    noisy = clean + torch.randn(3, 5) * deviation
    expected = torch.zeros(3, 5)
    for expert in range(5):
        drawn = noisy.expand(20000, 3, 5).clone()
        drawn[..., expert] = clean[:, expert] + torch.randn(20000, 3) * deviation[:, expert]
        expected[:, expert] = drawn.topk(2).indices.eq(expert).any(dim=-1).float().mean(dim=0)
    torch.testing.assert_close(probability(Scored(noisy, clean, deviation), 2), expected, rtol=0, atol=0.02)


def test_perfect_balance_costs_nothing_and_one_expert_for_all_costs_most():
    torch.testing.assert_close(variation(torch.full((8,), 3.0)), torch.tensor(0.0))
    torch.testing.assert_close(variation(functional.one_hot(torch.tensor(2), 8) * 5.0), torch.tensor(7.0))
    experts = Experts(4, 4, num_experts=4, top_k=1, noise=False, balance=1.0)
    experts.gate.choose.weight.data = torch.eye(4)
    assert experts(torch.eye(4)).cost.item() == 0
    assert experts(torch.eye(4)[:1].expand(4, 4)).cost.item() == 6
    assert experts(torch.eye(4), torch.zeros(4, dtype=torch.bool)).cost.item() == 0


def greedy(scores, seen, limit, chosen, tries):
    """Round by round, row by row."""
    room, got = [limit] * scores.shape[1], [[] for _ in scores]
    ranked = scores.argsort(dim=1, descending=True)[:, :tries].tolist()
    for turn in range(tries):
        for row, experts in enumerate(ranked):
            if seen[row] and len(got[row]) < chosen and room[experts[turn]]:
                room[experts[turn]] -= 1
                got[row].append(experts[turn])
    wanted = sum(sum(seen.tolist()) * [chosen])
    served = sum(len(experts) for experts in got)
    kept = sum(len(set(experts) & set(best[:chosen])) for experts, best in zip(got, ranked, strict=True))
    return got, [served - kept, wanted - served]


@pytest.mark.parametrize("capacity", [0.4, 1.0, 1.5])
def test_capacity_fills_experts_in_turn_and_counts_who_was_over(capacity):
    experts = made(num_experts=12, top_k=2, capacity=capacity)
    experts.gate.choose.weight.data[:2] += 2  # two that everybody likes
    rows, seen = torch.randn(40, SIZE, dtype=torch.float64) + 0.5, torch.rand(40) < 0.8
    scores = noisy_scores(experts, rows)
    limit = math.ceil(capacity * int(seen.sum()) * 2 / 12)
    got, overflowed = greedy(scores, seen, limit, 2, 8)
    expected = torch.zeros(40, SIZE, dtype=torch.float64)
    for row, mine in enumerate(got):
        weights = scores[row, mine].softmax(dim=0)
        for expert, weight in zip(mine, weights, strict=True):
            stacks = (experts.network.up, experts.network.down)
            (w1, b1), (w2, b2) = ((stack.weight[expert], stack.bias[expert]) for stack in stacks)
            expected[row] += weight * ((rows[row] @ w1.T + b1).clamp(min=0) @ w2.T + b2)
    fed = with_seed(experts, rows, seen)
    torch.testing.assert_close(fed.states, expected)
    assert experts.overflowed.tolist() == overflowed
    assert overflowed[0] > 0
    torch.testing.assert_close(fed.cost, with_seed(unlimited(experts), rows, seen).cost)
    with_seed(experts, rows, seen)
    assert experts.overflowed.tolist() == [2 * count for count in overflowed]
    assert "overflowed" not in experts.state_dict()


def unlimited(experts):
    other = made(num_experts=experts.num_experts, top_k=experts.top_k)
    other.load_state_dict(experts.state_dict())
    return other


def test_whom_nobody_serves_passes_by_without_nan():
    scores = torch.randn(3, 4, requires_grad=True)
    served = torch.tensor([[True, True], [False, False], [True, False]])
    weights = share(scores, Routing(torch.tensor([[0, 1], [2, 3], [1, 2]]), served))
    assert weights[1].eq(0).all()
    assert weights[2].tolist() == [1, 0]
    assert torch.autograd.grad(weights.square().sum(), scores)[0].isfinite().all()


def test_no_expert_takes_more_than_it_has_room_for():
    asked = torch.stack([torch.randperm(6) for _ in range(50)])
    granted = fill(asked, torch.ones(50, dtype=torch.bool), torch.arange(6), 2)
    assert torch.bincount(asked[granted], minlength=6).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.fixture
def poisoned_memory():
    """What is not written to is NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("left_over", [0, 7])
def test_every_path_equals_a_product_for_each_group(path, left_over):
    """Group 2 is empty; slots of no group are read by nobody, so they are weighed 0 here."""
    owners = torch.randint(0, 4, (15, 3))
    owners[owners == 2] = 3
    owners.view(-1)[:left_over] = 4
    groups = Groups.sort(owners, 4, 45)
    rows, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((15, 8), (4, 12, 8), (4, 12)))
    results = groups.collect(products(groups.deal(rows), weight, bias, groups, path))
    taken = owners.clamp(max=3)
    expected = torch.einsum("rcoi,ri->rco", weight[taken], rows) + bias[taken]
    slope = torch.randn(15, 3, 12) * (owners < 4)[..., None]
    torch.testing.assert_close(results * (owners < 4)[..., None], expected * (owners < 4)[..., None])
    leaves = [rows, weight, bias]
    for ours, theirs in zip(*(torch.autograd.grad(each, leaves, slope) for each in (results, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_autocast_rounds_the_experts_but_not_the_gate():
    experts, rows = made(torch.float32, num_experts=8), torch.randn(64, SIZE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fed = with_seed(experts, rows)
        clean = experts.gate(rows.bfloat16()).clean
    torch.testing.assert_close(clean, rows.bfloat16().float() @ experts.gate.choose.weight.T)
    assert fed.states.dtype == torch.bfloat16
    plain = with_seed(experts, rows)
    torch.testing.assert_close(fed.cost, plain.cost)
    torch.testing.assert_close(fed.states.float(), plain.states, rtol=0.1, atol=0.1)
    fed.states.float().sum().backward()
    assert experts.network.up.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("noise", [True, False])
def test_a_copy_serves_alike_and_dropout_is_the_networks(noise):
    experts = made(torch.float32, noise=noise, dropout=0.5)
    rows = torch.randn(9, SIZE)
    assert not experts(rows).states.equal(experts(rows).states)
    other = Experts(SIZE, INNER, noise=noise, dropout=0.5)
    other.load_state_dict(experts.state_dict())
    assert other.eval()(rows).states.equal(experts.eval()(rows).states)


def trained(balance):
    """Share of the rows that each of 8 experts serves after 30 updates, from a gate that likes two of them."""
    torch.manual_seed(1)
    experts = Experts(SIZE, INNER, num_experts=8, top_k=2, balance=balance)
    rows, target = torch.randn(96, SIZE), torch.randn(96, SIZE)
    rows[:, 0] = 1.0
    experts.gate.choose.weight.data[:2, 0] = 3.0
    optimizer = torch.optim.Adam(experts.parameters(), lr=0.05)
    for _ in range(30):
        fed = experts(rows)
        optimizer.zero_grad()
        (functional.mse_loss(fed.states, target) + fed.cost).backward()
        optimizer.step()
    chosen = experts.eval().want(experts.gate(rows).noisy, rows[:, 0] > 0).experts
    return torch.bincount(chosen.flatten(), minlength=8) / chosen.numel()


def test_the_balance_loss_spreads_the_rows():
    without, spread = trained(0.0), trained(0.1)
    assert without.max() > 0.4
    assert (without > 0.05).sum() <= 4
    assert spread.max() < 0.3
    assert (spread > 0.05).sum() >= 7


def test_what_cannot_be_is_refused():
    for wrong in ({"top_k": 5}, {"top_k": 0}, {"capacity": 0.0}, {"activation": "tanh"}):
        with pytest.raises(UserError):
            Experts(SIZE, INNER, **{"num_experts": 4, **wrong})


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_a_cuda_graph_holds_a_step_and_equals_the_loop(kind):
    experts = Experts(64, 128, num_experts=8, capacity=1.25, noise=False).cuda()
    rows, visible = torch.randn(256, 64, device="cuda"), torch.arange(256, device="cuda") < 200

    def step():
        experts.zero_grad()
        with torch.autocast("cuda", dtype=kind, enabled=kind == torch.bfloat16):
            fed = experts(rows, visible)
        (fed.states.float().square().sum() + fed.cost).backward()
        return [fed.states.float(), fed.cost, *(parameter.grad for parameter in experts.parameters())]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    experts.zero_grad(set_to_none=False)
    with torch.cuda.graph(graph):
        recorded = step()
    graph.replay()
    recorded = [each.cpu() for each in recorded]
    rows, visible = rows.cpu(), visible.cpu()
    experts = experts.cpu()
    reference = Experts(64, 128, num_experts=8, capacity=1.25, noise=False)
    reference.load_state_dict(experts.state_dict())
    fed = reference(rows, visible)
    (fed.states.square().sum() + fed.cost).backward()
    tolerance = 0.05 if kind == torch.bfloat16 else 1e-4
    expected = [fed.states, fed.cost, *(parameter.grad for parameter in reference.parameters())]
    for ours, theirs in zip(recorded, expected, strict=True):
        assert (ours - theirs).norm() <= tolerance * theirs.norm() + 1e-6
