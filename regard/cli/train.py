"""`regard train`"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.columns import Columns, as_section, column_files, named
from regard.cli.directories import tell_directory
from regard.cli.ranks import under_torchrun
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.drafting import Files
    from regard.recipe import Recipe


def train(
    recipe: Annotated[
        str | None, typer.Argument(help="A built-in recipe (`regard recipes` lists them) or a .yaml file.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to the recipe, for example training.updates=200."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", "-r", help="Directory of the run, new or empty; runs/RECIPE unless given.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run from its latest whole checkpoint.")] = False,
    source: Annotated[Path | None, typer.Option(help="Training sources, one per line (.gz is fine).")] = None,
    target: Annotated[Path | None, typer.Option(help="Their targets, line by line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both in one .tsv, .csv, .jsonl or .parquet file instead.")] = None,
    text: Annotated[Path | None, typer.Option(help="One text to learn to continue, for a language model.")] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Validation sources; without them, some rows are held out.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Their targets.")] = None,
    valid_pairs: Annotated[Path | None, typer.Option(help="Validation rows in one table, as --pairs.")] = None,
    valid_text: Annotated[Path | None, typer.Option(help="A text to validate on; without it, the end of --text.")] = None,
    test_text: Annotated[Path | None, typer.Option(help="A text that is scored at the end, never trained on.")] = None,
    test_pairs: Annotated[
        Path | None, typer.Option(help="Test rows in one table: scored at the end, never trained on.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="Without a recipe: be done in this many minutes.")] = None,
    column: Columns = None,
    valid_column: Annotated[list[str] | None, typer.Option(metavar="NAME=FILE", help="The same for validation.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Train a model from a recipe, or from your own files with choices made for you.

    Example: regard train --pairs pairs.tsv --run runs/mine
    """
    began = time.monotonic()
    words = [*([recipe] if recipe else []), *(overrides or [])]
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise UserError(f"one recipe at a time, not {' and '.join(names)}; overrides are written key.path=value")
    if run is not None and not run.strip():
        raise UserError("--run is empty; name a directory (is a variable unset?)")
    from regard.data.spool import spooled
    from regard.drafting import Files
    from regard.run import train as train_run
    from regard.training.callbacks import Callbacks

    columns, valid_columns = named(column), named(valid_column, "--valid-column")
    options = {"source": source, "target": target, "pairs": pairs, "valid_source": valid_source, "valid_target": valid_target}
    options |= {"valid_pairs": valid_pairs, "test_pairs": test_pairs}
    options |= {"text": text, "valid_text": valid_text, "test_text": test_text}
    options |= column_files(columns, pairs)
    options |= {f"valid-{name}": path for name, path in column_files(valid_columns, valid_pairs).items()}
    place = Path(run) if run else None
    directory = place or Path("runs") / (Path(names[0]).stem if names else "model")
    with spooled(options) as (texts, folder):
        files = given(**{name: texts.get(name) for name in ("source", "target", "pairs", "text")})
        files |= as_section(columns, texts)
        valid = given(**{name: texts.get(f"valid_{name}") for name in ("source", "target", "pairs", "text")})
        test = given(**{name: texts.get(f"test_{name}") for name in ("pairs", "text")})
        valid |= as_section(valid_columns, {name.removeprefix("valid-"): path for name, path in texts.items()})
        changes = [word for word in words if "=" in word]
        chosen = build_recipe(
            names[0] if names else None, place, resume, Files(files, valid, test), changes, minutes, not quiet
        )

        clock = Callbacks(began=began)
        stopped = train_run(chosen, directory, resume=resume, talk=not quiet, spooled=folder, callbacks=clock)
    if stopped is not None and not under_torchrun():  # to torchrun every exit code but 0 is a failure, to be tried again
        sys.exit(128 + stopped)


def given(**paths: Path | None) -> dict[str, Any]:
    return {name: str(path.absolute()) for name, path in paths.items() if path is not None}


def build_recipe(
    name: str | None, run: Path | None, resume: bool, files: "Files", overrides: list[str], minutes: float | None, talk: bool
) -> "Recipe":
    """From its name, from the run that goes on, or from what the data holds."""
    from regard.data.readers import READERS, suffix_of
    from regard.drafting import continued, draft
    from regard.recipe import read_values
    from regard.run_directory import is_run

    if name is not None:
        if suffix_of(Path(name)) in READERS:
            raise UserError(f"{name} is a table of rows, not a recipe: give it as --pairs {name}")
        tell_directory(name)
    values = continued(run, resume) if name is None else read_values(name)
    if values is None and not files.train:
        if resume:
            raise UserError(f"{run}: no run to continue (no recipe.yaml)" if run else "continue which run? --run DIR --resume")
        if run is not None and is_run(run):
            raise UserError(f"there is a run in {run}: continue it with --resume, or name a recipe and another --run")
        raise UserError("name a recipe (`regard recipes` lists them), or give --source and --target")
    return draft(values, files, overrides, minutes, talk)
