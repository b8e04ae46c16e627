"""Triton's kernels on a CPU: Triton reads TRITON_INTERPRET when it is imported, so each file has a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.glob("interpreted_*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_kernels_under_tritons_interpreter(file):
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    # no checks of shapes inside kernels; NumPy warns of log 0, of e^180, and that Triton's use of it is deprecated
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-W", "ignore"]
    command = [sys.executable, "-m", "pytest", *options, str(file)]
    done = subprocess.run(command, cwd=file.parents[2], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_there_are_such_files():
    assert {file.stem for file in FILES} == {
        "interpreted_scans",
        "interpreted_additive",
        "interpreted_flash",
        "interpreted_glance",
    }
