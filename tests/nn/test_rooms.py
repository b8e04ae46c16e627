"""How nn is laid out: one name, one meaning; Triton where its kernels run; one typed way to call a function of autograd."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

import regard.nn
from regard.nn.autograd import apply
from regard.nn.lengths import length_mask

ROOT = Path(regard.nn.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def test_no_class_name_means_two_things():
    trees = [ast.parse(path.read_text()) for path in FILES]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_importing_nn_imports_no_kernel():
    """Every module but those that are written in Triton, which the others import where they launch them."""
    found = [path for path in FILES if "import triton\n" not in path.read_text()]
    names = ["regard.nn." + path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in found]
    program = f"import importlib, sys\nfor name in {names}: importlib.import_module(name.removesuffix('.__init__'))\n"
    program += "print([name for name in sys.modules if name.startswith('regard') and hasattr(sys.modules[name], 'tl')])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_lengths_say_what_is_no_padding():
    assert length_mask(torch.tensor([3, 0, 1]), 3).tolist() == [[True] * 3, [False] * 3, [True, False, False]]


def test_a_function_of_autograd_is_applied():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inputs, factor):
            ctx.factor = factor
            return inputs * factor

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.factor, None

    inputs = torch.ones(2, requires_grad=True)
    outputs = apply(Twice, inputs, 2.0)
    outputs.sum().backward()
    assert (outputs.tolist(), inputs.grad.tolist()) == ([2.0, 2.0], [2.0, 2.0])
    with pytest.raises(TypeError):
        apply(Twice, inputs)
