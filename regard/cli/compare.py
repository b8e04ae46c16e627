"""`regard compare`"""

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.experiments import JSON, LATEX, tell


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Runs or model directories; each is compared with the first.")],
    source: Annotated[Path | None, typer.Option(help="Test sources; else the test sets of the first run's recipe.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their references.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both in one table instead.")] = None,
    alignment: Annotated[Path | None, typer.Option(help="Gold word alignments, for the alignment error rate.")] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this metric, for example exact. May be repeated.")
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy.")] = None,
    speed: Annotated[bool, typer.Option("--speed/--no-speed", help="Time some steps of training here.")] = True,
    out: Annotated[
        Path | None, typer.Option(help="Write table.md, table.tex, results.json, compare.png and .svg here.")
    ] = None,
    as_json: JSON = False,
    as_latex: LATEX = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Runs beside each other: learning curves, metrics with paired significance, speed, memory, parameters.

    Example: regard compare runs/one runs/other --out runs/comparison
    """
    from regard.cli.train import given
    from regard.lab.comparison import contenders, costs, judged, report
    from regard.lab.experiment import publish
    from regard.recipe import Pairs, parse

    files = given(source=source, target=target, pairs=pairs, alignment=alignment)
    found = contenders(runs, device)
    results = judged(found, metric or [], beam, parse(Pairs, files) if files else None)
    costs_of = {one.name: costs(one, speed) for one in found}
    told = report(found, results, costs_of, str(found[0].trained.device))
    rows = [{"run": str(one.path), **costs_of[one.name], "metrics": metrics_of(results, one.name)} for one in found]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        publish(told, rows, out, lambda text: typer.echo(text, err=True))
    tell(told, rows, as_json, as_latex)


def metrics_of(results: dict[str, Any], name: str) -> dict[str, Any]:
    """For JSON: test set -> metric -> its value, and the difference from the first run."""
    return {
        test: {one.name: {**one._asdict(), "difference": one.ours - one.theirs} for one in each[name]}
        for test, each in results.items()
        if test != "note"
    }
