"""Triton's kernels on a CPU, each file in a process of its own: Triton reads TRITON_INTERPRET when it is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("interpreted_*.py"))


def run_alone(file, **variables):
    pytest.importorskip("triton")
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""} | variables
    # no checks of shapes inside kernels; NumPy warns of log 0, of e^180, and that Triton's use of it is deprecated
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-W", "ignore"]
    command = [sys.executable, "-m", "pytest", *options, str(file)]
    done = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_kernels_under_tritons_interpreter(file):
    run_alone(file, TRITON_INTERPRET="1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flash", "layers"])
def test_kernels_compile_for_a_gpu_and_fit(name):
    run_alone(HERE / f"compiled_{name}.py")


def test_there_are_such_files():
    assert [file.stem.removeprefix("interpreted_") for file in FILES] == [
        "additive",
        "additive_step",
        "flash",
        "layers",
        "scans",
        "words",
    ]
