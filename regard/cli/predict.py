"""`regard predict`"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import failures
from regard.cli.asking import BLOCK, blocks, incoming
from regard.cli.lasting import lasting

if TYPE_CHECKING:
    from regard.decoding.labelling import Labelled, Prediction, TrainedLabeller


def predict(
    run: Annotated[Path, typer.Argument(help="A run or a model directory of a tagger or a classifier.")],
    text: Annotated[list[str] | None, typer.Option(help="Label this text instead of standard input. May be repeated.")] = None,
    file: Annotated[Path | None, typer.Option(help="Label the lines of this file (.gz too) instead.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print `probability<TAB>labels`.")] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Print `label=probability` for each label; with --jsonl, of all labels.")
    ] = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read and write JSON, one value per line: a text, or an object with `source`.")
    ] = False,
    unbuffered: Annotated[bool, typer.Option("--unbuffered", help="Answer each line at once.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Read lines from standard input, write one label per line, or one per token, to standard output.

    A line that the model cannot read gets an empty line and is named on standard error, and the exit code is 2.

    With --jsonl objects get `label` or `tags` and `probability` beside their own keys.
    """
    with lasting():
        from regard.cli.json_lines import Asked, asked
        from regard.decoding.labelling import TrainedLabeller
        from regard.decoding.load import load_as

    given, where = given_lines(text or [], file, unbuffered)
    trained = load_as(TrainedLabeller, run, device)
    number, failed = 0, False
    for lines in given:
        rows = asked(lines) if jsonl else Asked(lines)
        found = trained.labelled(rows.texts)
        problems = dict(sorted({**found.problems, **rows.problems}.items()))
        failures.name_each(problems, where, "it has no labels", number + 1)
        failed = failed or bool(problems)
        for index, one in enumerate(found.results):
            known = None if one is None or index in problems else one
            if jsonl:
                sys.stdout.write(as_json(trained, rows.rows[index], known, problems.get(index), probabilities))
            else:
                sys.stdout.write(answer(None if known is None else trained.prediction(known), scores, probabilities))
        sys.stdout.flush()
        number += len(lines)
    failures.leave(failed)


def given_lines(texts: list[str], file: Path | None, unbuffered: bool) -> tuple[Iterator[list[str]], str]:
    """Blocks of lines, and what comes before the number of one that is named."""
    from regard.errors import UserError

    if texts and file is not None:
        raise UserError("--text and --file both say what to label: leave one out")
    if texts:
        return iter([texts]), "--text "
    return (incoming(unbuffered), "<stdin>:") if file is None else (blocks(lines_of(file), BLOCK), f"{file}:")


def lines_of(file: Path) -> Iterator[bytes]:
    from regard.data.lines import open_binary, reading, require_file

    with reading(file):
        require_file(file)
        with open_binary(file) as opened:
            yield from opened


def answer(found: "Prediction | None", scores: bool, probabilities: bool) -> str:
    """The score is the probability of all labels of the line; 0 where it could not be read."""
    labels = [] if found is None else found.labels
    if probabilities and found is not None:
        labels = [f"{label}={chance:.4f}" for label, chance in zip(labels, found.probabilities, strict=True)]
    chance = 0.0 if found is None else math.exp(found.log_prob)
    return f"{f'{chance:.6f}' + chr(9) if scores else ''}{' '.join(labels)}\n"


def as_json(
    trained: "TrainedLabeller", row: dict[str, Any], known: "Labelled | None", problem: str | None, probabilities: bool
) -> str:
    """The object with its labels: null and the `error` where there are none. A label is a text, tags are an array."""
    from regard.data.jsonl import json_line

    writes = trained.model.writes
    if known is None:
        return json_line({**row, writes: None, "error": problem})
    found, names = trained.prediction(known), trained.labels.names
    several = trained.labels.like is not None
    every = [dict(zip(names, (round(chance, 6) for chance in row), strict=True)) for row in known.chances.tolist()]
    labels: Any = found.labels if several else found.labels[0]
    told = {"probabilities": every if several else every[0]} if probabilities else {}
    return json_line({**row, writes: labels, "probability": round(math.exp(found.log_prob), 6), **told})
