"""`regard train`"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.columns import Columns, as_section, column_files, named
from regard.cli.ranks import under_torchrun
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.recipe import Recipe


def train(
    recipe: Annotated[
        str | None, typer.Argument(help="A built-in recipe (`regard recipes` lists them) or a .yaml file.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Changes to the recipe: key.path=value, for example training.updates=200."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", "-r", help="Directory of the run, new or empty; runs/RECIPE unless given.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run from its latest whole checkpoint.")] = False,
    source: Annotated[Path | None, typer.Option(help="Training sentences, one a line (.gz is fine).")] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations, line by line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both in one .tsv, .csv, .jsonl or .parquet file instead.")] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Validation sentences; else some rows are held out.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    column: Columns = None,
    valid_column: Annotated[list[str] | None, typer.Option(metavar="NAME=FILE", help="The same for validation.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Train a model from a recipe, or from two files with choices made for you."""
    words = [*([recipe] if recipe else []), *(overrides or [])]
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise UserError(f"one recipe at a time, not {' and '.join(names)}; overrides are written key.path=value")
    if run is not None and not run.strip():
        raise UserError("--run is empty; name a directory (is a variable unset?)")
    from regard.data.spool import spooled

    columns, valid_columns = named(column), named(valid_column, "--valid-column")
    options = {"source": source, "target": target, "pairs": pairs, "valid_source": valid_source, "valid_target": valid_target}
    options |= column_files(columns, pairs) | {f"valid-{name}": path for name, path in column_files(valid_columns).items()}
    place = Path(run) if run else None
    directory = place or Path("runs") / (Path(names[0]).stem if names else "model")
    with spooled(options) as (texts, folder):
        files = given(source=texts.get("source"), target=texts.get("target"), pairs=texts.get("pairs"))
        files |= as_section(columns, texts)
        valid = given(source=texts.get("valid_source"), target=texts.get("valid_target"))
        valid |= as_section(valid_columns, {name.removeprefix("valid-"): path for name, path in texts.items()})
        changes = [word for word in words if "=" in word]
        chosen = build_recipe(names[0] if names else None, place, resume, files, valid, changes)

        from regard.run import train as train_run

        stopped = train_run(chosen, directory, resume=resume, talk=not quiet, spooled=folder)
    if stopped is not None and not under_torchrun():  # to torchrun every exit code but 0 is a failure, to be tried again
        sys.exit(128 + stopped)


def given(**paths: Path | None) -> dict[str, Any]:
    return {name: str(path.absolute()) for name, path in paths.items() if path is not None}


def build_recipe(
    name: str | None, run: Path | None, resume: bool, files: dict[str, Any], valid: dict[str, Any], overrides: list[str]
) -> "Recipe":
    """From its name, from the run that goes on, or from the size of the data."""
    from regard.recipe import Recipe, override, parse, read_values

    if name is not None:
        values = read_values(name)
    elif resume and run is not None and (run / "recipe.yaml").exists():
        values = read_values(run / "recipe.yaml")
    elif files:
        values = sensible(files)
    elif resume:
        raise UserError(f"{run}: no run to continue (no recipe.yaml)" if run else "continue which run? --run DIR --resume")
    else:
        raise UserError("name a recipe (`regard recipes` lists them), or give --source and --target")
    return parse(Recipe, override(with_files(values, files, valid), overrides))


def with_files(values: dict[str, Any], files: dict[str, Any], valid: dict[str, Any]) -> dict[str, Any]:
    data = values.get("data") or {}
    if not isinstance(data, dict):
        raise UserError(f"data: a section with keys, not {data!r:.80}")
    if files:
        data = {key: value for key, value in data.items() if key not in ("corpus", "train", "valid", "test")}
        data["train"] = files
    if valid:
        data["valid"] = valid
    return {**values, "data": data}


def sensible(files: dict[str, Any]) -> dict[str, Any]:
    """The recipe for data of this size, read off the number of training rows."""
    from regard.cli.choices import recipe_for
    from regard.data.readers import read_rows
    from regard.recipe import Pairs, parse

    if others := files.get("columns", {}).keys() - {"source", "target"}:
        raise UserError(f"--column {min(others)}=...: without a recipe a model from source to target is trained; name a recipe")
    rows = sum(len(block.lines) for block in read_rows(parse(Pairs, files)))
    return recipe_for(rows)
