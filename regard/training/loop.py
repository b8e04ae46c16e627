"""The training loop, top to bottom."""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.data.batching import Batch, Integers
from regard.data.sealed import sweep
from regard.models import Model
from regard.models.device import autocast, draw_from, on_device
from regard.recipe import Training
from regard.training.callbacks import NOBODY, Callback, Callbacks, wants_to_stop
from regard.training.checkpoint import Best, Checkpoints, Progress, restore, save_weights, whole_weights
from regard.training.display import Display, print_warning
from regard.training.distributed import Group
from regard.training.expected import ExpectedReward, Propose
from regard.training.feed import Feed, pieces_of
from regard.training.interruption import interruptions
from regard.training.journal import Journal
from regard.training.objective import Objective, in_a_row, options_of
from regard.training.pacing import Pacing, pace_of, place_of
from regard.training.replay import Replay
from regard.training.schedules import SCHEDULES
from regard.training.timekeeping import Timekeeper
from regard.training.watch import FiniteCheck, first_bad, refuse_infinite, too_many

Validate = Callable[[], dict[str, float]]  # scores by metric, the loss among them
Rank = Callable[[Mapping[str, float]], float]  # of a validation's scores: higher is better
TOO_MANY_SKIPPED = 10


class Ending(NamedTuple):
    progress: Progress
    signal: int | None  # that asked us to stop, if one did
    paused: bool = False  # left to be resumed, as `Callbacks.pause` asked
    pacing: Pacing | None = None  # the clock of a run with `minutes`


