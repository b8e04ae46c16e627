"""What a program is told while its model trains, and how it ends the training or leaves it for later."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Callback = Callable[[int, dict[str, Any]], object]  # of the step, and numbers by name


class Callbacks(NamedTuple):
    """Called in the first process. One that returns True ends the training: what there is by then is validated, and the best
    of it becomes the model. Other answers change nothing."""

    on_step: Callback | None = None  # every `training.log_every` updates: the loss and its parts, lr, tokens
    on_validation: Callback | None = None  # after every validation: its scores
    # before every update, of the updates that are done: True leaves the run there, saved, as a signal does; `resume` goes on
    pause: Callable[[int], bool] | None = None
    began: float | None = None  # when `training.minutes` began, by time.monotonic(); None: with the first update

    def pauses(self, step: int) -> bool:
        return self.pause is not None and self.pause(step)


NOBODY = Callbacks()


def wants_to_stop(callback: Callback, step: int, numbers: Mapping[str, Any]) -> bool:
    answer = callback(step, dict(numbers))
    return isinstance(answer, bool | np.bool_) and bool(answer)
