"""`regard tune`"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import UserError


def tune(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|KEY=VALUE",
            help="A table (.tsv, .csv, .jsonl, .parquet), or a source and a target file; key.path=value fixes a key.",
        ),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Search around this recipe, not around what the data asks for.")] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for the study as a whole.")] = 30.0,
    trials: Annotated[int | None, typer.Option(min=1, help="As many trials, if the time allows, and no more.")] = None,
    run: Annotated[Path, typer.Option("--run", "-r", help="Folder of the study, new or empty.")] = Path("runs/tune"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the study; more --minutes search further.")] = False,
    source: Annotated[Path | None, typer.Option(help="Training sentences, one per line (.gz is fine).")] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations, line by line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both in one table instead.")] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Validation sentences; else some rows are held out.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    valid_pairs: Annotated[Path | None, typer.Option(help="Validation rows in one table, as --pairs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the table at the end.")] = False,
) -> None:
    """Search for a better recipe around the chosen one: size, layers, dropout, learning rate and more, by successive halving.

    Example: regard tune pairs.tsv --minutes 30
    """
    if not str(run).strip():
        raise UserError("--run is empty; name a folder (is a variable unset?)")
    from regard.cli.train import given
    from regard.data.spool import spooled
    from regard.drafting import Files
    from regard.tuning.halving import Limits
    from regard.tuning.runs import StoppedError
    from regard.tuning.study import tune as search

    named = [Path(word) for word in words or () if "=" not in word or Path(word).is_file()]
    overrides = [word for word in words or () if Path(word) not in named]
    options = data_options(named, {"source": source, "target": target, "pairs": pairs})
    options |= {"valid_source": valid_source, "valid_target": valid_target, "valid_pairs": valid_pairs}
    with spooled(options) as (texts, folder):
        train = given(**{name: texts.get(name) for name in ("source", "target", "pairs")})
        valid = given(**{name: texts.get(f"valid_{name}") for name in ("source", "target", "pairs")})
        try:
            facts = search(Files(train, valid, {}), recipe, overrides, run, resume, Limits(minutes, trials), not quiet, folder)
        except StoppedError as stopped:
            typer.echo(f"stopped; continue with `regard tune --run {run} --resume --minutes {minutes:g}`", err=True)
            sys.exit(128 + stopped.signal)
    show(facts, as_json)


def data_options(named: list[Path], options: dict[str, Path | None]) -> dict[str, Path | None]:
    """Files may be named alone: one is a table, two are a source and a target."""
    if len(named) > 2:
        raise UserError(f"one table of pairs, or a source and a target file, not {len(named)} files")
    if named and any(options.values()):
        raise UserError(f"{named[0]} and --source, --target or --pairs: name the data once")
    if len(named) == 1:
        return {"pairs": named[0]}
    return {"source": named[0], "target": named[1]} if named else options


def show(facts: dict[str, object], as_json: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from regard.tuning.outcome import grid, lines

    if as_json:
        typer.echo(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    console, (header, *rows), table = Console(), grid(facts), Table(box=SIMPLE_HEAD)
    console.width = max(console.width, 100)
    for number, name in enumerate(header):
        words = number == len(header) - 1
        table.add_column(name, justify="left" if words else "right", no_wrap=not words)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for line in lines(facts):
        typer.echo(line)
