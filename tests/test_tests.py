"""Tests of the tests: they draw nothing at import, their numbers do not depend on their order, they leave things alone."""

import ast
import itertools
import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

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


@pytest.mark.parametrize(
    "line",
    [
        "ROWS = torch.randint(9, (2, 3))",
        "torch.manual_seed(1)",
        "class Some:\n    size = random.random()",
        "def some(rows=np.random.rand(3)): pass",
        "@pytest.mark.parametrize('rows', [torch.rand(3)])\ndef test_some(rows): pass",
        "TABLE = {name: torch.zeros(3).normal_() for name in 'ab'}",
        "WEIGHTS = (lambda rows=torch.randn(3): rows)()",
    ],
)
def test_what_is_drawn_at_import_is_seen(line):
    assert drawn_at_import(ast.parse(line))


@pytest.mark.parametrize(
    "line",
    [
        "ROWS = torch.zeros(3)",
        "def test_some(): return torch.rand(3)",
        "CHANCE = random.Random(1)",
        "ROWS = torch.rand(3, generator=torch.Generator().manual_seed(1))",
        "ROWS = np.random.default_rng(1).random(3)",
        "MAKE = lambda: torch.rand(3)",
    ],
)
def test_what_is_drawn_later_or_from_a_seed_is_no_fault(line):
    assert not drawn_at_import(ast.parse(line)) + without_a_seed(ast.parse(line))


def test_a_generator_without_a_seed_is_seen():
    lines = ["random.Random()", "np.random.default_rng()", "Random()"]
    assert all(without_a_seed(ast.parse(f"def test_some(): {line}")) for line in lines)


@pytest.fixture
def trial(pytester):
    """A folder of tests of its own with the conftest of these; returns what became of them."""
    pytester.makeconftest((HERE / "conftest.py").read_text(encoding="utf-8"))

    def run(*options, way="here", **files):
        pytester.makepyfile(**files)
        call = {"here": pytester.runpytest_inprocess, "apart": pytester.runpytest_subprocess}[way]
        return call("-p", "no:cacheprovider", "-p", "no:xdist", *options)

    return run


def test_a_module_that_draws_when_it_is_imported_is_not_collected(trial):
    lines = {"torch": "torch.nn.Linear(2, 2)", "numpy": "np.random.rand()", "random": "random.random()"}
    head = "import random, torch\nimport numpy as np\n"
    files = {f"help_{name}": f"{head}def build(): return {line}\nBUILT = build()" for name, line in lines.items()}
    files |= {f"test_{name}": f"import help_{name}\ndef test_bad(): pass" for name in lines}
    done = trial(test_good="".join([head, *(f"def test_{name}(): {line}\n" for name, line in lines.items())]), **files)
    done.assert_outcomes(errors=3)
    for name in lines:
        done.stdout.fnmatch_lines([f"test_{name}.py: random numbers of {name} are drawn or seeded at import*"])


DRAWING = """
import random
import numpy as np
import pytest

pytest_plugins = ["pytester"]
import torch

def draw():
    return [float(torch.rand(())), float(np.random.rand()), random.random()]

@pytest.fixture(scope="module")
def shared():
    return draw()

@pytest.fixture(scope="module", params=[1, 2])
def each(request):
    return draw()

@pytest.fixture
def own(shared):
    return draw()

def note(request, *numbers):
    with open("numbers", "a") as file:
        print(request.node.name, *numbers, file=file)

def test_shared(request, shared):
    note(request, draw(), shared)

def test_own(request, own):
    note(request, draw(), own)

def test_each(request, each):
    note(request, draw(), each)

def test_asked_for_on_the_way(request):
    first = draw()
    note(request, first, request.getfixturevalue("shared"), draw())

def test_bare(request):
    note(request, draw())
"""


def test_numbers_depend_neither_on_the_order_nor_on_what_else_runs(trial, pytester):
    found, orders = {}, set()
    for options in (["-k", "bare"], ["-k", "on_the_way"], ["-k", "own"], *(["--shuffle", str(seed)] for seed in range(1, 5))):
        pytester.path.joinpath("numbers").unlink(missing_ok=True)
        assert trial(*options, test_drawing=DRAWING).ret == 0
        lines = pytester.path.joinpath("numbers").read_text().splitlines()
        orders.add(tuple(line.split()[0] for line in lines))
        for line in lines:
            name, numbers = line.split(maxsplit=1)
            assert found.setdefault(name, numbers) == numbers
    assert len(found) == 6
    assert len(orders) == 7
    assert len(set(re.findall(r"0\.\d+", " ".join(found.values())))) == 3 * 6  # the test's own, one after, and four of fixtures


def test_a_module_stays_together_in_any_order(trial):
    """Or its fixtures would be made anew for each of its tests."""
    files = {f"test_{name}": "".join(f"def test_{number}(): pass\n" for number in range(5)) for name in "abc"}
    lines = trial("--collect-only", "-q", "--shuffle", "1", **files).outlines
    names = [line for line in lines if "::" in line]
    assert names != sorted(names)
    assert len(names) == 15
    assert len(list(itertools.groupby(names, lambda name: name.partition("::")[0]))) == 3


CHANGES = {
    "torch.set_num_threads(2)": "torch.get_num_threads() from 1 to 2",
    "torch.set_default_dtype(torch.float64)": "torch.get_default_dtype() from torch.float32 to torch.float64",
    "torch.use_deterministic_algorithms(True)": "deterministic algorithms from False to True",
    "torch.set_grad_enabled(False)": "torch.is_grad_enabled() from True to False",
    "torch.set_float32_matmul_precision('medium')": "the precision of float32 products from highest to medium",
    "setattr(torch.backends.cudnn, 'allow_tf32', True)": "cudnn.allow_tf32 from False to True",
    "os.chdir('/')": "to /",
    "os.environ.update(REGARD_LEFT='1')": "the environment in ['REGARD_LEFT']",
}


def test_a_test_that_changes_what_all_share_fails_and_the_next_finds_it_as_it_was(trial):
    """In a process of its own: torch imports its compiler when it is told to be deterministic."""
    tests = "".join(f"def test_{number}(): {line}\n" for number, line in enumerate(CHANGES))
    done = trial(way="apart", test_some=f"import os, torch\n{tests}def test_good(): pass")
    done.assert_outcomes(passed=len(CHANGES) + 1, errors=len(CHANGES))
    for number, said in enumerate(CHANGES.values()):
        (line,) = (line for line in done.outlines if line.startswith(f"test_some.py::test_{number} changes what all"))
        assert line.endswith(said)
        assert ";" not in line  # what the test before it changed was put back