class Trainer:
    """One run: its model, its data, its directory (None: nothing is kept). `run` is the loop; the rest are its sentences."""

    def __init__(
        self, model: Model, feed: Feed, training: Training, directory: Path | None,
        group: Group, validate: Validate, propose: Propose | None = None, identity: Mapping[str, Any] | None = None,
        rank: Rank = lambda scores: -scores["loss"], callbacks: Callbacks = NOBODY,
        perfect: float = math.nan, nothing: float = -math.inf,
    ) -> None:  # fmt: skip
        self.model, self.feed, self.training = model, feed, training
        self.directory, self.group, self.identity = directory, group, dict(identity or {})
        self.validate, self.rank, self.callbacks = validate, rank, callbacks
        self.perfect, self.nothing = perfect, nothing  # the rank that nothing beats (or NaN), and that of useless outputs
        self.checkpoints = None if directory is None else Checkpoints(directory / "checkpoints", print_warning)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(
            parameters, lr=training.learning_rate, betas=training.betas, eps=training.epsilon,
            weight_decay=training.weight_decay, fused=True,
        )  # fmt: skip
        self.clip = math.inf if training.clip is None else training.clip
        likelihood = Objective(model, *options_of(training))
        objective = likelihood if training.risk is None else ExpectedReward(likelihood, training.risk, propose)
        self.names = objective.names  # of what a window sums up
        self.objective: nn.Module = objective if group.world == 1 else DistributedDataParallel(objective)
        fixed = training.risk is None and not model.carries_state  # what is drawn has no fixed shape
        replays = training.capture and group.alone_on_gpu and fixed
        self.replay = Replay(likelihood, training.precision, group.device) if replays else None
        self.window = torch.zeros(len(self.names), dtype=torch.float64, device=group.device)
        self.watch = FiniteCheck(self.optimizer) if group.device.type == "cuda" else None

    def run(self, talk: bool = True) -> Ending:
        """From the latest checkpoint, or from nothing, to the last update."""
        progress, changed = self.resume()
        kept = self.directory if self.group.first else None
        self.journal = None if kept is None else Journal(kept / "journal.jsonl", progress.journal)
        if self.journal is not None and (lost := self.journal.lost):
            print_warning(f"{self.journal.path}: {lost:,} bytes of what happened before step {progress.step} are lost")
        updates, events = pace_of(self.training.updates, progress.pace).updates, None if kept is None else kept / "events"
        self.display = Display(updates, progress.step, events, talk and self.group.first)
        self.time = Timekeeper(self.training, self.group, progress, self.callbacks.began, self.display, self.note)
        if changed:
            self.note(step=progress.step, changed=changed)
        for key, (was, now) in changed.items():
            self.display.say(f"from step {progress.step} on {key}={now}, no longer {was}")
        try:
            signal = self.steps(progress)
        finally:
            self.close()
        paused = not signal and not progress.finished and progress.step < self.time.updates
        return Ending(progress, signal or None, paused, self.time.pacing)

    def steps(self, progress: Progress) -> int:
        """All updates that are left, or those before a pause; the signal that asked any process to stop earlier, or 0."""
        training, signal = self.training, 0
        with interruptions() as interruption:
            while progress.step < self.time.updates and not progress.finished:
                if self.callbacks.pause is not None and self.group.share(lambda: self.callbacks.pauses(progress.step)):
                    self.save(progress)
                    return 0
                progress.step += 1
                self.update(progress)
                self.time.updated()
                if progress.step % training.log_every == 0:
                    self.log(progress)
                last = progress.step == self.time.updates
                if progress.step == 1 < training.log_every:
                    self.display.first_loss(self.group.sum(self.window.clone())[0].item() / max(progress.window_tokens, 1))
                due = progress.step % training.validate_every == 0 or progress.step == training.validate_first
                if last or progress.finished or (due and self.time.affords()):
                    self.judge(progress)
                signal = 0 if last or progress.finished else self.group.largest(interruption.signal or 0)
                if progress.step % training.save_every == 0 or last or progress.finished or signal:
                    self.save(progress)
                if signal:
                    return signal
        if not progress.best:  # resumed with fewer updates than were made: judge what is there
            self.judge(progress)
        return 0

    def resume(self) -> tuple[Progress, dict[str, Any]]:
        """Where the newest whole checkpoint left off, and what of the recipe has changed since."""
        if self.directory is not None and self.group.first:
            sweep(self.directory / "best")
        path = None if self.checkpoints is None else self.group.share(self.checkpoints.latest)
        if path is None or self.directory is None:
            return Progress(), {}
        progress, changed = restore(path, self.model, self.optimizer, self.warn, self.identity)
        progress.best = whole_weights(self.directory / "best", progress.best, self.warn)
        if changed.keys() & {"training.updates", "training.minutes"}:
            progress.pace = None  # it was decided for others
        if self.group.first:  # which carries the sum of all
            carried = {"loss": progress.window_loss, **progress.window_parts}
            self.window.copy_(torch.tensor([carried.get(name, 0.0) for name in self.names], dtype=torch.float64))
        progress.finished = progress.out_of_patience(self.training.patience, self.perfect)  # which may have been changed since
        return progress, changed

    def warn(self, text: str) -> None:
        if self.group.first:
            print_warning(text)

    def update(self, progress: Progress) -> None:
        """One step of the optimizer on one batch of the plan, computed in pieces by all processes."""
        step = progress.step - 1  # from 0
        rows = self.feed.rows(step)
        tokens = self.feed.tokens(rows)
        draw_from(self.seed_of(progress.step), self.group.device)
        self.objective.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(progress)
        loss = self.backward(rows, tokens, step)
        progress.window_tokens += tokens
        if self.watch is None:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.step_or_skip(progress, rows, tokens, loss, norm)
        else:
            norm = nn.utils.get_total_norm([one.grad for one in self.model.parameters() if one.grad is not None])
            finite = self.watch.step(progress.step, rows, tokens, loss[0], norm, self.clip)
            self.window += torch.where(finite, loss[1:] * tokens, 0.0)
            self.settle(progress)
        self.optimizer.zero_grad(set_to_none=True)
        self.display.advance(progress.step, tokens)

    def step_or_skip(self, progress: Progress, rows: Integers, tokens: int, loss: Tensor, norm: Tensor) -> None:
        finite = bool(torch.isfinite(norm))
        if finite:
            self.optimizer.step()
            self.window += loss[1:] * tokens
        bad = f"the gradient of {first_bad(self.model)}" if not finite and bool(loss[0].isfinite()) else "the loss"
        self.judge_step(progress, progress.step, rows, tokens, None if finite else bad)

    def settle(self, progress: Progress, all_of_them: bool = False) -> None:
        """What a GPU has found out about its steps by now."""
        for done in self.watch.known(all_of_them) if self.watch is not None else ():
            bad = None if done.gradients else "the loss" if not done.loss else "a gradient"
            self.judge_step(progress, done.step, done.rows, done.tokens, bad)

    def judge_step(self, progress: Progress, step: int, rows: Integers, tokens: int, bad: str | None) -> None:
        if bad is None:
            progress.skipped_in_a_row = 0
        else:
            progress.window_tokens -= tokens
            self.skip(progress, step, rows, bad)

    def seed_of(self, step: int) -> int:
        """Dropout is a function of (seed, step, rank): nothing to store, nothing to restore."""
        return (self.training.seed * 1_000_003 + step * 8_191 + self.group.rank) & 0x7FFFFFFF

    def rate(self, progress: Progress) -> float:
        place = place_of(progress.step, progress.pace)
        share = SCHEDULES[self.training.schedule](place, self.training.warmup, self.training.updates)
        return self.training.learning_rate * share * progress.peak

    def backward(self, rows: Integers, tokens: int, step: int) -> Tensor:
        """Gradients of the mean loss a token over the whole batch; returns this process's share of the loss and its parts."""
        number = self.training.accumulate
        pieces = pieces_of(rows, number * self.group.world)[self.group.rank * number : (self.group.rank + 1) * number]
        if self.replay is not None:
            return torch.stack([self.replay(self.feed.batch(one.rows, step), one.weight / tokens) for one in pieces]).sum(0)
        total = torch.zeros(1 + len(self.names), dtype=torch.float64, device=self.group.device)
        for index, piece in enumerate(pieces):
            last = index == len(pieces) - 1
            quiet = nullcontext() if last or self.group.world == 1 else self.objective.no_sync()  # type: ignore[operator]
            with quiet:
                with autocast(self.group.device, self.training.precision):
                    loss = self.objective(self.batch(piece.rows, step))
                # DistributedDataParallel takes the mean over processes, and we want the sum
                (loss.total * (piece.weight / tokens) * self.group.world).backward()
            total += in_a_row(loss).detach() * (piece.weight / tokens)
        return total

    def batch(self, rows: Integers, step: int) -> Batch:
        return on_device(self.feed.batch(rows, step), self.group.device)

    def skip(self, progress: Progress, step: int, rows: Integers, what: str) -> None:
        """Nothing that is not finite reaches the weights: the step is left out, counted and named."""
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        self.note(step=step, skipped=f"{what} is not finite", rows=rows.tolist()[:8], of=len(rows))
        self.display.say(f"step {step}: {what} is not finite; the step is left out (rows {rows[:4]} ...)")
        if progress.skipped_in_a_row >= TOO_MANY_SKIPPED:
            raise too_many(step, what, TOO_MANY_SKIPPED, self.directory)

    def log(self, progress: Progress) -> None:
        self.settle(progress, all_of_them=True)
        rate, tokens = self.rate(progress), max(progress.window_tokens, 1)
        loss, *others = (total / tokens for total in self.group.sum(self.window.clone()).tolist())
        parts = dict(zip(self.names[1:], others, strict=True))
        row = {"loss": loss, "lr": rate, "tokens": progress.window_tokens, **parts}
        self.note(step=progress.step, **row)
        self.display.trained(progress.step, loss, rate, parts)
        self.window.zero_()
        progress.window_tokens = 0
        self.tell(self.callbacks.on_step, progress, row)

    def judge(self, progress: Progress) -> None:
        """Validate; keep the weights if they are among the best; decide whether to go on."""
        self.settle(progress, all_of_them=True)
        refuse_infinite(self.model, progress.step, self.directory)
        self.objective.eval()
        scores = self.group.share(self.validate)
        self.time.validated()
        found = Best(self.rank(scores), progress.step, scores["loss"])
        best = found.beats(progress.best, self.nothing)
        progress.waited = 0 if best else progress.waited + 1
        lower = progress.lowest is None or scores["loss"] < progress.lowest
        progress.lowest, progress.risen = (scores["loss"], 0) if lower else (progress.lowest, progress.risen + 1)
        if SCHEDULES[self.training.schedule].halves and progress.waited and progress.waited % 2 == 0:
            progress.peak /= 2
        # of equals, the first stays first
        ranking = sorted([*progress.best, found], key=lambda one: one.rank(self.nothing), reverse=True)
        progress.best = ranking[: self.training.average]
        tired = progress.out_of_patience(self.training.patience, self.perfect)
        progress.finished = progress.finished or tired
        self.note(step=progress.step, **{f"valid_{name}": value for name, value in scores.items()})
        self.display.validated(progress.step, scores, best)
        if tired:
            self.display.stopped(progress.step, progress.best[0].step, progress.waited, progress.best[0].score == self.perfect)
        if self.directory is not None and self.group.first and found in progress.best:
            save_weights(self.directory / "best", self.model, progress.step)
        self.tell(self.callbacks.on_validation, progress, scores)

    def tell(self, callback: Callback | None, progress: Progress, row: Mapping[str, Any]) -> None:
        if callback is not None and self.group.share(lambda: wants_to_stop(callback, progress.step, row)):
            progress.finished = True
            self.display.say(f"a callback ends the training at step {progress.step}")

    def save(self, progress: Progress) -> None:
        if self.directory is None or self.checkpoints is None:
            return
        self.settle(progress, all_of_them=True)
        refuse_infinite(self.model, progress.step, self.directory)
        window = self.group.sum(self.window.clone())
        if not self.group.first:
            self.window.zero_()  # the first process carries the sum of all
            return
        self.window.copy_(window)
        assert self.journal is not None
        threads, version, device = torch.get_num_threads(), torch.__version__, str(self.group.device)
        facts = {"threads": threads, "torch": version, "device": device, "identity": self.identity}
        loss, *others = window.tolist()
        parts = dict(zip(self.names[1:], others, strict=True))
        progress.seconds = self.time.spent
        state = replace(progress, window_loss=loss, window_parts=parts, journal=self.journal.settle())
        self.checkpoints.save(self.model, self.optimizer, state, facts)
        if not progress.skipped_in_a_row:  # what was good before things went wrong stays
            self.checkpoints.rotate(self.training.keep_last, self.directory / "best")

    def note(self, **row: Any) -> None:
        if self.journal is not None:
            self.journal.write(**row)

    def close(self) -> None:
        self.display.close()
        if self.journal is not None:
            self.journal.close()
