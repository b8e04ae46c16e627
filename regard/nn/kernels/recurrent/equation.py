"""A cell's elementwise equation, traced from its own `update`, differentiated, and written down as Triton functions.

So the persistent scan runs any gated cell, also one that a user wrote, and nobody writes an equation or its derivative twice.
"""

import functools
import hashlib
import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.nn.linear import Projection
from regard.nn.recurrent.cell import GatedCell

BLOCKS, STATES, VECTORS = 4, 2, 3  # the most that the kernels carry


class Symbol:
    """A number of the equation: a name, a constant, or an operation on symbols. Equal ones are the same object."""

    def __init__(self, graph: "Graph", operation: str, arguments: tuple[Any, ...]) -> None:
        self.graph, self.operation, self.arguments = graph, operation, arguments

    def __add__(self, other: Any) -> "Symbol":
        return self.graph.make("add", self, other)

    def __sub__(self, other: Any) -> "Symbol":
        return self.graph.make("add", self, self.graph.make("mul", -1.0, other))

    def __rsub__(self, other: Any) -> "Symbol":
        return self.graph.make("add", other, self.graph.make("mul", -1.0, self))

    def __mul__(self, other: Any) -> "Symbol":
        return self.graph.make("mul", self, other)

    def __truediv__(self, number: Any) -> "Symbol":
        return self.graph.make("mul", self, 1.0 / number)  # by a number: a symbol has no inverse here

    def __neg__(self) -> "Symbol":
        return self.graph.make("mul", -1.0, self)

    __radd__, __rmul__ = __add__, __mul__

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> "Symbol":
        name = TORCH.get(function)
        if name is None or keywords:
            raise NotImplementedError(f"the persistent scan knows no derivative of {function}")
        first = next(argument for argument in arguments if isinstance(argument, Symbol))
        return first.graph.make(name, *arguments)


