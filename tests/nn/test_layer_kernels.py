"""The kernels of a Transformer's layers against plain formulas in float64: on a CPU by Triton's interpreter, and on a GPU."""

import math

import pytest
import torch
from torch.nn import functional

from regard.nn.kernels.attention import short
from regard.nn.kernels.layers import activation, norm
from regard.nn.kernels.random import Seed

NEAR = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}  # ||ours - exact|| / ||exact||


def distance(ours, exact):
    """The largest relative difference of all; of what should be 0, the absolute one."""
    pairs = [(one.detach().cpu().double(), other.detach().cpu().double()) for one, other in zip(ours, exact, strict=True)]
    return max(float((one - other).norm() / max(float(other.norm()), 1e-3)) for one, other in pairs)


def with_gradients(function, tensors, slopes):
    """Results, then the gradients of those tensors that are there; results without a slope get no gradient."""
    leaves = [None if one is None else one.detach().requires_grad_() for one in tensors]
    results = function(*leaves)
    used = [(one, slope.to(one.dtype)) for one, slope in zip(results, slopes, strict=True) if slope is not None]
    there = [leaf for leaf in leaves if leaf is not None]
    found = torch.autograd.grad([one for one, _ in used], there, [slope for _, slope in used], allow_unused=True)
    return [*results, *(torch.zeros_like(leaf) if one is None else one for one, leaf in zip(found, there, strict=True))]


def doubles(tensors):
    return [None if one is None else one.double() for one in tensors]


def attention(query, keys, values, scale, visible, last, causal):
    """Σ_j α_ij v_j, sentence by sentence and query by query over the keys it may see."""
    context = []
    for b, h, i in torch.cartesian_prod(*map(torch.arange, query.shape[:3])).view(-1, 3).tolist():
        sees = [
            j for j in range(keys.shape[2])
            if (visible is None or visible[b, j]) and (last is None or j <= last[b, h % last.shape[1], i])
            and (not causal or j <= i)
        ]  # fmt: skip
        weights = (scale * keys[b, h, sees] @ query[b, h, i]).softmax(0)
        context.append(weights @ values[b, h, sees])
    return torch.stack(context).view(*query.shape[:3], values.shape[3])


class Attention:
    """Inputs of one attention; the first sentence of several has nothing to see, and some queries of the others neither."""

    def __init__(self, shape, *, masked=False, limited=0, causal=False, kind=torch.float32, device="cpu", spread=1.0):
        batch, heads, target, source, size, value = shape
        shapes = (batch, heads, target, size), (batch, heads, source, size), (batch, heads, source, value)
        self.tensors = [
            (factor * torch.randn(one)).to(device, kind) for factor, one in zip((spread, 1, 1), shapes, strict=True)
        ]
        self.slope = torch.randn(batch, heads, target, value).to(device, kind)
        visible = torch.rand(batch, source) < 0.7
        visible[:1] = batch == 1
        last = torch.randint(-1, source + 2, (batch, limited or 1, target))
        self.scope = {"scale": size**-0.5, "causal": causal}
        self.scope |= {"visible": visible.to(device) if masked else None, "last": last.to(device) if limited else None}

    def results(self):
        return with_gradients(lambda *parts: [short.short_attention(*parts, **self.scope)], self.tensors, [self.slope])

    def exact(self):
        scope = {name: part.cpu() if isinstance(part, torch.Tensor) else part for name, part in self.scope.items()}
        tensors = [one.cpu().double() for one in self.tensors]
        return with_gradients(lambda *parts: [attention(*parts, **scope)], tensors, [self.slope.cpu().double()])

    def distance(self):
        return distance(self.results(), self.exact())


def fused_and_exact(shape, kind=torch.float32, device="cpu", asked=None, **options):
    """Attention of one fused tensor, with queries of their own if `asked` says how many: results and gradients, ours and from
    its parts in float64."""
    batch, heads, time, size = shape
    trial = Attention((batch, heads, asked or time, time, size, size), kind=kind, device=device, **options)
    apart = trial.tensors[:1] if asked else []
    fused = torch.stack([one.transpose(1, 2) for one in trial.tensors[len(apart) :]], dim=2)
    trial.tensors, slope = short.sides(fused, *apart), trial.slope.transpose(1, 2)
    ours = with_gradients(lambda *parts: [short.short_joint_attention(*parts, **trial.scope)], [fused, *apart], [slope])
    context, *parts = trial.exact()
    whole = torch.stack([part.transpose(1, 2) for part in parts[len(apart) :]], dim=2)
    return ours, [context.transpose(1, 2), whole, *parts[: len(apart)]]


