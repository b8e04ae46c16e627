"""Every path equals the plain one; what is bound for one pass: its precision, and gradients taken in more than one go."""

import itertools
import os

import pytest
import torch

from regard.nn.attention import PATHS, SCOPES, SCORES, SELECTIONS, Attention, attend, mix
from regard.nn.attention.additive import bind_additive
from regard.nn.attention.attend import APPLIES
from regard.nn.attention.pairs import Dot
from regard.nn.attention.scopes import ScopeQueries
from regard.nn.linear import Linear, bind_linear


@pytest.mark.parametrize("learning", [True, False])
def test_weights_of_another_precision_read_the_values_in_theirs(learning):
    """Under autocast scores are bfloat16 products and their softmax may be float32; the context has the values' type."""
    values = torch.randn(2, 4, 3, dtype=torch.bfloat16, requires_grad=learning)
    weights = torch.rand(2, 1, 4)
    context = mix(values)(weights)
    assert context.dtype == torch.bfloat16
    torch.testing.assert_close(context, weights.bfloat16() @ values)


def options():
    """Every score, and every scope and selection with one that is a product and one that is a network."""
    yield from ({"score": name} for name in SCORES)
    for score in ("general", "network"):
        yield from ({"score": score, "scope": name} for name in SCOPES)
        yield from ({"score": score, "selection": name} for name in SELECTIONS)
        yield {"score": score, "coverage": True}


@pytest.mark.parametrize("options", list(options()), ids=lambda options: "-".join(map(str, options.values())))
def test_autocast_attends_nearly_as_float32_does(options):
    """All at once and step by step; going backward inside the autocast block, or after it as PyTorch advises."""
    attention = Attention(6, 6, heads=2, window=3, **options).eval()
    memory, query, grad = torch.randn(2, 5, 6, requires_grad=True), torch.randn(2, 3, 6), torch.randn(2, 3, 12)
    visible = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    for way in (
        lambda prepared: attention(query, prepared, return_weights=True),
        lambda prepared: attention.one_by_one(query, prepared),
    ):
        results = []
        for enabled, inside in ((False, False), (True, False), (True, True)):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                context, weights, _ = way(attention.prepare(memory, visible))
                total = (context.float() * grad).sum()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
                results.append([context.float(), weights.float(), torch.autograd.grad(total, memory)[0].float()])
        for exact, *rough in zip(*results, strict=True):
            for one in rough:
                torch.testing.assert_close(one, exact, rtol=0.05, atol=0.05)  # bfloat16 has 8 bits


# Each map whose weight's gradient is taken once a pass: (its output, what is asked for first, what is learned).


def by_shared():
    linear, inputs = torch.nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True)
    return lambda: bind_linear(linear)(inputs).square().sum(), inputs, linear.weight


def by_mix():
    values, weights = torch.randn(2, 4, 3, requires_grad=True), torch.rand(2, 1, 4, requires_grad=True)
    return lambda: mix(values)(weights).square().sum(), weights, values


def by_additive():
    keys, query = torch.randn(2, 1, 4, 3, requires_grad=True), torch.randn(2, 1, 1, 3, requires_grad=True)
    return lambda: bind_additive(keys, torch.ones(1, 3))(query).square().sum(), query, keys


@pytest.mark.parametrize("way", [by_shared, by_mix, by_additive])
def test_a_gradient_of_the_inputs_alone_leaves_nothing_behind(way):
    run, first, learned = way()
    total = run()
    torch.autograd.grad(total, first, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(total, learned), torch.autograd.grad(run(), learned))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [300])
def test_a_frozen_layer_passes_gradients_on(size):
    layer, inputs = Linear(size, size).requires_grad_(False), torch.randn(2, size, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(layer(inputs).sum(), inputs)[0], layer.weight.sum(0).expand(2, size))


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
KIND = torch.float32 if INTERPRETED else torch.float64
CLOSE = {"rtol": 1e-4, "atol": 1e-5} if INTERPRETED else {}  # float32, with sums in another order
STILL = [name for name, scope in SCOPES.items() if not scope.moves]


