"""`regard evaluate`"""

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import failures
from regard.cli.columns import Columns, as_section, column_files, named

if TYPE_CHECKING:
    from regard.decoding.trained import Trained
    from regard.evaluation.metrics import Score


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run or a model directory.")],
    source: Annotated[Path | None, typer.Option(help="Test sentences; without it, the test sets of the run's recipe.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their reference translations.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both in one .tsv, .csv, .jsonl or .parquet file instead.")] = None,
    column: Columns = None,
    alignment: Annotated[Path | None, typer.Option(help="Gold word alignments, for the alignment error rate.")] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy.")] = None,
    lengths: Annotated[bool, typer.Option("--by-length", help="BLEU also by the length of the source.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the outputs here; of several test sets, to FILE.NAME.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Score a model on test sets: BLEU and chrF with their signatures, exact match, perplexity, accuracy, alignment error."""
    from regard.cli.generate import given as chosen
    from regard.cli.generate import one_line
    from regard.data.links import read_links
    from regard.data.spool import spooled
    from regard.decoding.load import load
    from regard.errors import UserError
    from regard.evaluation.evaluate import by_length, read_test
    from regard.evaluation.evaluate import evaluate as measure
    from regard.recipe import Pairs, parse
    from regard.run import test_sets

    columns = named(column)
    given = {"source": source, "target": target, "pairs": pairs, "alignment": alignment, **column_files(columns, pairs)}
    if {name for name, path in given.items() if path is not None} == {"alignment"}:
        raise UserError("--alignment goes with --source and --target; the recipe's test sets name their own")
    results, failed = dict[str, Any](), False
    recipes_own: AbstractContextManager[dict[str, Pairs]] = nullcontext({}) if any(given.values()) else test_sets(run)
    with recipes_own as own, spooled(given) as (files, _):
        trained = load(run, device)
        refuse(run, trained, {"--beam": beam is not None, "--by-length": lengths}, output)
        usual = {name: str(path) for name, path in files.items() if name in Pairs.model_fields}
        sets = own or {"test": parse(Pairs, {**usual, **as_section(columns, files)})}
        tests = {
            name: (read_test(one, trained.fields), read_links(one.alignment) if one.alignment else None)
            for name, one in sets.items()
        }
    for name, (rows, gold) in tests.items():
        problems = trained.rows_too_long(rows)
        failures.name_each(
            problems, f"{name}: pair ", "an output that it lacks counts as empty; perplexity is that of other pairs"
        )
        failed = failed or bool(problems)
        scores, outputs = measure(trained, rows, gold, trained.settings(**chosen(beam=beam)))
        groups = by_length(rows, outputs) if lengths else []
        results[name] = {"pairs": len(rows), **{score.name: score.value for score in scores}}
        results[name] |= {"signatures": [score.signature for score in scores if score.signature]}
        results[name] |= {"by_length": [[label, count, score.value] for label, count, score in groups]} if lengths else {}
        if output is not None:
            path = output if len(sets) == 1 else output.with_name(f"{output.name}.{name}")
            path.write_text("".join(f"{one_line(text)}\n" for text in outputs), encoding="utf-8")
        if not as_json:
            show(name, len(rows), "pairs" if "outputs" in trained.gives else "rows", scores, groups)
    if as_json:
        typer.echo(json.dumps(results, indent=1))
    failures.leave(failed)


def refuse(run: Path, trained: "Trained", written: dict[str, bool], output: Path | None) -> None:
    """Options that mean nothing to a model of this shape."""
    from regard.errors import UserError

    for option, given in written.items():
        if given and "outputs" not in trained.gives:
            raise UserError(f"{run}: {option} is for models that write outputs, and this one {trained.does}: leave it out")
    if output is not None and not {"outputs", "labels"} & set(trained.gives):
        raise UserError(f"{run}: --output is for models with outputs or labels, and this one {trained.does}: leave it out")


def show(name: str, rows: int, what: str, scores: list["Score"], groups: list[tuple[str, int, "Score"]]) -> None:
    typer.echo(f"{name}: {rows:,} {what}")
    for score in scores:
        typer.echo(f"  {score.name:22} {score.value:9.3f}   {score.signature}".rstrip())
    for label, count, score in groups:
        typer.echo(f"  {label:22} {score.value:9.3f}   ({count:,} pairs)")
