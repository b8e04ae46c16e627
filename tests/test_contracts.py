"""Promises about the code as a whole."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "regard").rglob("*.py"))


def functions():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                documented = node.body[0].end_lineno - node.body[0].lineno + 1 if ast.get_docstring(node) else 0
                yield path, node, node.end_lineno - node.lineno + 1 - documented


def test_files_and_functions_stay_small():
    assert not {path: lines for path in FILES if (lines := len(path.read_text().splitlines())) > 300}
    sizes = sorted(size for _, _, size in functions())
    assert sizes[len(sizes) // 2] <= 8
    assert sizes[len(sizes) * 9 // 10] <= 30


def test_no_room_without_a_name():
    assert not [path for path in FILES if path.stem in {"utils", "common", "helpers", "misc"}]


def test_nothing_that_could_run_code_from_data():
    bad = re.compile(r"\btorch\.load\(|\bpickle\b|\beval\(\s*[\"']|yaml\.load\(|\bexec\(")
    own = "imports.py"  # runs the file that people name themselves with --import, and nothing that a directory names
    assert not [path for path in FILES if path.name != own and bad.search(path.read_text(encoding="utf-8"))]


def test_every_file_says_what_it_is():
    silent = [path for path in FILES if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert not [path for path in silent if path.name not in ("__init__.py", "__main__.py")]


def test_arrows_point_down():
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_exported_names():
    import regard

    assert regard.__all__ == ["Error", "__version__", "ensemble", "load", "read_recipe", "train", "tune"]
    assert all(getattr(regard, name) is not None for name in regard.__all__)
    assert dir(regard) == sorted(regard.__all__)


def test_importing_the_package_opens_no_socket_and_imports_no_torch():
    code = """
import sys
sys.addaudithook(lambda event, _: sys.exit(f"{event}") if event.startswith("socket.") else None)
import regard, regard.cli, regard.recipe
assert "torch" not in sys.modules
import regard.run
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_version_is_told_once():
    import tomllib

    import regard

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == regard.__version__