class Joined:
    """Inputs of one add_norm."""

    def __init__(self, shape, *, without=(), kind=torch.float32, device="cpu", parameters=torch.float32):
        def random(name, *size, kind=kind):
            return None if name in without else torch.randn(size).to(device, kind)

        size = shape[-1]
        self.tensors = [random("states", *shape), random("residual", *shape)]
        self.tensors += [random(name, size, kind=parameters) for name in ("bias", "weight", "offset")]
        self.slopes = [random("total", *shape), random("normed", *shape)]
        self.seed = Seed(torch.tensor([12345678901234], device=device), 3)

    def mask(self, rate):
        """Which numbers stay, and how much larger they become: what a row of ones becomes."""
        ones = torch.ones_like(self.tensors[0], dtype=torch.float32)
        return norm.add_norm(ones, None, None, ones[(0,) * (ones.dim() - 1)], None, rate=rate, seed=self.seed)[0]

    def results(self, rate, kind):
        options = {"rate": rate, "kind": kind, "eps": 1e-3, "seed": self.seed}
        return with_gradients(lambda *parts: norm.add_norm(*parts, **options), self.tensors, self.slopes)

    def exact(self, rate, kind):
        mask = self.mask(rate).double() if rate else 1.0
        return with_gradients(lambda *parts: joined(*parts, mask, kind, 1e-3), doubles(self.tensors), doubles(self.slopes))

    def distance(self, rate=0.0, kind="layer"):
        return distance(self.results(rate, kind), self.exact(rate, kind))


def joined(states, residual, bias, weight, offset, mask, kind, eps):
    total = (states + (0 if bias is None else bias)) * mask + (0 if residual is None else residual)
    away = total - total.mean(-1, keepdim=True) if kind == "layer" else total
    return total, away / (away.square().mean(-1, keepdim=True) + eps).sqrt() * weight + (0 if offset is None else offset)


class Activated:
    """Inputs of one activation."""

    def __init__(self, shape, name, *, biased=True, kind=torch.float32, device="cpu"):
        width, factor = shape[-1], 2 if name == "swiglu" else 1
        self.name, self.seed = name, Seed(torch.tensor([98765432109876], device=device), 5)
        self.tensors = [torch.randn(*shape[:-1], factor * width).to(device, kind)]
        self.tensors += [torch.randn(factor * width).to(device) if biased else None]
        self.slopes = [torch.randn(shape).to(device, kind)]

    def mask(self, rate):
        ones = torch.ones_like(self.slopes[0], dtype=torch.float32)
        return activation.activate(ones, None, kind="relu", rate=rate, seed=self.seed)

    def results(self, rate):
        options = {"kind": self.name, "rate": rate, "seed": self.seed}
        return with_gradients(lambda *parts: [activation.activate(*parts, **options)], self.tensors, self.slopes)

    def exact(self, rate):
        mask = self.mask(rate).double() if rate else 1.0

        def formula(states, bias):
            x = states if bias is None else states + bias
            return [PHI[self.name](x) * mask]

        return with_gradients(formula, doubles(self.tensors), doubles(self.slopes))

    def distance(self, rate=0.0):
        return distance(self.results(rate), self.exact(rate))


def swiglu(x):
    left, right = x.split(x.shape[-1] // 2, dim=-1)
    return left / (1 + torch.exp(-left)) * right


PHI = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "swiglu": swiglu,
}


def test_every_activation_has_an_oracle():
    assert PHI.keys() == activation.KINDS.keys()


@pytest.mark.parametrize("scope", [{}, {"masked": True}, {"masked": True, "limited": 2, "causal": True}, {"limited": 1}])
def test_plain_attention_is_the_formula(scope):
    assert Attention((2, 2, 3, 4, 5, 2), **scope).distance() < 1e-5
    ours, exact = fused_and_exact((2, 2, 3, 5), **scope)
    assert distance(ours, exact) < 1e-5


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("without", [(), ("residual", "bias", "offset")])
def test_plain_add_norm_is_the_formula(without, kind):
    assert Joined((2, 3, 7), without=without).distance(kind=kind) < 1e-5


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", PHI)
def test_plain_activations_are_the_formula(name, biased):
    assert Activated((2, 3, 7), name, biased=biased).distance() < 1e-5


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_results_have_the_states_kind_of_number(kind):
    trial = Joined((2, 7), kind=kind)
    for rate in (0.0, 0.5):
        assert {one.dtype for one in trial.results(rate, "layer")[:2]} == {kind}
        assert {activation.activate(trial.tensors[0], trial.tensors[2], rate=rate).dtype} == {kind}