class Graph:
    """All symbols of one cell, in the order in which they were made."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], Symbol] = {}

    def name(self, name: str) -> Symbol:
        return self.make("name", name)

    def constant(self, value: Any) -> Symbol:
        if not isinstance(value, int | float):
            raise NotImplementedError("an equation is made of its arguments and numbers")  # a hidden parameter would not learn
        return self.make("constant", float(value))

    def make(self, operation: str, *arguments: Any) -> Symbol:
        if operation not in ("name", "constant"):
            arguments = tuple(one if isinstance(one, Symbol) else self.constant(one) for one in arguments)
            if (simple := self.simplify(operation, arguments)) is not None:
                return simple
        key = (operation, *(id(one) if isinstance(one, Symbol) else one for one in arguments))
        if key not in self.known:
            self.known[key] = Symbol(self, operation, arguments)
        return self.known[key]

    def simplify(self, operation: str, arguments: tuple[Symbol, ...]) -> Symbol | None:
        """0 + a = a, 1 a = a, 0 a = 0, and sums and products of constants."""
        values = [one.arguments[0] if one.operation == "constant" else None for one in arguments]
        neutral = {"add": 0.0, "mul": 1.0}.get(operation)
        if neutral is None:
            return None
        left, right = values
        if left is not None and right is not None:
            return self.constant(left + right if operation == "add" else left * right)
        if operation == "mul" and 0.0 in values:
            return self.constant(0.0)
        if neutral in values:
            return arguments[1 - values.index(neutral)]
        return None


TORCH: dict[Any, str] = {
    torch.tanh: "tanh", torch.sigmoid: "sigmoid", torch.relu: "relu", torch.add: "add", torch.mul: "mul",
}  # fmt: skip
TEXT: dict[str, Callable[..., str]] = {
    "add": "({0} + {1})".format,
    "mul": "({0} * {1})".format,
    "sigmoid": "tl.sigmoid({0})".format,
    "tanh": "(2.0 * tl.sigmoid(2.0 * {0}) - 1.0)".format,
    "relu": "tl.maximum({0}, 0.0)".format,
    "positive": "tl.where({0} > 0.0, 1.0, 0.0)".format,
}
DERIVATIVES: dict[str, Callable[[Symbol], tuple[Any, ...]]] = {
    "add": lambda whole: (1.0, 1.0),
    "mul": lambda whole: (whole.arguments[1], whole.arguments[0]),
    "sigmoid": lambda whole: (whole * (1.0 - whole),),
    "tanh": lambda whole: (1.0 - whole * whole,),
    "relu": lambda whole: (whole.graph.make("positive", whole.arguments[0]),),
}


def derivatives(seeds: Sequence[tuple[Symbol, Symbol]], leaves: Sequence[Symbol]) -> list[Symbol]:
    """Σ seed ∗ ∂ result / ∂ leaf, for each leaf: reverse-mode differentiation."""
    graph = leaves[0].graph
    sums: dict[int, Symbol] = {}
    order = topological([result for result, _ in seeds])
    for result, seed in seeds:
        sums[id(result)] = sums[id(result)] + seed if id(result) in sums else seed
    for symbol in reversed(order):
        if id(symbol) in sums and symbol.operation in DERIVATIVES:
            for argument, derivative in zip(symbol.arguments, DERIVATIVES[symbol.operation](symbol), strict=True):
                sums[id(argument)] = sums.get(id(argument), graph.constant(0.0)) + sums[id(symbol)] * derivative
    return [sums.get(id(leaf), graph.constant(0.0)) for leaf in leaves]


def topological(results: Sequence[Symbol]) -> list[Symbol]:
    """Arguments before what is made of them."""
    order: dict[int, Symbol] = {}

    def visit(symbol: Symbol) -> None:
        if id(symbol) not in order:
            for argument in symbol.arguments:
                if isinstance(argument, Symbol):
                    visit(argument)
            order[id(symbol)] = symbol

    for result in results:
        visit(result)
    return list(order.values())


def function_text(name: str, arguments: Sequence[str], results: Sequence[Symbol]) -> str:
    lines, names = [f"@triton.jit\ndef {name}({', '.join(arguments)}):"], {}
    for symbol in topological(results):
        if symbol.operation in ("name", "constant"):
            names[id(symbol)] = str(symbol.arguments[0])
        else:
            names[id(symbol)] = f"a{len(lines)}"
            formula = TEXT[symbol.operation](*(names[id(argument)] for argument in symbol.arguments))
            lines.append(f"    a{len(lines)} = {formula}")
    lines.append(f"    return {', '.join(names[id(result)] for result in results)}")
    return "\n".join(lines) + "\n"


class Equation(NamedTuple):
    """Triton functions of one cell. p: pre-activations, s: the state, v: vectors, g: gradients, d: gradients so far."""

    update: Any  # (p, s, v) -> s
    reset: Any  # (p, s) -> m
    pull: Any  # (g, p, s, v) -> gradients of p, s, v
    pull_reset: Any  # (gradient of m, p, s, d) -> d with what m adds, for p and s


class Traced(NamedTuple):
    """A cell's equation in symbols."""

    pre: list[Symbol]
    states: list[Symbol]
    vectors: list[Symbol]
    new: list[Symbol]
    reset: Symbol | None


def trace(cell: GatedCell) -> Traced:
    """NotImplementedError where the equation is not one of known elementwise steps on its own arguments."""
    graph = Graph()
    counts = zip("psv", (len(cell.terms), len(cell.State._fields), len(cell.vectors)), strict=True)
    p, s, v = ([graph.name(f"{letter}{number}") for number in range(count)] for letter, count in counts)
    try:
        new = list(cell.update(p, cell.State(*s), *v))
        reset = cell.reset(p, cell.State(*s)) if cell.count("m") else None
    except (TypeError, AttributeError, ValueError) as error:
        raise NotImplementedError(str(error)) from error
    if cell.normed or not all(isinstance(one, Symbol) for one in (*new, *([] if reset is None else [reset]))):
        raise NotImplementedError("not an elementwise equation")
    late = [block for block, word in zip(p, cell.terms, strict=True) if "m" in word]
    if reset is not None and any(symbol in late for symbol in topological([reset])):
        raise NotImplementedError("a reset comes before the block that it is for")
    return Traced(p, s, v, new, reset)


