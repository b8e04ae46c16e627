"""Law 8 on a GPU: every recipe in both precisions trains, validates, saves, loads, generates, is looked at and resumes."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest
from recipes_by_shape import DESCRIBERS, LABELLERS, WRITERS

from regard.corpora import CORPORA, write
from regard.recipe import Training

pytestmark = pytest.mark.gpu
SIDE_BY_SIDE = 14  # a GPU has room for as many, and a machine with one has the cores
PRECISIONS = get_args(Training.model_fields["precision"].annotation)


def run_one(name, precision, data, run):
    """The last lines of an error, or nothing; what was written is removed, for large models are gigabytes."""
    words = [sys.executable, Path(__file__).with_name("recipe_on_gpu.py"), name, precision, data, run]
    try:
        process = subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=500)
        return "" if process.returncode == 0 else process.stderr[-3000:]
    except subprocess.TimeoutExpired:
        return "not done after 500 seconds"
    finally:
        shutil.rmtree(run, ignore_errors=True)


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """All that are asked for, side by side, in processes of their own."""
    folder = tmp_path_factory.mktemp("recipes")
    for corpus in ("latin", "scenes"):
        write(CORPORA[corpus], folder / "data", seed=1, size=400)
    if "PYTEST_XDIST_WORKER" in os.environ:  # each worker is told of all tests, and all of them would run everything
        pytest.exit("run this file without -n: it runs its recipes side by side itself", returncode=2)
    cases = [item.callspec.params for item in request.session.items if item.module is sys.modules[__name__]]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {
            (name, precision): pool.submit(run_one, name, precision, folder / "data", folder / f"{name}-{precision}")
            for name, precision in ((case["name"], case["precision"]) for case in cases)
        }


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", [*WRITERS, *DESCRIBERS, *LABELLERS])
def test_a_recipe_goes_all_the_way(name, precision, outcomes):
    assert outcomes[name, precision].result() == ""
