"""`regard continue`"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import failures
from regard.cli.asking import standard_input
from regard.cli.lasting import lasting

if TYPE_CHECKING:
    from regard.decoding.streaming import PartialOutput


def continue_(
    run: Annotated[Path, typer.Argument(help="A run or a model directory of a language model.")],
    prompt: Annotated[
        str | None, typer.Argument(help="What the text begins with; without it, each line of standard input.")
    ] = None,
    number: Annotated[int, typer.Option(min=1, help="So many texts for each prompt.")] = 1,
    length: Annotated[int | None, typer.Option(min=1, help="Tokens of each text at most.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Draw by p ** (1 / temperature).")] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from the K most probable words.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the fewest words that are so probable together.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed draws other texts.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="The most probable word at each step instead.")] = False,
    beam: Annotated[int | None, typer.Option(min=1, help="The most probable texts instead, by beam search.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print `log p<TAB>text`.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Write how texts go on, after the prompt, which may be empty. One text is shown word by word while it is written.

    A line that the model cannot read gets an empty line and is named on standard error, and the exit code is 2.

    Example: regard continue runs/model "two times three equals" --greedy
    """
    with lasting():
        from regard.cli.generate import given
        from regard.cli.outputs import one_line
        from regard.decoding.language import TrainedLanguageModel
        from regard.decoding.load import load_as
        from regard.decoding.sampling import Sampling
        from regard.errors import InputError, UserError
        from regard.recipe import parse

    drawing = given(seed=seed, temperature=temperature, top_k=top_k, top_p=top_p)
    if (greedy or beam is not None) and drawing:
        raise UserError(f"--{next(iter(drawing)).replace('_', '-')} says how texts are drawn: leave out --greedy and --beam")
    if greedy and (beam is not None or number > 1):
        raise UserError("--greedy writes one text: leave out --beam and --number")
    trained = load_as(TrainedLanguageModel, run, device)
    changes = given(max_length=length, beam=1 if greedy else beam)
    search, sampling = greedy or beam is not None, parse(Sampling, drawing)

    def answer(line: str) -> None:
        if number == 1 and not scores and beam in (None, 1):
            trained.continue_(line, 1, sampling, search=search, on_step=Stream(line), **changes)
            return
        for found in trained.continue_(line, number, sampling, search=search, **changes):
            text = one_line(line + found.text) if not trained.lines_go_on else line + found.text
            sys.stdout.write(f"{found.log_prob:.6f}\t{text}\n" if scores else f"{text}\n")
        sys.stdout.flush()

    if prompt is None:
        return failures.leave(each_line(answer))
    try:
        answer(prompt)
    except InputError as error:
        raise UserError(f"the prompt: {error.problems[0]}") from None


def each_line(answer: Callable[[str], None]) -> bool:
    """Of standard input: one that cannot be continued is named and gets an empty line; whether there was any."""
    from regard.errors import InputError

    failed = False
    for number, block in enumerate(standard_input(unbuffered=True).blocks, start=1):
        try:
            if block.problems:
                raise InputError("lines", dict(block.problems), [])
            answer(*block.texts)
        except InputError as error:
            failures.name_each(error.problems, "<stdin>:", "its output is empty", number)
            sys.stdout.write("\n")
            failed = True
    return failed


class Stream:
    """Shows a text while it is written: the prompt, then whatever is new."""

    def __init__(self, prompt: str) -> None:
        self.prompt: str | None = prompt
        self.shown = ""

    def __call__(self, output: "PartialOutput") -> None:
        """A word may change while its pieces come, so the last one waits for the next."""
        sys.stdout.write(self.prompt or "")
        self.prompt = None
        new = output.text if output.finished else output.text[: max(output.text.rfind(" "), output.text.rfind("\n")) + 1]
        if new.startswith(self.shown):
            sys.stdout.write(new[len(self.shown) :])
            self.shown = new
        if output.finished:
            sys.stdout.write("\n")
        sys.stdout.flush()
