"""`regard plan`"""

import json
from typing import Annotated

import typer

from regard.cli.directories import tell_directory


def plan(
    recipe: Annotated[str, typer.Argument(help="A built-in recipe (`regard recipes` lists them) or a .yaml file.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes to the recipe: key.path=value.")] = None,
    source_length: Annotated[int | None, typer.Option(min=1, help="Tokens of a source; measured, or 25, unless given.")] = None,
    target_length: Annotated[int | None, typer.Option(min=1, help="Tokens of a target.")] = None,
    device: Annotated[str | None, typer.Option(help="Measure the speed of a few steps here: cpu or cuda.")] = None,
    rate: Annotated[float | None, typer.Option(min=1e-6, help="TFLOP/s to reckon with.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """What a recipe costs before you train it: parameters, FLOPs, memory, time."""
    from rich.console import Console

    from regard.errors import UserError
    from regard.planning import plan as planning
    from regard.planning.show import show
    from regard.recipe import read

    if device not in (None, "cpu", "cuda"):
        raise UserError(f"unknown device {device!r} to measure; choose from cpu, cuda")
    tell_directory(recipe)
    found = planning.plan(
        recipe, read(recipe, overrides or []), source_length, target_length, device, None if rate is None else rate * 1e12
    )
    if as_json:
        typer.echo(json.dumps(planning.as_json(found), indent=1))
    else:
        show(found, Console())
