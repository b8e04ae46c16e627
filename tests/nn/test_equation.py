"""The tracer: derivatives against autograd, simplification, and the text that Triton gets."""

import math
import types

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.nn.kernels.recurrent.equation import Graph, Symbol, derivatives, function_text, text_of, topological
from regard.nn.recurrent.cells import CELLS, GatedCell

NAMES = ("a", "b", "c")
GATED = [name for name, cell in CELLS.items() if issubclass(cell, GatedCell)]
SQUASHING = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}


def expressions():
    """Trees of what a cell may say: (operation, arguments)."""
    leaves = st.sampled_from(NAMES) | st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0])

    def grow(inner):
        pairs = st.tuples(st.sampled_from(["+", "-", "*"]), inner, inner)
        return pairs | st.tuples(st.sampled_from(list(SQUASHING)), inner) | st.tuples(st.just("negative"), inner)

    return st.recursive(leaves, grow, max_leaves=12)


def build(tree, names):
    """The tree with its names replaced, by Python's operators and torch's functions: as a cell's `update` would."""
    if isinstance(tree, str):
        return names[tree]
    if isinstance(tree, float):
        return tree
    operation, *arguments = tree
    parts = [build(argument, names) for argument in arguments]
    if operation in SQUASHING:
        symbolic = isinstance(parts[0], Symbol | torch.Tensor)
        return SQUASHING[operation](parts[0] if symbolic else names["a"] * 0.0 + parts[0])
    if operation == "negative":
        return -parts[0]
    left, right = parts
    return left + right if operation == "+" else left - right if operation == "-" else left * right


def value(symbol, names):
    """A second evaluation of a graph, in float64."""
    operations = {
        "add": lambda one, other: one + other,
        "mul": lambda one, other: one * other,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "relu": torch.relu,
        "positive": lambda one: (one > 0).double(),
    }
    if symbol.operation == "constant":
        return torch.tensor(symbol.arguments[0], dtype=torch.float64)
    if symbol.operation == "name":
        return names[symbol.arguments[0]]
    return operations[symbol.operation](*(value(argument, names) for argument in symbol.arguments))


def numbers(seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn((), generator=generator, dtype=torch.float64, requires_grad=True) for name in NAMES}


@settings(deadline=None, max_examples=150)
@given(expressions(), expressions(), st.integers(0, 1000))
def test_derivatives_are_those_of_autograd(first, second, seed):
    """Of two results with a seed each, as h and c have; what a result does not depend on gets 0."""
    graph, leaves = Graph(), numbers(seed)
    symbols = {name: graph.name(name) for name in NAMES}
    seeds = [graph.name("g0"), graph.name("g1")]
    known = leaves | {"g0": torch.tensor(0.7, dtype=torch.float64), "g1": torch.tensor(-1.3, dtype=torch.float64)}
    results = [build(tree, symbols) for tree in (first, second)]
    results = [one if isinstance(one, Symbol) else graph.constant(one) for one in results]
    found = derivatives(list(zip(results, seeds, strict=True)), list(symbols.values()))
    expected = [build(tree, leaves) for tree in (first, second)]
    total = sum((torch.as_tensor(one, dtype=torch.float64) * known[f"g{i}"]) for i, one in enumerate(expected))
    for result, theirs in zip(results, expected, strict=True):
        torch.testing.assert_close(value(result, known), torch.as_tensor(theirs, dtype=torch.float64))
    if not total.requires_grad:
        assert all(value(one, known) == 0 for one in found)
        return
    gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
    for ours, theirs in zip(found, gradients, strict=True):
        torch.testing.assert_close(value(ours, known), theirs)


def python_function(text, name):
    """What Triton compiles, run by Python on numbers."""
    language = types.SimpleNamespace(
        sigmoid=lambda x: 1 / (1 + math.exp(-x)), maximum=max, where=lambda condition, yes, no: yes if condition else no
    )
    space = {"tl": language, "triton": types.SimpleNamespace(jit=lambda function: function)}
    lines = [line for line in text.splitlines() if not line.startswith("import")]
    exec(compile("\n".join(lines), "equation", "exec"), space)
    return space[name]


