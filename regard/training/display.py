"""What a person sees while training: a bar on a terminal, plain lines elsewhere, TensorBoard events beside."""

import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from regard.training.pacing import Timing

QUIET = 2  # seconds of a run, and between two words on how long it takes


class Log:
    """Standard error for as long as somebody reads it: a run goes on without its log."""

    def __init__(self) -> None:
        self.stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # None where it was closed from the start

    def write(self, text: str) -> int:
        return self.attempt("write", text) or 0

    def flush(self) -> None:
        self.attempt("flush")

    def attempt(self, action: str, *arguments: str) -> Any:
        try:
            return None if self.stream is None else getattr(self.stream, action)(*arguments)
        except OSError:  # its reader has gone (EPIPE), its disk is full, its terminal was closed
            abandon(self.stream)
            return None

    def isatty(self) -> bool:
        return self.stream is not None and self.stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def abandon(stream: IO[str]) -> None:
    """What was and will be written to this stream goes nowhere, so that Python can still flush it when it leaves."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except OSError:
        pass  # a stream without a file of its own


class Display:
    """Silent unless `talk`. The clock lives here, never in the journal."""

    def __init__(self, updates: int, step: int, events: Path | None, talk: bool) -> None:
        self.updates, self.talk, self.console = updates, talk, Console(file=cast(IO[str], Log()))
        self.clock, self.tokens = time.monotonic(), 0
        self.began, self.first = self.clock, step
        self.promised: float | None = None  # seconds that the run was said to take
        self.told_at = self.clock
        self.writer: Any = tensorboard(events) if events is not None else None
        self.bar = bar(self.console) if talk and updates and Log().isatty() else None
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("", total=updates, completed=step, facts="")

    def say(self, text: str) -> None:
        if self.talk:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def advance(self, step: int, tokens: int) -> None:
        self.tokens += tokens
        if self.bar is not None:
            self.bar.update(self.task, completed=step)

    def tell_time(self, step: int, timing: Timing, next_one: int, validations: int) -> None:
        """When the first updates have shown how long one takes; and again where it takes half or twice as long as was said.
        So many `validations` are to come, the next one at the step `next_one`."""
        if not timing.known or timing.clock() - self.told_at < QUIET:
            return
        left = timing.left(self.updates - step, validations)
        now = timing.clock() - timing.began
        if self.promised is None:
            first = f"; a first model after {spoken(timing.left(next_one - step, 1))}" if validations > 1 else ""
            told = f"{self.updates - step:,} updates to go: about {spoken(left)}{first}"
        elif max(now + left, 1.0) > 2 * self.promised or self.promised > 2 * max(now + left, 1.0):
            was = max(self.promised - now, 0.0)
            told = f"{self.updates - step:,} updates to go: about {spoken(left)}, not {spoken(was)} as it seemed"
        else:
            return
        self.promised, self.told_at = now + left, timing.clock()
        self.say(told)

    def paced(self, step: int, before: int, updates: int, seconds: float) -> None:
        """From now on the updates go by the time, and not the time by the updates."""
        self.updates, self.told_at = updates, math.inf
        if self.bar is not None:
            self.bar.update(self.task, total=updates)
        self.say(f"step {step}: {updates:,} updates in all, no longer {before:,}, to be done after {spoken(seconds)}")

    def left(self, step: int) -> str:
        """Elapsed and still to go, for lines that have no bar."""
        took = time.monotonic() - self.began
        each = took / max(step - self.first, 1)
        return f"{spoken(took)} done, {spoken((self.updates - step) * each)} to go"

    def trained(self, step: int, loss: float, rate: float, parts: Mapping[str, float]) -> None:
        """One journal row's worth of training; `parts` of what is minimised beside the loss."""
        now = time.monotonic()
        speed, self.clock, self.tokens = self.tokens / max(now - self.clock, 1e-9), now, 0
        losses = {"loss": loss, **parts}
        told = "  ".join(f"{name} {value:.3f}" for name, value in losses.items())
        facts = f"{told}  lr {rate:.2e}  {speed:,.0f} tokens/s"
        if self.bar is not None:
            self.bar.update(self.task, facts=facts)
        else:
            self.say(f"step {step}/{self.updates}  {facts}  {self.left(step)}")
        scalars = {f"train/{name}": value for name, value in losses.items()}
        self.record(step, {**scalars, "lr": rate, "train/tokens_per_second": speed})

    def validated(self, step: int, scores: dict[str, float], best: bool) -> None:
        facts = "  ".join(f"{name} {value:.3f}" for name, value in scores.items())
        self.say(f"step {step}/{self.updates}  valid  {facts}{'  (best)' if best else ''}")
        self.record(step, {f"valid/{name}": value for name, value in scores.items()})
        self.clock, self.tokens = time.monotonic(), 0

    def first_loss(self, loss: float) -> None:
        """Before the first row of the journal: that something is learned at all."""
        self.say(f"step 1/{self.updates}  loss {loss:.3f}")

    def stopped(self, step: int, best: int, waited: int, perfect: bool) -> None:
        why = (
            "nothing better than step {}, whose score nothing can beat"
            if perfect
            else "no better score than step {}, and no lower loss"
        )
        self.say(f"stopped at step {step}: {waited} validations brought {why.format(best)} (training.patience)")

    def record(self, step: int, scalars: dict[str, float]) -> None:
        if self.writer is not None:
            for name, value in scalars.items():
                self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
        if self.writer is not None:
            self.writer.close()


def print_warning(text: str) -> None:
    Display(0, 0, None, True).say(f"warning: {text}")


def spoken(seconds: float) -> str:
    seconds = max(seconds, 0)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def bar(console: Console) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[facts]}"), TimeRemainingColumn())
    return Progress(*columns, console=console)


def tensorboard(folder: Path) -> Any:
    """A writer of TensorBoard events where the package is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
