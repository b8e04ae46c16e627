"""`regard generate`"""

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from regard.cli import failures
from regard.cli.asking import incoming

if TYPE_CHECKING:
    from regard.decoding.forcing import TeacherForced
    from regard.decoding.hypothesis import Hypothesis
    from regard.decoding.reading import Pair


def generate(
    run: Annotated[Path, typer.Argument(help="A run or a model directory.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Settings of decoding, for example min_length=5 no_repeat_ngram=3."),
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(min=0.0, help="Rank by log p / length ** penalty.")] = None,
    length_norm: Annotated[str | None, typer.Option(help="gnmt: ((5 + length) / 6) ** penalty instead; or power.")] = None,
    coverage_penalty: Annotated[float | None, typer.Option(min=0.0, help="Penalty for source words not looked at.")] = None,
    n_best: Annotated[int | None, typer.Option(min=1, help="Print the best N as `line ||| text ||| score`.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw the output; with --n-best, N of them as drawn.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Draw by p ** (1 / temperature).")] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from the K most probable words.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the fewest words that are so probable together.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed draws other outputs.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print `score<TAB>text`.")] = False,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Write the source word looked at instead of an unknown one.")
    ] = False,
    dictionary: Annotated[
        Path | None, typer.Option(help="Or what this file of `regard align --dictionary` has for that source word.")
    ] = None,
    alignments: Annotated[Path | None, typer.Option(help="Also write word alignments (Pharaoh i-j) to this file.")] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read and write JSON, one value per line: a text, or an object with `source`.")
    ] = False,
    unbuffered: Annotated[bool, typer.Option("--unbuffered", help="Answer each line at once.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[
        str | None, typer.Option(help="Faster on a CPU: float32, bfloat16 or int8 weights in an engine (docs/speed.md).")
    ] = None,
) -> None:
    """Read lines from standard input, write one output per line to standard output, in order.

    On a terminal, type a line to get its output; Ctrl-D ends.

    A line that is too long for the model gets an empty line and is named on standard error, and the exit code is 2.

    Settings of the recipe's section `decoding` are changed as in training: regard generate RUN min_length=5 no_repeat_ngram=3

    With --jsonl texts may have line feeds: {"id": 7, "source": "two\\nlines"} gets `output` beside its own keys.
    """
    from regard.cli.json_lines import Asked, answered, asked
    from regard.data.dictionary import read_dictionary
    from regard.decoding.load import load_generator
    from regard.decoding.sampling import Sampling
    from regard.errors import UserError
    from regard.recipe import parse

    given_lines = incoming(unbuffered)
    trained = load_generator(run, device, precision)
    if trained.engine is not None:
        for part, reason in trained.engine.own.items():
            typer.echo(f"note: the {part} runs as it was trained, in float32: {reason}", err=True)
    if alignments is not None and not trained.has_attention:
        raise UserError(f"{run}: this model has no attention, so there is nothing to align by")
    own = changed(changes or [])
    drawing = {key: own.pop(key) for key in [*own] if key in Sampling.model_fields}
    drawing |= given(seed=seed, temperature=temperature, top_k=top_k, top_p=top_p)
    if not sample and drawing:
        raise UserError(f"--{next(iter(drawing)).replace('_', '-')} says how outputs are drawn: add --sample")
    sampling = parse(Sampling, drawing) if sample else None
    width = n_best or 1 if sample else max(beam or trained.settings(**own).beam, n_best or 1)
    ranking = given(length_penalty=length_penalty, length_norm=length_norm, coverage_penalty=coverage_penalty)
    own |= {"beam": width, **ranking, **given(replace_unknown=replace_unknown or None)}
    settings = trained.settings(**own)
    if dictionary is not None:
        if not settings.replace_unknown:
            raise UserError("--dictionary says what unknown words are replaced by: add --replace-unknown")
        trained.dictionary = read_dictionary(dictionary)
    number, failed, cuts = 0, False, Counter[str]()
    with alignments.open("w", encoding="utf-8") if alignments is not None else nullcontext() as links:
        for lines in given_lines:
            given_rows = asked(lines) if jsonl else Asked(lines)
            found = trained.answer(given_rows.texts, settings, sampling, constraints=given_rows.constraints or None)
            problems = dict(sorted({**found.problems, **given_rows.problems}.items()))
            failures.name_each(problems, "<stdin>:", "its output is empty", number + 1)
            failed = failed or bool(problems)
            cuts.update(found.cuts.values())
            if jsonl:
                sys.stdout.writelines(answered(given_rows.rows, found.results, problems, n_best, scores))
            else:
                for index, hypotheses in enumerate(found.results, start=number):
                    sys.stdout.write(answer(index, hypotheses or [], n_best, scores, hypotheses is None))
            sys.stdout.flush()
            if links is not None:
                outputs = [hypotheses[0].text if hypotheses else "" for hypotheses in found.results]
                pairs = list(zip(failures.without(given_rows.texts, found.problems, ""), outputs, strict=True))
                failed = write_links(trained, pairs, links, number + 1) or failed
            number += len(lines)
    for key, count in cuts.items():
        typer.echo(f"warning: {count:,} of {number:,} outputs were cut at {key} before they ended; raise it", err=True)
    failures.leave(failed)


def changed(changes: Sequence[str]) -> dict[str, Any]:
    """`key=value` or `decoding.key=value`, as a recipe has it; but texts stand for themselves, whatever YAML makes of them."""
    from regard.recipe import Constraints, override

    pairs = [change.removeprefix("decoding.").partition("=") for change in changes]
    lists = {key for key in ("must", "ban") for name, _, value in pairs if name == key and value.startswith("[")}
    texts = {key: value for key, _, value in pairs if key in Constraints.model_fields.keys() - lists}
    return override({}, [f"{key}{sign}{value}" for key, sign, value in pairs if key not in texts]) | texts


def given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def answer(number: int, hypotheses: Sequence["Hypothesis"], n_best: int | None, scores: bool, failed: bool = False) -> str:
    """What is printed for one line. An empty line has no hypotheses: its output is empty, and certain; one that failed has
    the score of what cannot be."""
    rows = [(one_line(one.text), one.score) for one in hypotheses] or [("", float("-inf") if failed else 0.0)]
    if n_best is not None:
        return "".join(f"{number} ||| {text} ||| {score:.6f}\n" for text, score in rows[:n_best])
    text, score = rows[0]
    return f"{score:.6f}\t{text}\n" if scores else f"{text}\n"


LINE_ENDS = {ord(end): " " for end in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}  # wherever `str.splitlines` cuts


def one_line(text: str) -> str:
    """Each character that some reader takes for the end of a line becomes a space."""
    return text.translate(LINE_ENDS).encode("utf-8", errors="replace").decode("utf-8")


def write_links(trained: "TeacherForced", pairs: Sequence["Pair"], file: TextIO, first: int) -> bool:
    """A line for each pair; true if some have none, for what was written may be too long to be read again."""
    from regard.data.links import format_links

    found = trained.aligned(pairs, [trained.reading])
    failures.name_each(found.problems, "<stdin>:", "it has no links", first)
    file.writelines(("" if each is None else format_links(each[0].links)) + "\n" for each in found.results)
    return bool(found.problems)
