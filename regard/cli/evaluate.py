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


class Wanted(NamedTuple):
    """What is to be told and written of each test set."""

    metrics: list[str]  # none: the usual ones
    beam: int | None
    lengths: bool
    same_source: bool
    output: Path | None
    worst: Path | None


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
    text: Annotated[Path | None, typer.Option(help="A text, for a language model.")] = None,
    column: Columns = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="One more reference per line; an empty line is none. May be repeated."),
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
    against: Annotated[
        Path | None, typer.Option(help="Another run on the same rows: is one better? Differences, with p-values.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Score a model on test sets, with 95 % intervals: BLEU, chrF, exact match, error rates, perplexity, accuracy."""
    from regard.judged import decides

    files = {"source": source, "target": target, "pairs": pairs, "text": text, "alignment": alignment}
    wanted = Wanted(metric or [], beam, lengths, same_source, output, worst)
    trained, tests = read_sets(run, device, files, named(column), reference or [], wanted)
    if against is not None:
        return tell_against(against, device, trained, tests, wanted, as_json)
    results, failed, by = dict[str, Any](), False, decides(run)
    for name, test in tests.items():
        failed = tell_long(name, trained, test) or failed
        result = judge(trained, test, wanted, by)
        results[name] = as_values(result, lengths, same_source)
        if output is not None:
            write_outputs(of_set(output, name, tests), result.outputs, output.suffix == ".jsonl")
        if worst is not None:
            write_worst(of_set(worst, name, tests), result, by, number)
        if not as_json:
            show(name, result, "pairs" if "outputs" in trained.gives else "rows", same_source)
    if as_json:
        typer.echo(json.dumps(results, indent=1))
    failures.leave(failed)


def read_sets(
    run: Path, device: str, paths: dict[str, Path | None], columns: dict[str, str], references: Sequence[Path], wanted: Wanted
) -> tuple["Trained", dict[str, TestSet]]:
    """The model, and what it is judged on: the files that were named, or what its recipe names."""
    from regard.data.spool import spooled
    from regard.decoding.load import load
    from regard.errors import UserError
    from regard.judged import Judged, test_sets, training_files
    from regard.pairs import as_in_training
    from regard.recipe import Pairs, parse

    given = {**paths, **column_files(columns, paths["pairs"])}
    has_files = any(path is not None for name, path in given.items() if name != "alignment")
    for option, path in (("--alignment", paths["alignment"]), ("--reference", references)):
        if path and not has_files:
            raise UserError(f"{option} goes with --source and --target; the recipe's test sets name their own files")
    given |= {f"reference-{at}": path for at, path in enumerate(references)}
    own: AbstractContextManager[Judged] = nullcontext(Judged({})) if has_files else test_sets(run)
    with own as judged, spooled(given) as (files, _):
        trained = load(run, device)
        refuse(run, trained, wanted, bool(references))
        usual = {name: str(path) for name, path in files.items() if name in Pairs.model_fields}
        asked = as_in_training({**usual, **as_section(columns, files)}, training_files(run))
        sets = judged.sets or {"test": parse(Pairs, asked)}
        more = [path for name, path in files.items() if name.startswith("reference-")]
        tests = {name: read_set(one, trained, more, wanted.same_source) for name, one in sets.items()}
    if judged.note:
        typer.echo(f"note: {judged.note}", err=True)
    return trained, tests


def judge(trained: "Trained", test: TestSet, wanted: Wanted, by: str | None) -> Result:
    """All scores of one test set."""
    from regard.cli.generate import given
    from regard.errors import UserError
    from regard.evaluation.evaluate import by_length, evaluate

    names = wanted.metrics or with_deciding(trained, test, by)
    settings = trained.settings(**given(beam=wanted.beam))
    scores, outputs = evaluate(trained, test.rows, test.gold, settings, test.further, wanted.same_source, names, test.boxes)
    if not outputs and (wanted.lengths or wanted.output or wanted.worst):
        raise UserError(
            f"--by-length, --output and --worst need outputs, and {', '.join(names)} judges none: add --metric exact"
        )
    return Result(test, scores, by_length(test.inputs, outputs) if wanted.lengths else [], outputs)


def refuse(run: Path, trained: "Trained", wanted: Wanted, references: bool) -> None:
    """Options that mean nothing to a model of this shape."""
    from regard.errors import UserError

    written = {"--beam": wanted.beam is not None, "--by-length": wanted.lengths, "--reference": references}
    for option, given in {**written, "--same-source": wanted.same_source}.items():
        if given and "outputs" not in trained.gives:
            raise UserError(f"{run}: {option} is for models that write outputs, and this one {trained.does}: leave it out")
    for option, path in {"--output": wanted.output, "--worst": wanted.worst}.items():
        if path is not None and not {"outputs", "labels"} & set(trained.gives):
            raise UserError(f"{run}: {option} is for models with outputs or labels, and this one {trained.does}: leave it out")


def tell_against(
    against: Path, device: str, trained: "Trained", tests: dict[str, TestSet], wanted: Wanted, as_json: bool
) -> None:
    """Both models on the same rows, beside each other."""
    from regard.cli.generate import given
    from regard.decoding.load import load
    from regard.errors import UserError
    from regard.evaluation.comparison import compare
    from regard.evaluation.evaluate import Question

    for option, value in (("--output", wanted.output), ("--worst", wanted.worst), ("--by-length", wanted.lengths)):
        if value:
            raise UserError(f"{option} is for one model; leave it out, or --against")
    other = load(against, device)
    if list(other.fields) != list(trained.fields):
        raise UserError(f"{against}: it reads and writes {', '.join(other.fields)}, not {', '.join(trained.fields)}")
    results = dict[str, Any]()
    for name, test in tests.items():
        questions = [
            Question(
                one, test.rows, test.gold, one.settings(**given(beam=wanted.beam)), test.further, wanted.same_source, test.boxes
            )
            for one in (trained, other)
        ]
        found = compare(questions[0], questions[1], wanted.metrics)
        results[name] = [one._asdict() for one in found]
        if not as_json:
            typer.echo(f"{name}: {len(test.rows):,} rows, against {against}")
        for one in () if as_json else found:
            values = f"{rounded(one.ours):>9} {rounded(one.theirs):>9}   {one.ours - one.theirs:+.3f}"
            between = ", ".join(f"{end:+.3f}" for end in one.interval)
            typer.echo(f"  {one.name:22} {values} [{between}]   p = {one.p_value:.3f}")
    if as_json:
        typer.echo(json.dumps(results, indent=1))


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


def write_outputs(path: Path, outputs: Sequence[str], as_jsonl: bool) -> None:
    from regard.cli.outputs import one_line
    from regard.data.jsonl import json_line

    as_line = (lambda text: json_line({"output": text})) if as_jsonl else (lambda text: f"{one_line(text)}\n")
    path.write_text("".join(map(as_line, outputs)), encoding="utf-8")


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
        **{f"{score.name} by label": [part._asdict() for part in score.parts] for score in result.scores if score.parts},
        **({"by_length": [[label, count, score.value] for label, count, score in result.groups]} if lengths else {}),
    }


def show(name: str, result: Result, what: str, same_source: bool) -> None:
    inputs = f", {len(result.test.inputs):,} inputs" if same_source else ""
    typer.echo(f"{name}: {len(result.test.rows):,} {what}{inputs}")
    for score in result.scores:
        tell_score(score, f"{score.name:22}")
        for part in score.parts:
            tell_score(part, f"  {part.name:20}")
    for label, count, score in result.groups:
        typer.echo(f"  {label:22} {rounded(score.value):>9} ({count:,} pairs)")


def tell_score(score: "Score", name: str) -> None:
    low_high = "" if score.interval is None else f"[{', '.join(map(rounded, score.interval))}]"
    typer.echo(f"  {name} {rounded(score.value):>9} {low_high:18} {score.signature}".rstrip())


def rounded(value: float) -> str:
    """Percentages to a tenth; small numbers (losses, shares) to a thousandth."""
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
