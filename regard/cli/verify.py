"""`regard verify`"""

import json
from pathlib import Path
from typing import Annotated

import typer


def verify(
    path: Annotated[Path, typer.Argument(help="A run, a model directory, a checkpoint.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Check that every file of a run or a model is as it was written. Exit code 1 if one is not."""
    from regard.verification import findings

    count = bad = 0
    rows = []
    for found in findings(path):
        count, bad = count + 1, bad + (not found.whole)
        rows.append({"path": str(found.path), "whole": found.whole, "state": found.state})
        if not as_json:
            typer.echo(f"{found.path}: {found.state}".encode(errors="backslashreplace").decode())
    if as_json:
        typer.echo(json.dumps({"path": str(path), "whole": not bad, "findings": rows}, indent=1))
    else:
        typer.echo(f"{path}: {f'{bad} of {count} are not whole' if bad else f'all {count} are whole'}")
    if bad:
        raise typer.Exit(1)
