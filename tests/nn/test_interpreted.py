"""Triton's kernels on a CPU, in a process of their own: Triton reads TRITON_INTERPRET when it is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("interpreted_*.py"))
PATHS = [f"{HERE / 'test_passes.py'}::test_every_kernel_equals_the_plain_path{end}" for end in ("", "_where_one_key_is_picked")]
LATER = [HERE / "interpreted_additive.py", HERE / "interpreted_flash.py"]  # odd shapes of kernels that PATHS compares as well
SOON = [file for file in FILES if file not in LATER]


def run_alone(files, *words, **variables):
    pytest.importorskip("triton")
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""} | variables
    # no checks of shapes inside kernels; NumPy warns of log 0, of e^180, and that Triton's use of it is deprecated
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-W", "ignore"]
    command = [sys.executable, "-m", "pytest", *options, *words, *map(str, files)]
    done = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout


def test_kernels_under_tritons_interpreter():
    run_alone([*SOON, *PATHS], "-m", "not slow", TRITON_INTERPRET="1")


@pytest.mark.slow
@pytest.mark.parametrize(("files", "words"), [(LATER, ()), (SOON, ("-m", "slow"))], ids=["later", "soon"])
def test_more_of_the_kernels_under_tritons_interpreter(files, words):
    run_alone(files, *words, TRITON_INTERPRET="1")


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
        "steps",
        "words",
    ]
