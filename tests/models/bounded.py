"""What a search takes: a step under a maximum length, its state, and the first words."""

import torch
from tiny import START

from regard.decoding.rules import MaxLength, ruled


def bounded(step, state, limits, start=START):
    limits = torch.as_tensor(limits)
    return *ruled(step, state, [MaxLength(limits)]), torch.full_like(limits, start)