def carried(cell: GatedCell, traced: Traced) -> bool:
    """Whether the kernels have room for it: one kind of product a block, m only in one, not the first; t in the middle."""
    counts = len(traced.pre) <= BLOCKS and len(traced.states) <= STATES and len(traced.vectors) <= VECTORS
    simple = all(sum(letter in word for letter in "htm") <= 1 for word in cell.terms)
    places = cell.count("m") <= 1 and 0 not in cell.place("m") and set(cell.place("t")) <= {1, 2}
    early = traced.reset is None or not any(symbol in traced.pre[1:] for symbol in topological([traced.reset]))
    return counts and simple and places and early


def text_of(cell: GatedCell) -> str:
    traced = trace(cell)
    if not carried(cell, traced):
        raise NotImplementedError("more than the kernels carry")
    graph = traced.states[0].graph
    p, s, v, d = ([graph.name(f"{letter}{i}") for i in range(n)] for letter, n in (("p", 4), ("s", 2), ("v", 3), ("d", 6)))
    g = [graph.name("g0"), graph.name("g1")]
    pulled = derivatives(list(zip(traced.new, g, strict=False)), [*p, *s, *v])
    reset = traced.reset or s[0]
    more = [so_far + one for so_far, one in zip(d, derivatives([(reset, g[0])], [*p, *s]), strict=True)]
    names = [symbol.arguments[0] for symbol in (*p, *s, *v)]
    functions = [
        function_text("update", names, [*traced.new, *s[len(traced.new) :]]),
        function_text("reset", names[: BLOCKS + STATES], [reset]),
        function_text("pull", ["g0", "g1", *names], pulled),
        function_text("pull_reset", ["g0", *names[: BLOCKS + STATES], *(one.arguments[0] for one in d)], more),
    ]
    return "\n\n".join(["import triton\nimport triton.language as tl\n", *functions])


_KNOWN: dict[tuple[Any, ...], tuple[bool, str | None]] = {}


def numbers_of(cell: GatedCell) -> tuple[Any, ...]:
    """What tells one cell's equation from another's: its class, and the numbers that its instance holds. Not its maps, which
    stand among them where weights are dropped: what is known would keep them, and all that leads to them, for ever."""
    simple = {name: value for name, value in vars(cell).items() if isinstance(value, int | float | str | tuple)}
    return (type(cell), *sorted((name, value) for name, value in simple.items() if not isinstance(value, Projection)))


def known(cell: GatedCell) -> tuple[bool, str | None]:
    """Whether the equation is elementwise, and its text if the kernels carry it."""
    key = numbers_of(cell)
    if key not in _KNOWN:
        _KNOWN[key] = found(cell)
    return _KNOWN[key]


def found(cell: GatedCell) -> tuple[bool, str | None]:
    try:
        trace(cell)
    except NotImplementedError:
        return False, None
    try:
        return True, text_of(cell)
    except NotImplementedError:
        return True, None


def elementwise(cell: GatedCell) -> bool:
    return known(cell)[0]


def traceable(cell: GatedCell) -> bool:
    return known(cell)[1] is not None


def equation_of(cell: GatedCell) -> Equation:
    text = known(cell)[1]
    assert text is not None, f"{type(cell).__name__} cannot be written as a kernel"
    return load(text)


@functools.cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Of this process alone, gone at its end."""
    return tempfile.TemporaryDirectory(prefix="regard-kernels-")


@functools.cache
def load(text: str) -> Equation:
    """Triton reads a function's source from its file, so there has to be one."""
    path = Path(folder().name) / f"equation_{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    path.write_text(text)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return Equation(module.update, module.reset, module.pull, module.pull_reset)
