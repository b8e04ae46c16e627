"""Whether steps were finite, without waiting for a GPU: it is told a step or two later."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.data.batching import Integers
from regard.errors import UserError

BEHIND = 2  # steps that may be under way before the host waits for one


class DivergedError(UserError):
    """Losses, gradients or weights that are no numbers any more."""


class Judged(NamedTuple):
    """A step whose numbers are known by now."""

    step: int
    rows: Integers
    tokens: int
    loss: bool  # whether the loss was finite
    gradients: bool


class Pending(NamedTuple):
    step: int
    rows: Integers
    tokens: int
    flags: Bool[Tensor, "two"]  # in memory that the GPU writes
    done: Any  # the event after which they are there


class FiniteCheck:
    """On a GPU a step that is not finite is left out by the optimizer's own kernel; here it is found out that it was."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.pending = optimizer, deque[Pending]()

    def step(
        self, step: int, rows: Integers, tokens: int, loss: Float[Tensor, ""], norm: Float[Tensor, ""], clip: float
    ) -> Bool[Tensor, ""]:
        """One step of the optimizer, which does nothing where the norm of the gradients is not finite; whether it was. Its
        kernel divides them as it reads them, so that their norm is `clip` at most (inf: they stay as they are)."""
        finite = torch.stack([loss.isfinite(), norm.isfinite()])
        self.optimizer.grad_scale = (norm / clip).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimizer.found_inf = (~finite[1]).float()  # type: ignore[attr-defined]
        self.optimizer.step()
        flags = torch.empty(2, dtype=torch.bool, pin_memory=True)
        flags.copy_(finite, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        self.pending.append(Pending(step, rows, tokens, flags, done))
        return finite[1]

    def known(self, all_of_them: bool = False) -> Iterator[Judged]:
        """The steps that are done; waits for all, or for those that are too many."""
        while self.pending and (all_of_them or len(self.pending) > BEHIND or self.pending[0].done.query()):
            step, rows, tokens, flags, done = self.pending.popleft()
            done.synchronize()
            yield Judged(step, rows, tokens, *flags.tolist())


def first_bad(model: nn.Module) -> str:
    """The first parameter whose gradient is not finite."""
    gradients = ((name, parameter.grad) for name, parameter in model.named_parameters())
    return next((name for name, value in gradients if value is not None and not value.isfinite().all()), "all together")


def refuse_infinite(model: nn.Module, step: int, directory: Path | None) -> None:
    """Weights that are not finite are never validated and never saved."""
    floats = {name: one for name, one in model.state_dict().items() if one.is_floating_point()}
    if not torch.stack([one.isfinite().all() for one in floats.values()]).all():
        bad = next(name for name, one in floats.items() if not one.isfinite().all())
        raise DivergedError(
            f"step {step}: the weights of {bad} are not finite{saved_in(directory)}. "
            "Lower training.learning_rate or training.weight_decay"
        )


def too_many(step: int, what: str, times: int, directory: Path | None) -> DivergedError:
    return DivergedError(
        f"step {step}: {what} was not finite {times} times in a row{saved_in(directory)}. "
        "Lower training.learning_rate or look at the named rows"
    )


def saved_in(directory: Path | None) -> str:
    return "" if directory is None else f"; the last weights saved are in {directory / 'checkpoints'}"
