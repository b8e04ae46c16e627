"""The attention family: score x scope x selection."""

from regard.nn.attention.attend import attend, mix, normalise
from regard.nn.attention.scores import SCORES, Score

__all__ = ["SCORES", "Score", "attend", "mix", "normalise"]