def test_plain_dropout_drops():
    ones = torch.ones(40, 50)
    total, _ = norm.add_norm(ones, None, None, ones[0], None, rate=0.25)
    for dropped in (total, activation.activate(ones, None, rate=0.25)):
        torch.testing.assert_close(dropped.unique(), torch.tensor([0, 4 / 3]))
        assert 0.2 < dropped.eq(0).float().mean() < 0.3


def test_a_cpu_is_refused():
    assert not norm.applies(torch.zeros(1, 1))
    assert not activation.applies(torch.zeros(1, 1))
    assert not short.applies(*[torch.zeros(1, 1, 1, 1)] * 3)


SHAPES = [(3, 8, 32, 32, 64, 64), (2, 8, 128, 128, 64, 64), (3, 2, 17, 33, 48, 100), (2, 4, 64, 100, 128, 64)]
GPU = [(shape, kind) for shape in SHAPES for kind in (torch.bfloat16, torch.float32)] + [(SHAPES[0], torch.float16)]
KINDS = [torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.gpu
@pytest.mark.parametrize("scope", [{}, {"masked": True, "causal": True}, {"masked": True, "limited": 1}])
@pytest.mark.parametrize(("shape", "kind"), GPU)
def test_short_attention_on_a_gpu(shape, kind, scope):
    assert Attention(shape, kind=kind, device="cuda", **scope).distance() < NEAR[kind]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", [None, 20])
@pytest.mark.parametrize("shape", [(3, 8, 32, 64), (2, 4, 16, 32), (2, 2, 100, 64)])
def test_short_joint_attention_on_a_gpu(shape, kind, asked):
    ours, exact = fused_and_exact(shape, kind, "cuda", asked, masked=True, causal=True)
    assert distance(ours, exact) < NEAR[kind]


@pytest.mark.gpu
def test_the_largest_tiles_that_apply_run_on_a_gpu():
    for shape, kind in (((2, 1, 128, 128, 128, 128), torch.bfloat16), ((2, 1, 128, 64, 128, 128), torch.float32)):
        trial = Attention(shape, kind=kind, device="cuda")
        assert short.applies(*trial.tensors)
        assert trial.distance() < NEAR[kind]


@pytest.mark.gpu
@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(64, 33, 512), (7, 1024), (5, 4096), (1000, 7)])
def test_add_norm_on_a_gpu(shape, kind, rate):
    for name in ("layer", "rms"):
        assert Joined(shape, kind=kind, device="cuda").distance(rate, name) < NEAR[kind]


@pytest.mark.gpu
@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PHI)
def test_activations_on_a_gpu(name, kind, rate):
    for shape in ((16, 33, 2048), (1000, 130)):
        assert Activated(shape, name, kind=kind, device="cuda").distance(rate) < NEAR[kind]


@pytest.mark.gpu
def test_every_replay_of_a_graph_draws_anew_and_two_runs_agree_in_every_bit():
    trial = Joined((64, 33, 512), kind=torch.bfloat16, device="cuda")
    for one, other in zip(trial.results(0.1, "layer"), trial.results(0.1, "layer"), strict=True):
        assert torch.equal(one, other)
    ones, weight = torch.ones(64, 512, device="cuda"), torch.ones(512, device="cuda")
    norm.add_norm(ones, None, None, weight, None, rate=0.1)
    graph, masks = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        total, _ = norm.add_norm(ones, None, None, weight, None, rate=0.1)
    for _ in range(2):
        graph.replay()
        masks.append(total.clone())
    assert not torch.equal(*masks)


@pytest.mark.gpu
def test_attention_agrees_with_the_librarys_on_a_gpu():
    query, keys, values = Attention((64, 8, 32, 32, 64, 64), device="cuda").tensors
    ours = short.short_attention(query, keys, values, scale=0.125, causal=True)
    torch.testing.assert_close(ours, functional.scaled_dot_product_attention(query, keys, values, is_causal=True))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_product_with_its_relu_on_a_gpu(kind):
    shapes = (33, 5, 16), (48, 16), (48,), (33, 5, 48)
    states, weight, bias, slope = (torch.randn(shape, device="cuda", dtype=kind) for shape in shapes)
    leaves = [leaf.requires_grad_() for leaf in (states, weight, bias)]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    ours = activation.relu_product(*leaves)
    theirs = torch.nn.functional.linear(*exact).relu()
    ours.backward(slope)
    theirs.backward(slope.double())
    found, expected = [ours, *(leaf.grad for leaf in leaves)], [theirs, *(leaf.grad for leaf in exact)]
    assert distance(found, expected) < (1e-5 if kind == torch.float32 else 2e-2)
