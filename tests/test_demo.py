"""What the README promises of the demo, measured: `make test-slow`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
README = Path(__file__).parents[1] / "README.md"


def test_the_demo_translates_and_aligns(tmp_path):
    words = [sys.executable, "-m", "regard"]
    subprocess.run([*words, "train", "demo", "--quiet", "-r", str(tmp_path / "demo")], check=True, timeout=900)
    done = subprocess.run([*words, "evaluate", str(tmp_path / "demo"), "--json"], check=True, capture_output=True, text=True)
    scores = json.loads(done.stdout)
    assert scores["test"]["BLEU"] >= 95
    assert scores["test"]["alignment error_rate"] <= 0.15
    assert {"test-long", "test-names"} <= scores.keys()
    (line,) = re.findall(
        r"^echo .* regard generate runs/demo .*# prints: .*$", README.read_text(encoding="utf-8"), re.MULTILINE
    )
    text, wanted = re.fullmatch(r'echo "(.*)" \| regard generate runs/demo +# prints: (.*)', line).groups()
    answered = subprocess.run(
        [*words, "generate", str(tmp_path / "demo")], input=text, check=True, capture_output=True, text=True
    )
    assert answered.stdout == f"{wanted}\n"
    looked = subprocess.run([*words, "look", str(tmp_path / "demo"), text], check=True, capture_output=True, text=True)
    assert "garden" in looked.stdout
