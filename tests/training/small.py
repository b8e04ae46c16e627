"""Small runs on generated data."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from kills import SMALL, digests, small_recipe, torment

__all__ = ["SMALL", "digests", "small_recipe", "torment"]