def bounds(name):
    """Which bounds a scope has: all that a kernel knows of it."""
    with torch.device("meta"):  # no numbers, for this is asked at import
        key_range = SCOPES[name](6, 6).key_range(
            ScopeQueries(torch.zeros(1, 1, 6), torch.zeros(1, 1).long(), None), torch.ones(1).long()
        )
    return tuple(part is None for part in key_range[:3])


DIFFERENT = list({bounds(name): name for name in STILL}.values())


def by(path, task, leaves, grad):
    context = attend(task, path=path).context
    return [context, *torch.autograd.grad((context * grad).sum(), leaves, retain_graph=True, allow_unused=True)]


def compared(score, scope, heads, values, visible, selection="soft"):
    """The paths that can do what this attention asks for, each compared with the plain one: values and all gradients."""
    options = {"score": score, "scope": scope, "selection": selection, "heads": heads, "values": values}
    attention = Attention(6, 6, **options, window=2, temperature=1.7).to(KIND).eval()
    batch = 2 if visible is None else len(visible)
    query, memory = (torch.randn(batch, time, 6, dtype=KIND, requires_grad=True) for time in (3, 5))
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.nn.attention.attention.attend", lambda task, *_: asked.append(task) or attend(task))
        grad = torch.randn_like(attention(query, attention.prepare(memory, visible)).context)
    (task,), leaves = asked, [query, memory, *attention.parameters()]
    grad = grad.unflatten(-1, (heads, -1)).transpose(1, 2)
    plain, paths = by("plain", task, leaves, grad), [path for path in PATHS if path != "plain" and APPLIES[path](task)]
    for path in paths:
        for ours, theirs in zip(by(path, task, leaves, grad), plain, strict=True):
            if theirs is None:  # nothing reaches it
                assert ours is None or ours.eq(0).all()
                continue
            torch.testing.assert_close(ours, theirs, msg=lambda text, path=path: f"{path}: {text}", **CLOSE)
    return paths, task


VISIBLE = torch.arange(5) < torch.tensor([5, 3, 1, 0])[:, None]  # the last row sees nothing


@pytest.mark.parametrize(("score", "scope"), list(itertools.product(SCORES, STILL)))
def test_every_path_that_applies_equals_the_plain_one(score, scope):
    for heads, values, visible in [(1, None, None), (2, None, VISIBLE), (2, 4, VISIBLE)]:
        paths, task = compared(score, scope, heads, values, visible)
        assert ("library" in paths) == (isinstance(task.pair, Dot) and scope != "local_p")


@pytest.mark.skipif(not INTERPRETED, reason="runs in a process that test_interpreted.py starts")
@pytest.mark.parametrize(("score", "scope"), list(itertools.product(("general", "additive"), DIFFERENT)))
def test_every_kernel_equals_the_plain_path(score, scope):
    paths, _ = compared(score, scope, 2, None, VISIBLE[1::2])
    within = {"flash", "short"} if scope in ("causal", "compressed") else {"flash"}  # one tile has no keys before the first
    expected = {"general": within, "additive": set() if scope == "local_p" else {"network"}}
    assert set(paths) - {"library"} == expected[score]


@pytest.mark.skipif(not INTERPRETED, reason="runs in a process that test_interpreted.py starts")
@pytest.mark.parametrize("scope", [scope for scope in DIFFERENT if scope != "local_p"])
def test_every_kernel_equals_the_plain_path_where_one_key_is_picked(scope):
    paths, task = compared("general", scope, 2, None, VISIBLE[1::2], "hard")
    assert paths == ["hard"]
    task.selection.train()
    assert not APPLIES["hard"](task)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_weights_are_made_only_when_asked_for(selection, monkeypatch):
    """Whatever is selected: else no path but the plain one would ever be taken."""
    asked, attention = [], Attention(6, 6, selection=selection).eval()
    monkeypatch.setattr("regard.nn.attention.attention.attend", lambda task, look, path: asked.append(look) or attend(task))
    query, keys = torch.randn(1, 2, 6), attention.prepare(torch.randn(1, 3, 6))
    for look in (False, True):
        attention(query, keys, return_weights=look)
    assert asked == [False, True]
