"""Small runs on generated data."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from kills import SMALL, digests, small_recipe, torment

from regard.corpora import Corpus

__all__ = ["SMALL", "digests", "shortened", "small_recipe", "torment"]


def shortened(corpus: Corpus) -> Corpus:
    return replace(corpus, sizes={split: rows if split == "train" else 60 for split, rows in corpus.sizes.items()})
