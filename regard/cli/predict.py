"""`regard predict`"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import failures
from regard.cli.asking import incoming

if TYPE_CHECKING:
    from regard.decoding.labelling import Prediction


def predict(
    run: Annotated[Path, typer.Argument(help="A run or a model directory of a tagger or a classifier.")],
    scores: Annotated[bool, typer.Option("--scores", help="Print `probability<TAB>labels`.")] = False,
    unbuffered: Annotated[bool, typer.Option("--unbuffered", help="Answer each line at once.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Read lines from standard input, write one label per line, or one per token, to standard output.

    A line that the model cannot read gets an empty line and is named on standard error, and the exit code is 2.
    """
    from regard.decoding.labelling import TrainedLabeller
    from regard.decoding.load import load_as

    given_lines = incoming(unbuffered)
    trained = load_as(TrainedLabeller, run, device)
    number, failed = 0, False
    for lines in given_lines:
        found = trained.predictions(lines)
        failures.name_each(found.problems, "<stdin>:", "its line is empty", number + 1)
        failed = failed or bool(found.problems)
        sys.stdout.writelines(answer(one, scores) for one in found.results)
        sys.stdout.flush()
        number += len(lines)
    failures.leave(failed)


def answer(found: "Prediction | None", scores: bool) -> str:
    """The probability is that of all labels of the line; 0 where it could not be read."""
    if not scores:
        return f"{'' if found is None else found}\n"
    chance = 0.0 if found is None else 1.0
    for each in () if found is None else found.probabilities:
        chance *= each
    return f"{chance:.6f}\t{'' if found is None else found}\n"
