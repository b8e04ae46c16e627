"""`regard score`"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from regard.cli import failures
from regard.cli.asking import BLOCK, Block, Incoming, lines_of, standard_input
from regard.cli.generate import count_processes
from regard.cli.lasting import lasting
from regard.cli.progress import progress

if TYPE_CHECKING:
    from regard.data.tokenizers import Tokenizer
    from regard.decoding.forcing import Likelihood


class Window(NamedTuple):
    """Pairs that follow each other; a bad line has none, and is named in `problems` by its index."""

    items: list[tuple[str, ...]]
    rows: Sequence[dict[str, Any]]  # the objects they came in, if they did
    problems: Mapping[int, str]
    size: int


class Form(NamedTuple):
    """What is printed of a pair."""

    per_token: bool
    token_scores: bool

    def line(self, found: "Likelihood | None") -> str:
        """log p, or its mean over tokens; `nan` where there is no pair."""
        if found is None:
            return "nan\n"
        each = " ".join(f"{score:.6f}" for score in found.token_scores or ())
        return f"{self.number(found):.6f}" + (f"\t{each}" if self.token_scores else "") + "\n"

    def number(self, found: "Likelihood") -> float:
        return found.log_prob / found.tokens if self.per_token else found.log_prob

    def json(self, row: dict[str, Any], found: "Likelihood | None", problem: str | None, target: "Tokenizer") -> str:
        from regard.data.jsonl import json_line

        if found is None:
            return json_line({**row, "log_prob": None, "error": problem})
        facts: dict[str, Any] = {"log_prob": round(self.number(found), 6), "length": found.tokens}
        if found.token_scores is not None:
            facts["tokens"] = target.pieces(target.encode([row["target"]])[0])
            facts["token_scores"] = [round(score, 6) for score in found.token_scores]
        return json_line({**row, **facts})


def score(
    run: Annotated[Path, typer.Argument(help="A run or a model directory of a model that writes.")],
    source: Annotated[Path | None, typer.Option(help="Sources, one per line, instead of pairs on standard input.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their targets.")] = None,
    per_token: Annotated[bool, typer.Option("--per-token", help="The mean over tokens instead of the sum.")] = False,
    token_scores: Annotated[bool, typer.Option("--token-scores", help="Then a tab, and log p of each token.")] = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read and write JSON, one object per line with `source` and `target`.")
    ] = False,
    unbuffered: Annotated[bool, typer.Option("--unbuffered", help="Answer each line at once.")] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Answer in so many processes of one thread (one per core of a CPU).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """How probable targets are: log p(target | source) for each pair, one number per line, in order.

    Pairs come as `source<TAB>target` on standard input, or from two files. The end mark counts, so an empty target has a
    probability too. A line that is no pair, or too long for the model, gets `nan`, is named on standard error, and the exit
    code is 2.

    With --jsonl objects get `log_prob` and `length` (tokens and end mark) beside their own keys.
    """
    with lasting():
        from regard.decoding.files import answered
        from regard.decoding.load import load_generator
        from regard.decoding.workers import threads_for

    incoming, windows = pairs_in(source, target, jsonl, unbuffered)
    number = count_processes(processes, device, incoming)
    form, first, failed = Form(per_token, token_scores), 1, False
    with threads_for(number), progress(incoming.size, "", seen=not (sys.stdout.isatty() or incoming.at_once)) as tell:
        trained = load_generator(run, device)
        ask = partial(trained.likely, token_scores=token_scores)
        for window, found in answered(windows, ask, number):
            problems = dict(sorted({**found.problems, **window.problems}.items()))
            failures.name_each(problems, incoming.where, "it has no score", first)
            for index, one in enumerate(found.results):
                known = None if index in problems else one
                row = window.rows[index] if jsonl else {}
                out = form.json(row, known, problems.get(index), trained.target) if jsonl else form.line(known)
                sys.stdout.write(out)
            sys.stdout.flush()
            tell(len(window.items), window.size)
            first, failed = first + len(window.items), failed or bool(problems)
    failures.leave(failed)


def pairs_in(source: Path | None, target: Path | None, jsonl: bool, unbuffered: bool) -> tuple[Incoming, Iterator[Window]]:
    from regard.errors import UserError

    if (source is None) != (target is None):
        raise UserError("--source and --target are two files of as many lines: give both, or pairs on standard input")
    if source is None or target is None:
        incoming = standard_input(unbuffered)
        return incoming, map(objects if jsonl else parted, incoming.blocks)
    if jsonl:
        raise UserError("--jsonl reads objects from standard input: leave out --source and --target")
    both = lines_of(source, unbuffered), lines_of(target, unbuffered)
    named = Incoming(both[0].blocks, f"{source}:", both[0].size, unbuffered)
    return named, beside(source, target, *both, size=1 if unbuffered else BLOCK)


def parted(block: Block) -> Window:
    """Lines of source, tab and target."""
    pairs = [tuple(text.split("\t")) for text in block.texts]
    problems = {at: f"{len(pair)} columns, and a pair has 2, with a tab between them" for at, pair in enumerate(pairs)
                if len(pair) != 2}  # fmt: skip
    items = [("", "") if at in problems else pair for at, pair in enumerate(pairs)]
    return Window(items, (), {**problems, **block.problems}, block.size)


def objects(block: Block) -> Window:
    from regard.cli.json_lines import asked
    from regard.data.jsonl import BadValue, json_text

    found = asked(*block)
    items, problems = list[tuple[str, ...]](), {**found.problems}
    for index, (text, row) in enumerate(zip(found.texts, found.rows, strict=True)):
        items.append(("", ""))
        if index not in problems:
            try:
                items[-1] = text, json_text(row, "target")
            except BadValue as problem:
                problems[index] = str(problem)
    return Window(items, found.rows, problems, block.size)


def beside(source: Path, target: Path, sources: Incoming, targets: Incoming, size: int) -> Iterator[Window]:
    """The lines of two files, which must be as many."""
    from regard.errors import DataError

    sides = [chain.from_iterable(map(lines_with_problems, side.blocks)) for side in (sources, targets)]
    window, number = Window([], (), {}, 0), 0
    for one, other in zip_longest(*sides):
        if one is None or other is None:
            shorter, longer = (source, target) if one is None else (target, source)
            raise DataError(f"{longer}:{number + 1}: no line to go with it: {shorter} has only {number} lines")
        problem, number = one[1] or other[1], number + 1
        problems = {**window.problems, **({} if problem is None else {len(window.items): problem})}
        window.items.append((one[0], other[0]))
        window = window._replace(problems=problems, size=window.size + len(one[0].encode()) + 1)
        if len(window.items) == size:
            yield window
            window = Window([], (), {}, 0)
    if window.items:
        yield window


def lines_with_problems(block: Block) -> Iterator[tuple[str, str | None]]:
    return ((text, block.problems.get(at)) for at, text in enumerate(block.texts))
