"""Triton's kernels on a CPU, three files a process of their own: Triton reads TRITON_INTERPRET when it is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("interpreted_*.py"))
PATHS = [f"{HERE / 'test_passes.py'}::test_every_kernel_equals_the_plain_path{end}" for end in ("", "_where_one_key_is_picked")]
HALVES = {
    "some": FILES[::2],
    "others": [*FILES[1::2], *PATHS],
}  # a process for each of two cores, for what it takes to start one


def run_alone(files, *words, **variables):
    pytest.importorskip("triton")
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""} | variables
    # no checks of shapes inside kernels; NumPy warns of log 0, of e^180, and that Triton's use of it is deprecated
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-W", "ignore"]
    command = [sys.executable, "-m", "pytest", *options, *words, *map(str, files)]
    done = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("half", HALVES)
def test_kernels_under_tritons_interpreter(half):
    run_alone(HALVES[half], "-m", "not slow", TRITON_INTERPRET="1")


@pytest.mark.slow
def test_more_of_the_kernels_under_tritons_interpreter():
    run_alone(FILES, "-m", "slow", TRITON_INTERPRET="1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flash", "layers"])
def test_kernels_compile_for_a_gpu_and_fit(name):
    run_alone([HERE / f"compiled_{name}.py"])


def test_there_are_such_files():
    assert [file.stem.removeprefix("interpreted_") for file in FILES] == [
        "additive",
        "additive_step",
        "flash",
        "layers",
        "scans",
        "words",
    ]
