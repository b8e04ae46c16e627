"""Train a recipe for so many seconds, whatever the machine can do in them, and keep its best weights.

    python benchmarks/by_the_clock.py SECONDS RUN RECIPE [KEY=VALUE ...]
    regard evaluate RUN --import benchmarks/by_the_clock.py ...

The rate falls as half a cosine of the time that has passed, from the process's start on, where the recipe's schedule counts
updates: on a machine with other work nobody knows how many there will be. Prints each validation, and at the end how many there
were.
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from regard import run
from regard.overrides import override
from regard.recipe import Recipe, parse, read_values
from regard.training.callbacks import Callbacks
from regard.training.schedules import SCHEDULES, Schedule, warm

MANY = 10_000_000  # updates: more than there is time for


class Clock:
    def __init__(self, seconds: float) -> None:
        self.begin, self.seconds, self.done = time.monotonic(), seconds, 0

    def passed(self) -> float:
        """The share of the time."""
        return min(1.0, (time.monotonic() - self.begin) / self.seconds)

    def share(self, step: int, warmup: int, updates: int) -> float:
        """Of the highest rate."""
        return warm(step, warmup) * 0.5 * (1.0 + math.cos(math.pi * self.passed()))

    def over(self, step: int, numbers: dict[str, Any]) -> bool:
        self.done = step
        return self.passed() >= 1

    def tell(self, step: int, scores: dict[str, float]) -> bool:
        print(json.dumps({"step": step, "seconds": round(time.monotonic() - self.begin), **scores}), flush=True)
        return self.over(step, {})


CLOCK = Clock(math.inf)
SCHEDULES["clock"] = Schedule(CLOCK.share)


def main(seconds: str, folder: str, recipe: str, *overrides: str) -> None:
    CLOCK.seconds = float(seconds)
    values = override(read_values(recipe), [*overrides, "training.schedule=clock", f"training.updates={MANY}"])
    callbacks = Callbacks(on_step=CLOCK.over, on_validation=CLOCK.tell)
    run.train(parse(Recipe, values), Path(folder), talk=False, callbacks=callbacks)
    print(json.dumps({"run": folder, "updates": CLOCK.done, "seconds": round(time.monotonic() - CLOCK.begin)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