@settings(deadline=None, max_examples=100)
@given(expressions(), st.integers(0, 1000))
def test_the_text_compiles_and_says_the_same(tree, seed):
    graph, leaves = Graph(), numbers(seed)
    symbols = {name: graph.name(name) for name in NAMES}
    result = build(tree, symbols)
    result = result if isinstance(result, Symbol) else graph.constant(result)
    text = function_text("f", [*NAMES], [result, symbols["b"]])
    ours, passed = python_function(text, "f")(*(leaf.item() for leaf in leaves.values()))
    torch.testing.assert_close(float(ours), value(result, leaves).item(), rtol=1e-6, atol=1e-9)
    assert passed == leaves["b"].item()


def test_nothing_is_computed_twice_or_for_nothing():
    graph = Graph()
    a, b = graph.name("a"), graph.name("b")
    zero, one = graph.constant(0.0), graph.constant(1.0)
    assert a + 0.0 is a
    assert 0.0 + a is a
    assert a * 1.0 is a
    assert 1.0 * a is a
    assert a - 0.0 is a
    assert a * 0.0 is zero
    assert 0.0 * a is zero
    assert graph.constant(2.0) * 3.0 is graph.constant(6.0)
    assert graph.constant(2.0) + 3.0 is graph.constant(5.0)
    assert one * one is one
    assert torch.tanh(a) is torch.tanh(a)
    assert a * b is a * b
    assert a + 1.0 is not a
    assert 2.0 * a is not a
    assert (a - b).operation == "add"


def test_arguments_come_before_what_is_made_of_them():
    graph = Graph()
    a, b = graph.name("a"), graph.name("b")
    deep = torch.sigmoid(torch.tanh(a * b) + a)
    order = topological([deep, a * b])
    assert len(order) == len({id(symbol) for symbol in order})
    for place, symbol in enumerate(order):
        assert all(order.index(argument) < place for argument in symbol.arguments if isinstance(argument, Symbol))


def test_what_has_no_known_derivative_is_refused():
    a = Graph().name("a")
    for function in (torch.sin, torch.exp, torch.abs):
        with pytest.raises(NotImplementedError, match="knows no derivative"):
            function(a)
    with pytest.raises(NotImplementedError):
        torch.add(a, a, alpha=2)


def unchecked(name):
    """A cell whose equation may be asked with symbols, though the tests check that tensors are tensors."""
    cell = CELLS[name](3, 4)
    for method in ("update", "reset", "write"):
        if hasattr(cell, method):
            plain = getattr(type(cell), method)
            while hasattr(plain, "__wrapped__"):
                plain = plain.__wrapped__
            setattr(cell, method, types.MethodType(plain, cell))
    return cell


@pytest.mark.parametrize("name", GATED)
def test_a_cells_text_is_its_update_and_its_gradient(name):
    """Each function of the text, run by Python on numbers, against the cell itself and autograd."""
    cell = unchecked(name)
    text = text_of(cell)
    count, states, vectors = len(cell.terms), len(cell.State._fields), len(cell.vectors)
    pre, state, vector, seeds = (torch.randn(number, dtype=torch.float64).requires_grad_() for number in (4, 2, 3, 2))
    arguments = [one.item() for one in (*pre, *state, *vector)]
    now = cell.State(*state[:states])
    new = cell.update(list(pre[:count]), now, *vector[:vectors])
    ours = python_function(text, "update")(*arguments)
    for number, theirs in enumerate(new):
        assert math.isclose(ours[number], theirs.item(), rel_tol=1e-9, abs_tol=1e-12)
    total = sum(one * seed for one, seed in zip(new, seeds.detach(), strict=False))
    expected = torch.autograd.grad(total, [pre, state, vector], allow_unused=True, materialize_grads=True)
    pulled = python_function(text, "pull")(*seeds.tolist(), *arguments)
    torch.testing.assert_close(torch.tensor(pulled, dtype=torch.float64), torch.cat(expected))
    if not cell.count("m"):
        return
    reset = cell.reset(list(pre[:count]), now)
    assert math.isclose(python_function(text, "reset")(*arguments[:6]), reset.item(), rel_tol=1e-9)
    so_far = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    more = python_function(text, "pull_reset")(-1.7, *arguments[:6], *so_far)
    by = torch.autograd.grad(reset * -1.7, [pre, state], allow_unused=True, materialize_grads=True)
    torch.testing.assert_close(
        torch.tensor(more, dtype=torch.float64), torch.cat(by) + torch.tensor(so_far, dtype=torch.float64)
    )
