"""The attention family: score x scope x selection x heads."""

from regard.nn.attention.additive import ACTIVATIONS
from regard.nn.attention.attend import PATHS, AttentionTask, HeadOutputs, attend, mix, normalise
from regard.nn.attention.attention import (
    Attention,
    AttentionOutput,
    AttentionState,
    AttentionStep,
    PreparedMemory,
    QueryPositions,
)
from regard.nn.attention.scopes import SCOPES, KeyRange, Scope
from regard.nn.attention.scores import SCORES, Score
from regard.nn.attention.selections import SELECTIONS, HardSample, Soft
from regard.nn.attention.self_attention import Cache, SelfAttention, StepPosition

__all__ = [
    "ACTIVATIONS", "PATHS", "SCOPES", "SCORES", "SELECTIONS", "Attention", "AttentionOutput", "AttentionState", "AttentionStep",
    "AttentionTask", "Cache", "HardSample", "HeadOutputs", "KeyRange", "PreparedMemory", "QueryPositions", "Scope", "Score",
    "SelfAttention", "Soft", "StepPosition", "attend", "mix", "normalise",
]  # fmt: skip
