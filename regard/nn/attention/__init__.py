"""The attention family: score x scope x selection x heads."""

from regard.nn.attention.additive import ACTIVATIONS
from regard.nn.attention.attend import PATHS, Looks, Task, attend, mix, normalise
from regard.nn.attention.attention import Attention, Glance, Prepared, Read, Trace, Where
from regard.nn.attention.choice import Choice
from regard.nn.attention.scopes import SCOPES, Reach, Scope
from regard.nn.attention.scores import SCORES, Score
from regard.nn.attention.selections import SELECTIONS, Soft
from regard.nn.attention.self_attention import Cache, Moment, SelfAttention

__all__ = [
    "ACTIVATIONS", "PATHS", "SCOPES", "SCORES", "SELECTIONS", "Attention", "Cache", "Choice", "Glance", "Looks", "Moment",
    "Prepared", "Reach", "Read", "Scope", "Score", "SelfAttention", "Soft", "Task", "Trace", "Where",
    "attend", "mix", "normalise",
]  # fmt: skip
