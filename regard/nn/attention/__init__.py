"""The attention family: score x scope x selection x heads."""

from regard.nn.attention.additive import ACTIVATIONS
from regard.nn.attention.attend import PATHS, Looks, Task, attend, mix, normalise
from regard.nn.attention.attention import Attention, Glance, Prepared, Read, Trace
from regard.nn.attention.choice import Choice
from regard.nn.attention.scopes import SCOPES, Reach, Scope
from regard.nn.attention.scores import SCORES, Score
from regard.nn.attention.selections import SELECTIONS, Soft

__all__ = [
    "ACTIVATIONS", "PATHS", "SCOPES", "SCORES", "SELECTIONS", "Attention", "Choice", "Glance", "Looks", "Prepared", "Reach",
    "Read", "Scope", "Score", "Soft", "Task", "Trace", "attend", "mix", "normalise",
]  # fmt: skip
