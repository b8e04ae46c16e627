"""How probable each token of a long text is, given those before it."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float

from regard.data.batching import Integers
from regard.models.language_model import LanguageModel, following

LANE, EARLIER = 1 << 14, 1 << 9  # tokens that one lane is asked for, and tokens that it reads before them


class Cut(NamedTuple):
    """A text in overlapping lanes."""

    places: Integers  # [lanes, time]
    asked: npt.NDArray[np.bool_]  # every token is asked for once, in a lane that has read at least so many before it


def cut(count: int, length: int, earlier: int) -> Cut:
    begins = np.arange(0, count, length)
    places = np.maximum(begins - earlier, 0)[:, None] + np.arange(min(length + earlier, count))
    return Cut(places, (places >= begins[:, None]) & (places < np.minimum(begins + length, count)[:, None]))


def log_probs(model: LanguageModel, text: Integers, budget: int) -> Float[np.ndarray, "tokens"]:
    """A recurrent model knows all that its lane has read, at least EARLIER tokens; a Transformer at least half a window.
    `budget` tokens are computed at a time."""
    size, window, found = model.decoder.state_size, model.window or len(text), np.zeros(len(text))
    lanes, asked = cut(len(text), LANE, EARLIER) if size else cut(len(text), window - window // 2, window // 2)
    rows = len(lanes) if size else max(budget // window, 1)
    for first in range(0, len(lanes), rows):
        state = model.decoder.output.weight.new_zeros(len(lanes[first : first + rows]), size or 0)
        time = max(budget // len(lanes), 1) if size else window
        for begin in range(0, lanes.shape[1], time):
            part = slice(first, first + rows), slice(begin, begin + time)
            places, wanted = lanes[part], asked[part]
            both = text[
                np.minimum(np.concatenate([places[:, :1] - 1, places], axis=1), len(text) - 1)
            ]  # before 0: the last END
            before, target = torch.split(torch.from_numpy(both).to(state.device), [1, places.shape[1]], dim=1)
            steps, state = model.read_on(following(before[:, 0], target), state)
            found[places[wanted]] = model.decoder.log_probs(steps, target).double().cpu().numpy()[wanted]
    return found
