"""`regard plan`"""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.directories import tell_directory


def plan(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A built-in recipe (`regard recipes` lists them), a .yaml file, a run; none with own files."),
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to the recipe.")] = None,
    source: Annotated[Path | None, typer.Option(help="Training sources, one per line: plan what `train` would do.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their targets, line by line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both in one .tsv, .csv, .jsonl or .parquet file instead.")] = None,
    source_length: Annotated[int | None, typer.Option(min=1, help="Tokens per source; measured, or 25, unless given.")] = None,
    target_length: Annotated[int | None, typer.Option(min=1, help="Tokens per target.")] = None,
    device: Annotated[str | None, typer.Option(help="Time a few steps here, for an estimate of the time: cpu or cuda.")] = None,
    rate: Annotated[float | None, typer.Option(min=1e-6, help="TFLOP/s to reckon with.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """What a recipe costs before you train it: parameters, FLOPs, memory, time.

    Examples: regard plan vaswani2017-base; regard plan --pairs pairs.tsv --device cpu
    """
    from rich.console import Console

    from regard.cli.train import given
    from regard.drafting import Files, draft
    from regard.errors import UserError
    from regard.planning import plan as planning
    from regard.planning.show import show
    from regard.recipe import read_values

    if device not in (None, "cpu", "cuda"):
        raise UserError(f"unknown device {device!r} to measure; choose from cpu, cuda")
    words = [word for word in (recipe, *(overrides or ())) if word]
    name = words.pop(0) if words and "=" not in words[0] else None
    files = Files(given(source=source, target=target, pairs=pairs), {}, {})
    if name is None and not files.train:
        raise UserError("name a recipe (`regard recipes` lists them), or give --source and --target, or --pairs")
    if name is not None:
        tell_directory(name)
    found = planning.plan(
        name or "chosen from the data", draft(None if name is None else read_values(name), files, words),
        source_length, target_length, device, None if rate is None else rate * 1e12,
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(planning.as_json(found), indent=1))
    else:
        show(found, Console())
