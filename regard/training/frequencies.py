"""Training that begins with how often each word is written: the bias of the output layer is log p(word).

Where it begins at 0, frequencies are what a network learns first. Adam moves every weight by about the learning rate, so they
are learned fastest through states that are the same at every step. Such states ask attention nothing, and what is projected
from them grows until the tanh of an additive score is flat, or the softmax of a product is sure.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from regard.data.store import Sequences
from regard.data.tokenizer import END
from regard.errors import UserError

Integers = npt.NDArray[np.int64]
ROWS = 1 << 14  # that are counted at a time


def output_bias(model: nn.Module) -> nn.Parameter:
    bias = getattr(getattr(getattr(model, "decoder", None), "output", None), "bias", None)
    if not isinstance(bias, nn.Parameter):
        raise UserError(
            "training.frequencies: the model has no layer over words with a bias (Transformers: model.decoder.output_bias=true)"
        )
    return bias


def word_counts(side: Sequences, rows: Integers, size: int) -> Integers:
    """How often training asks for each of `size` words; for the end mark once a row."""
    found = np.zeros(size, np.int64)
    for first in range(0, len(rows), ROWS):
        words, _ = side.gather(rows[first : first + ROWS])
        found += np.bincount(words.astype(np.int64), minlength=size)
    found[END] += len(rows)
    return found


@torch.no_grad()
def start_frequencies(model: nn.Module, counts: Integers | None, begun: bool, say: Callable[[str], None]) -> None:
    """b_w = log((n_w + 1) / (N + V)): words that are never written stay possible."""
    if counts is None or begun:
        return
    bias = output_bias(model)
    bias.copy_(torch.from_numpy(np.log((counts + 1) / (counts.sum() + len(counts)))))
    say(f"the output layer begins with how frequent its {len(counts):,} words are")
