"""Tests of the tests: they draw nothing at import, their numbers do not depend on their order, they leave things alone."""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DRAWS = re.compile(
    r"torch\.(rand|randn|randint|randperm)(_like)?|torch\.(normal|bernoulli|multinomial|poisson|manual_seed|seed)"
    r"|torch\.nn\.init\.\w+|(np|numpy)\.random\.\w+|random\.\w+|.*\.(normal_|uniform_|bernoulli_|exponential_|random_)"
)
GENERATORS = re.compile(r"((np|numpy)\.)?random\.(Random|default_rng|RandomState)|default_rng|Random")


def at_import(node):
    """What runs when a module is imported: all but the bodies of functions; their decorators and defaults do."""
    if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
        yield from at_import(node.args)
        for decorator in getattr(node, "decorator_list", []):
            yield from at_import(decorator)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from at_import(child)


def calls(nodes, pattern):
    return [node for node in nodes if isinstance(node, ast.Call) and pattern.fullmatch(ast.unparse(node.func))]


def drawn_at_import(tree):
    """Calls that draw, but for those from a generator with a seed of its own."""
    seeded = calls(at_import(tree), GENERATORS)
    return [
        f"line {call.lineno}: {ast.unparse(call)}"
        for call in calls(at_import(tree), DRAWS)
        if call not in seeded and not any(keyword.arg == "generator" for keyword in call.keywords)
    ]


def without_a_seed(tree):
    return [f"line {call.lineno}: {ast.unparse(call)}" for call in calls(ast.walk(tree), GENERATORS) if not call.args]


@pytest.mark.parametrize("path", sorted(HERE.rglob("*.py")), ids=lambda path: str(path.relative_to(HERE)))
def test_nothing_is_drawn_at_import_and_every_generator_has_a_seed(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not drawn_at_import(tree) + without_a_seed(tree)
