"""Specifications and small functions: `double each , then add all up` and `def f ( x ) : return sum ( [ 2 * y for y in x ] )`.

The functions are Python. They are run by an interpreter of our own that knows a few expressions and nothing else: what a model
wrote is never executed by Python.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from regard.corpora.corpus import Corpus, Pair

INPUTS: tuple[list[int], ...] = (
    [],
    [3],
    [5, 2, 8, 1],
    [-4, 0, 7, -1, 6],
    [2, 2, 9, 4, 4, 1],
    [10, -3, 8, 5, -6, 12, 7],
)  # the tests of every function
LONGEST, DEEPEST, STEPS, LARGEST = 2000, 40, 10_000, 10**9  # characters, depth and steps of a program, numbers it may come to


class Operation(NamedTuple):
    """How it is said, and how it is written around what came before (`{}`)."""

    said: str
    written: str


OPERATIONS = (
    Operation("sort them", "sorted ( {} )"),
    Operation("turn them round", "{} [ : : - 1 ]"),
    Operation("double each", "[ 2 * y for y in {} ]"),
    Operation("add {n} to each", "[ y + {n} for y in {} ]"),
    Operation("square each", "[ y * y for y in {} ]"),
    Operation("keep the even ones", "[ y for y in {} if y % 2 == 0 ]"),
    Operation("keep the odd ones", "[ y for y in {} if y % 2 == 1 ]"),
    Operation("keep those above {n}", "[ y for y in {} if y > {n} ]"),
    Operation("take the first {n}", "{} [ : {n} ]"),
    Operation("leave out the first {n}", "{} [ {n} : ]"),
)
ENDINGS = (
    Operation("", "{}"),
    Operation("add all up", "sum ( {} )"),
    Operation("count them", "len ( {} )"),
    Operation("take the largest or 0", "max ( {} , default = 0 )"),
    Operation("take the smallest or 0", "min ( {} , default = 0 )"),
)


def programs(seed: str) -> Iterator[Pair]:
    """One to three operations and an ending."""
    random = Random(seed).random
    while True:
        used = [OPERATIONS[int(random() * len(OPERATIONS))] for _ in range(1 + int(random() * 3))]
        said, written = list[str](), "x"
        for operation in (*used, ENDINGS[int(random() * len(ENDINGS))]):
            number = str(1 + int(random() * 5))
            said.append(operation.said.replace("{n}", number))
            written = operation.written.replace("{n}", number).replace("{}", written)
        yield Pair(" , then ".join(filter(None, said)), f"def f ( x ) : return {written}", ())


class Refused(Exception):
    """A program that is none of ours, or that comes to nothing."""


def run(program: str, given: list[int]) -> Any:
    """What the function gives for a list; Refused whatever else it does."""
    try:
        if len(program) > LONGEST:
            raise Refused("too long")
        module = ast.parse(program)
        match module.body:
            case [ast.FunctionDef(args=ast.arguments(args=[ast.arg(arg=name)]), body=[ast.Return(value=ast.expr() as value)])]:
                return evaluated(value, {name: list(given)}, DEEPEST, iter(range(STEPS)))
    except (SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError, MemoryError) as error:
        raise Refused(str(error)) from None
    raise Refused("not one function of one argument that returns an expression")


def evaluated(node: ast.expr, names: Mapping[str, Any], depth: int, left: Iterator[int]) -> Any:
    if depth == 0 or next(left, None) is None:
        raise Refused("too deep, or too many steps")
    rule = EXPRESSIONS.get(type(node))
    if rule is None:
        raise Refused(f"{type(node).__name__} is no expression of these programs")
    found = rule(node, partial(evaluated, depth=depth - 1, left=left), names)
    if isinstance(found, int) and abs(found) > LARGEST:
        raise Refused("too large a number")
    return found


OPERATORS: dict[type[Any], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: number(left) + number(right),
    ast.Sub: lambda left, right: number(left) - number(right),
    ast.Mult: lambda left, right: number(left) * number(right),
    ast.Mod: lambda left, right: number(left) % number(right),
    ast.Eq: lambda left, right: left == right,
    ast.NotEq: lambda left, right: left != right,
    ast.Gt: lambda left, right: number(left) > number(right),
    ast.Lt: lambda left, right: number(left) < number(right),
    ast.GtE: lambda left, right: number(left) >= number(right),
    ast.LtE: lambda left, right: number(left) <= number(right),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {"sorted": sorted, "sum": sum, "len": len, "max": max, "min": min}


def number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{value!r:.20} is no number")
    return value


def chosen(table: Mapping[Any, Callable[..., Any]], key: Any) -> Callable[..., Any]:
    if key not in table:
        raise Refused(f"{key} is not known to these programs")
    return table[key]


def constant(node: Any, value: Any, names: Mapping[str, Any]) -> int:
    return number(node.value)


def named(node: Any, value: Any, names: Mapping[str, Any]) -> Any:
    if node.id not in names:
        raise Refused(f"{node.id} has no value")
    return names[node.id]


def binary(node: Any, value: Any, names: Mapping[str, Any]) -> Any:
    return chosen(OPERATORS, type(node.op))(value(node.left, names), value(node.right, names))


def minus(node: Any, value: Any, names: Mapping[str, Any]) -> int:
    if not isinstance(node.op, ast.USub):
        raise Refused("only minus stands before a number")
    return -number(value(node.operand, names))


def compared(node: Any, value: Any, names: Mapping[str, Any]) -> Any:
    if len(node.ops) != 1:
        raise Refused("one comparison at a time")
    return chosen(OPERATORS, type(node.ops[0]))(value(node.left, names), value(node.comparators[0], names))


def called(node: Any, value: Any, names: Mapping[str, Any]) -> Any:
    function = chosen(FUNCTIONS, getattr(node.func, "id", None))
    options = {word.arg: value(word.value, names) for word in node.keywords if word.arg == "default"}
    if len(node.args) != 1 or len(options) != len(node.keywords):
        raise Refused("a function has one list, and perhaps a default")
    return function(several(value(node.args[0], names)), **options)


def several(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Refused(f"{value!r:.20} is no list")
    return value


def selected(node: Any, value: Any, names: Mapping[str, Any]) -> Any:
    if not isinstance(node.slice, ast.Slice):
        return several(value(node.value, names))[number(value(node.slice, names))]
    ends = (node.slice.lower, node.slice.upper, node.slice.step)
    return several(value(node.value, names))[slice(*(None if end is None else number(value(end, names)) for end in ends))]


def comprehended(node: Any, value: Any, names: Mapping[str, Any]) -> list[Any]:
    if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
        raise Refused("one loop with one name")
    loop = node.generators[0]
    each = ({**names, loop.target.id: one} for one in several(value(loop.iter, names)))
    return [value(node.elt, inside) for inside in each if all(value(test, inside) for test in loop.ifs)]


EXPRESSIONS: dict[type[Any], Callable[..., Any]] = {
    ast.Constant: constant,
    ast.Name: named,
    ast.BinOp: binary,
    ast.UnaryOp: minus,
    ast.Compare: compared,
    ast.Call: called,
    ast.Subscript: selected,
    ast.ListComp: comprehended,
}


def tried(program: str) -> list[Any]:
    """What it gives for each of INPUTS; None where it is refused."""

    def outcome(given: list[int]) -> Any:
        try:
            return run(program, given)
        except Refused:
            return None

    return [outcome(given) for given in INPUTS]


def executes_as(program: str, right: str) -> float:
    """1 where both give the same for every input, and something; and where they are the same to the letter."""
    found = tried(program)
    return float(program == right or (None not in found and found == tried(right)))


PROGRAMS = Corpus(
    name="programs",
    about="What a function does with a list, and the function in Python; scored by running it (metric `execution`)",
    source_suffix="said",
    target_suffix="py",
    sizes={"train": 6000, "valid": 300, "test": 300},
    draw=programs,
)
