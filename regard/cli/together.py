"""The model that writes, or several as one, and what is said of its engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from regard.decoding.generator import TrainedGenerator
    from regard.recipe import Decoding


def together(
    runs: Sequence[Path], weights: str | None, combine: str | None, device: str, precision: str | None, engine: str | None
) -> "TrainedGenerator":
    """The model of one run, or those of several as one. What of it has no engine is told."""
    from regard.decoding.ensemble import ensemble
    from regard.decoding.load import load, load_generator
    from regard.errors import UserError

    if engine is not None and len(runs) > 1:
        raise UserError(f"--engine {engine} is for one run; several take their steps together (--precision is for the first)")
    first = load_generator(runs[0], device, precision, engine)
    for part, reason in (first.engine.own if first.engine is not None else {}).items():
        typer.echo(f"note: the {part} runs as it was trained, in float32: {reason}", err=True)
    if len(runs) == 1:
        if weights is not None or combine is not None:
            raise UserError(f"--{'weights' if weights is not None else 'combine'} is for several runs: add --with RUN")
        return first
    try:
        numbers = None if weights is None else [float(weight) for weight in weights.split(",")]
    except ValueError:
        raise UserError(f"--weights is {len(runs)} numbers separated by commas, not {weights!r}") from None
    return ensemble([first, *(load(path, device) for path in runs[1:])], numbers, combine or "mean")


def tell_engine(trained: "TrainedGenerator", settings: "Decoding", more: dict[str, Any]) -> None:
    """What writes these outputs, if it was asked for by name."""
    if trained.written_by is None:
        return
    told, translator = trained.written_by, trained.translator
    if translator is not None and not translator.takes(settings, more):
        told = f"regard's own engine, in {translator.precision}; not by CTranslate2, for {translator.problem(settings, more)}"
    typer.echo(f"note: outputs are written by {told}", err=True)
