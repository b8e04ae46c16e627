"""How probable each token of a long text is, given those before it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batching import Integers
from regard.decoding.recent import PIECE, Past, Recent, with_recent
from regard.models.language_model import LanguageModel, following
from regard.nn.linear import at_least_float32

LANE, EARLIER = 1 << 14, 1 << 9  # tokens that one lane is asked for, and tokens that it reads before them


class Cut(NamedTuple):
    """A text in overlapping lanes."""

    places: Integers  # [lanes, time]
    asked: npt.NDArray[np.bool_]  # every token is asked for once, in a lane that has read at least so many before it


def cut(count: int, length: int, earlier: int) -> Cut:
    begins = np.arange(0, count, length)
    places = np.maximum(begins - earlier, 0)[:, None] + np.arange(min(length + earlier, count))
    return Cut(places, (places >= begins[:, None]) & (places < np.minimum(begins + length, count)[:, None]))


def log_probs(model: LanguageModel, text: Integers, budget: int, recent: Recent | None = None) -> Float[np.ndarray, "tokens"]:
    """A recurrent model knows all that its lane has read, at least EARLIER tokens and all that it looks back at; a Transformer
    at least half a window. `budget` tokens are computed at a time. `recent`: words come again."""
    size, window, found = model.decoder.state_size, model.window or len(text), np.zeros(len(text))
    earlier, piece = (EARLIER, len(text)) if recent is None else (max(EARLIER, recent.words), PIECE)
    lanes, asked = cut(len(text), LANE, earlier) if size else cut(len(text), window - window // 2, window // 2)
    rows = len(lanes) if size else max(budget // window, 1)
    time = min(max(budget // len(lanes), 1), piece) if size else window  # a Transformer reads its window in one
    for first in range(0, len(lanes), rows):
        part = slice(first, first + rows)
        for begin, each in read_along(model, text, lanes[part], time, recent):
            here = part, slice(begin, begin + each.shape[1])
            found[lanes[here][asked[here]]] = each.double().cpu().numpy()[asked[here]]
    return found


def read_along(
    model: LanguageModel, text: Integers, lanes: Integers, time: int, recent: Recent | None
) -> Iterator[tuple[int, Tensor]]:
    """Where `time` steps of all lanes begin, and how probable the token of each was."""
    like = model.decoder.output.weight
    state, past = like.new_zeros(len(lanes), model.decoder.state_size or 0), None
    for begin in range(0, lanes.shape[1], time):
        places = lanes[:, begin : begin + time]
        both = text[np.minimum(np.concatenate([places[:, :1] - 1, places], axis=1), len(text) - 1)]  # before 0: the last END
        before, target = torch.split(torch.from_numpy(both).to(like.device), [1, places.shape[1]], dim=1)
        steps, state = model.read_on(following(before[:, 0], target), state)
        each = model.decoder.log_probs(steps, target)
        if recent is not None:
            past = past or Past.nothing(at_least_float32(steps.outputs), target)
            each, past = with_recent(each, steps.outputs, target, past, recent)
        yield begin, each
