"""`regard lab NAME`: every experiment of the table is called in the same way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.lab_words import listed
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.lab.experiment import Report

DEFAULT = "full"
JSON = Annotated[bool, typer.Option("--json", help="One JSON object, with every trial, instead of a table.")]
LATEX = Annotated[bool, typer.Option("--latex", help="A LaTeX table instead.")]


def command(name: str, about: str) -> Callable[..., None]:
    """The verb of one experiment."""

    def run(
        changes: Annotated[list[str] | None, typer.Argument(help="key.path=value, for every recipe of it.")] = None,
        setting: Annotated[
            str, typer.Option(help="smoke (seconds, shows that it runs), quick (two cores, minutes) or full.")
        ] = DEFAULT,
        quick: Annotated[bool, typer.Option("--quick", help="The same as --setting quick.")] = False,
        names: Annotated[str | None, typer.Option(help="What to compare, separated by commas; all unless given.")] = None,
        seeds: Annotated[int | None, typer.Option(min=1, help="Trials of each; the setting has its own number.")] = None,
        source: Annotated[Path | None, typer.Option(help="Own training sources instead of generated ones.")] = None,
        target: Annotated[Path | None, typer.Option(help="Their targets.")] = None,
        pairs: Annotated[Path | None, typer.Option(help="Both in one table instead.")] = None,
        test_source: Annotated[Path | None, typer.Option(help="Test sources.")] = None,
        test_target: Annotated[Path | None, typer.Option(help="Their targets.")] = None,
        test_pairs: Annotated[Path | None, typer.Option(help="Both in one table instead.")] = None,
        alignment: Annotated[Path | None, typer.Option(help="Gold word alignments of the test rows.")] = None,
        out: Annotated[Path | None, typer.Option(help="Directory of the trials; runs/lab-NAME-SETTING unless given.")] = None,
        as_json: JSON = False,
        as_latex: LATEX = False,
        quiet: Annotated[bool, typer.Option("--quiet", help="Do not report progress.")] = False,
    ) -> None:
        from regard.cli.train import given
        from regard.drafting import Files
        from regard.lab.experiment import Asked, conduct
        from regard.lab.experiments import EXPERIMENTS
        from regard.recipe import choose
        from regard.training.display import Display

        train = given(source=source, target=target, pairs=pairs)
        test = given(source=test_source, target=test_target, pairs=test_pairs, alignment=alignment)
        if bool(train) != bool(test):
            raise UserError("own training rows and own test rows go together: --pairs and --test-pairs, for example")
        experiment, chosen = EXPERIMENTS[name].experiment, "quick" if quick else setting
        settings = choose(experiment.settings, chosen, "setting")
        compared = listed(names, dict.fromkeys(experiment.names()), f"entry of {name}")
        directory, say = out or Path("runs") / f"lab-{name}-{chosen}", Display(0, 0, None, not quiet).say
        asked = Asked(settings, compared, seeds or settings.seeds, directory, changes or [], Files(train, {}, test), say)
        rows, report = conduct(experiment, asked)
        tell(report, rows, as_json, as_latex)

    run.__name__, run.__doc__ = name, f"{about}.\n\nFinished trials are kept: the same command goes on where it was stopped."
    return run


def tell(report: "Report", rows: Any, as_json: bool, as_latex: bool) -> None:
    from regard.lab.grids import print_grid

    if as_json:
        typer.echo(json.dumps({"title": report.title, "notes": list(report.notes), "rows": rows}, indent=1, default=str))
    elif as_latex:
        typer.echo("\n".join(report.latex))
    else:
        typer.echo(report.title)
        print_grid(report.grid)
        typer.echo("\n".join(f"- {note}" for note in report.notes))
