"""What the README promises of the demo, measured: `make test-slow`."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_the_demo_translates_and_aligns(tmp_path):
    words = [sys.executable, "-m", "regard"]
    subprocess.run([*words, "train", "demo", "--quiet", "-r", str(tmp_path / "demo")], check=True, timeout=900)
    done = subprocess.run([*words, "evaluate", str(tmp_path / "demo"), "--json"], check=True, capture_output=True, text=True)
    scores = json.loads(done.stdout)
    assert scores["test"]["BLEU"] >= 95
    assert scores["test"]["alignment error_rate"] <= 0.15
    assert {"test-long", "test-names"} <= scores.keys()
