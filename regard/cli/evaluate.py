"""`regard evaluate`"""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from regard.cli import failures
from regard.cli.columns import Columns, as_section, column_files, named

if TYPE_CHECKING:
    from regard.data.boxes import Boxes
    from regard.data.links import Links
    from regard.decoding.trained import Trained
    from regard.evaluation.evaluate import Inputs
    from regard.evaluation.metrics import Score


class TestSet(NamedTuple):
    """Rows, and what is known of them."""

    rows: list[Any]
    gold: "list[Links] | None"
    further: Sequence[Sequence[str]]
    inputs: "Inputs"
    boxes: "list[Boxes] | None" = None


class Result(NamedTuple):
    """What is told of a test set."""

    test: TestSet
    scores: list["Score"]
    groups: list[tuple[str, int, "Score"]]
    outputs: list[str]


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run or a model directory.")],
    source: Annotated[
        Path | None,
        typer.Option(help="Test sources; without it, the recipe's test sets, or the rows that training held out."),
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Their references.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both in one .tsv, .csv, .jsonl or .parquet file instead.")] = None,
    column: Columns = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(help="One more reference per line; an empty line is none. May be repeated."),
    ] = None,
    same_source: Annotated[
        bool, typer.Option("--same-source", help="Rows with the same source are one input; the targets of all are right.")
    ] = False,
    alignment: Annotated[Path | None, typer.Option(help="Gold word alignments, for the alignment error rate.")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this metric, for example wer, ter, bleu_zh. May be repeated."),
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy.")] = None,
    lengths: Annotated[bool, typer.Option("--by-length", help="BLEU also by the length of the source.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the outputs here (.jsonl keeps line feeds); of several test sets, to FILE.NAME.")
    ] = None,
    worst: Annotated[
        Path | None,
        typer.Option(help="Write the worst outputs to this .tsv or .jsonl file; of several test sets, to FILE.NAME."),
    ] = None,
    number: Annotated[int, typer.Option(min=1, help="How many of them.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Score a model on test sets, with 95 % intervals: BLEU, chrF, exact match, error rates, perplexity, accuracy."""
    from regard.cli.generate import given as chosen
    from regard.cli.generate import one_line
    from regard.data.jsonl import json_line
    from regard.data.spool import spooled
    from regard.decoding.load import load
    from regard.errors import UserError
    from regard.evaluation.evaluate import by_length
    from regard.evaluation.evaluate import evaluate as measure
    from regard.judged import Judged, decides, test_sets
    from regard.recipe import Pairs, parse

    columns = named(column)
    given = {"source": source, "target": target, "pairs": pairs, "alignment": alignment, **column_files(columns, pairs)}
    given |= {f"reference-{at}": path for at, path in enumerate(reference or ())}
    named_sets = {name for name, path in given.items() if path is not None and name != "alignment" and "reference-" not in name}
    for option, path in (("--alignment", alignment), ("--reference", reference)):
        if path and not named_sets:
            raise UserError(f"{option} goes with --source and --target; the recipe's test sets name their own files")
    own: AbstractContextManager[Judged] = nullcontext(Judged({})) if named_sets else test_sets(run)
    with own as judged, spooled(given) as (files, _):
        trained = load(run, device)
        written = {"--beam": beam is not None, "--by-length": lengths, "--reference": reference, "--same-source": same_source}
        refuse(run, trained, written, {"--output": output, "--worst": worst})
        usual = {name: str(path) for name, path in files.items() if name in Pairs.model_fields}
        sets = judged.sets or {"test": parse(Pairs, {**usual, **as_section(columns, files)})}
        more = [path for name, path in files.items() if name.startswith("reference-")]
        tests = {name: read_set(one, trained, more, same_source) for name, one in sets.items()}
    if judged.note:
        typer.echo(f"note: {judged.note}", err=True)
    results, failed, by = dict[str, Any](), False, decides(run)
    for name, test in tests.items():
        failed = tell_long(name, trained, test) or failed
        asked = metric or with_deciding(trained, test, by)
        settings = trained.settings(**chosen(beam=beam))
        scores, outputs = measure(trained, test.rows, test.gold, settings, test.further, same_source, asked, test.boxes)
        if not outputs and (lengths or output or worst):
            raise UserError(
                f"--by-length, --output and --worst need outputs, and {', '.join(asked)} judges none: add --metric exact"
            )
        result = Result(test, scores, by_length(test.inputs, outputs) if lengths else [], outputs)
        results[name] = as_values(result, lengths, same_source)
        if output is not None:
            line = (
                (lambda text: json_line({"output": text}))
                if output.suffix == ".jsonl"
                else (lambda text: f"{one_line(text)}\n")
            )
            of_set(output, name, sets).write_text("".join(map(line, outputs)), encoding="utf-8")
        if worst is not None:
            write_worst(of_set(worst, name, sets), result, by, number)
        if not as_json:
            show(name, result, "pairs" if "outputs" in trained.gives else "rows", same_source)
    if as_json:
        typer.echo(json.dumps(results, indent=1))
    failures.leave(failed)


def refuse(run: Path, trained: "Trained", written: dict[str, Any], files: dict[str, Path | None]) -> None:
    """Options that mean nothing to a model of this shape."""
    from regard.errors import UserError

    for option, given in written.items():
        if given and "outputs" not in trained.gives:
            raise UserError(f"{run}: {option} is for models that write outputs, and this one {trained.does}: leave it out")
    for option, path in files.items():
        if path is not None and not {"outputs", "labels"} & set(trained.gives):
            raise UserError(f"{run}: {option} is for models with outputs or labels, and this one {trained.does}: leave it out")


def read_set(one: Any, trained: "Trained", more: Sequence[Path], same_source: bool) -> TestSet:
    """From its files; rows that training held out are there already."""
    from regard.data.boxes import read_boxes
    from regard.data.links import read_links
    from regard.data.readers import notes
    from regard.evaluation.evaluate import inputs_of, read_references, read_test

    for note in () if isinstance(one, list) else notes(one):
        typer.echo(f"note: {note}", err=True)
    rows = one if isinstance(one, list) else read_test(one, trained.fields)
    gold = read_links(one.alignment) if not isinstance(one, list) and one.alignment else None
    further = read_references(more, len(rows)) if more else []
    boxes = read_boxes(one.boxes, [row[-1] for row in rows]) if not isinstance(one, list) and one.boxes else None
    return TestSet(rows, gold, further, inputs_of(rows, further, same_source), boxes)


def tell_long(name: str, trained: "Trained", test: TestSet) -> bool:
    """Name the rows that are too long for the model; whether there are any."""
    problems = trained.rows_too_long(test.rows)
    what = "an output that it lacks counts as empty; perplexity is that of other pairs"
    failures.name_each(problems, f"{name}: pair ", what)
    return bool(problems)


def with_deciding(trained: "Trained", test: TestSet, by: str | None) -> list[str]:
    """The usual metrics, and that which decided in training."""
    from regard.evaluation.evaluate import applicable

    known = applicable(trained, test.gold is not None, test.boxes is not None)
    return [name for name, metric in known.items() if metric.usual or name == by]


def write_worst(path: Path, result: Result, by: str | None, number: int) -> None:
    """By the metric that decided in training, if it judges single outputs."""
    from regard.evaluation import worst
    from regard.evaluation.metrics import rewards

    sources, references = zip(*result.test.inputs, strict=True)
    name = by if by in rewards() else "exact"
    worst.write_worst(path, worst.worst(str(name), sources, result.outputs, references, number))


def of_set(path: Path, name: str, sets: dict[str, Any]) -> Path:
    return path if len(sets) == 1 else path.with_name(f"{path.name}.{name}")


def as_values(result: Result, lengths: bool, same_source: bool) -> dict[str, Any]:
    """For JSON."""
    return {
        "pairs": len(result.test.rows),
        **({"inputs": len(result.test.inputs)} if same_source else {}),
        **{score.name: score.value for score in result.scores},
        "intervals": {score.name: list(score.interval) for score in result.scores if score.interval is not None},
        "signatures": [score.signature for score in result.scores if score.signature],
        **({"by_length": [[label, count, score.value] for label, count, score in result.groups]} if lengths else {}),
    }


def show(name: str, result: Result, what: str, same_source: bool) -> None:
    inputs = f", {len(result.test.inputs):,} inputs" if same_source else ""
    typer.echo(f"{name}: {len(result.test.rows):,} {what}{inputs}")
    for score in result.scores:
        low_high = "" if score.interval is None else f"[{', '.join(map(rounded, score.interval))}]"
        typer.echo(f"  {score.name:22} {rounded(score.value):>9} {low_high:18} {score.signature}".rstrip())
    for label, count, score in result.groups:
        typer.echo(f"  {label:22} {rounded(score.value):>9} ({count:,} pairs)")


def rounded(value: float) -> str:
    """Percentages to a tenth; small numbers (losses, shares) to a thousandth."""
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
