"""`regard align`"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import failures

if TYPE_CHECKING:
    from regard.data.links import Link, Links
    from regard.decoding.directions import Directions, Join
    from regard.decoding.forcing import TeacherForced
    from regard.decoding.reading import Pair
    from regard.evaluation.alignment import AlignmentScore

BLOCK = 4096  # pairs that are sorted by length and aligned together


def align(
    run: Annotated[Path, typer.Argument(help="A run or a model directory.")],
    source: Annotated[Path, typer.Option(help="Sources, one per line.")],
    target: Annotated[Path, typer.Option(help="Their targets.")],
    reverse: Annotated[Path | None, typer.Option(help="A model from target to source: align by both.")] = None,
    symmetrise: Annotated[str | None, typer.Option(help="How both directions' links are joined (grow_diag).")] = None,
    agree: Annotated[float | None, typer.Option(min=0, max=1, help="Instead: links of this agreement or more.")] = None,
    gold: Annotated[Path | None, typer.Option(help="True links: print the alignment error rate.")] = None,
    head: Annotated[int | None, typer.Option(min=-1, help="Read this head of the attention; -1: the mean of all.")] = None,
    shift: Annotated[int | None, typer.Option(min=0, max=1, help="1: read the step after a word's own.")] = None,
    best: Annotated[bool, typer.Option("--choose", help="Find the best head and shift on --gold; store them.")] = False,
    dictionary: Annotated[
        Path | None, typer.Option(help="Write the words most often linked here, for `regard generate --dictionary`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The rates as one JSON object.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Link the words of each pair: one line of links i-j per pair, words counted from 0, to standard output.

    Error rates go to standard error. Where there are no spaces between words, tokens are counted instead.
    """
    from regard.data.dictionary import learn_dictionary, write_dictionary
    from regard.data.spool import spooled
    from regard.decoding.directions import Directions
    from regard.decoding.reading import change_reading
    from regard.errors import UserError
    from regard.evaluation.alignment import alignment_error_rate, read_gold

    if best and (gold is None or head is not None or shift is not None):
        raise UserError("--choose finds the head and the shift on --gold: give --gold, and neither --head nor --shift")
    join = joining(reverse, symmetrise, agree)
    with spooled({"source": source, "target": target, "gold": gold}) as (files, _):
        pairs = read_both(files["source"], files["target"])
        truth = None if gold is None else read_gold(files["gold"], pairs)
    models = [(path, load_attentive(path, device)) for path in (run, reverse) if path is not None]
    for _, model in models:
        model.reading = change_reading(model.reading, head, shift)
    problems = {} if not pairs else too_long([model for _, model in models], pairs)
    failures.name_each(problems, "pair ", "it has no links")
    pairs = failures.without(pairs, problems, ("", ""))
    if best and truth is not None:
        choose_readings(models, pairs, truth)
    directions = Directions(models[0][1], models[1][1] if reverse else None, join, words=gold is not None)
    for side in (name for name, apart in zip(("source", "target"), directions.tokens, strict=True) if apart):
        typer.echo(f"note: the {side} has no spaces between words: its tokens are counted", err=True)
    if dictionary is not None and any(directions.tokens):
        raise UserError("--dictionary is of words, and this text has no spaces between them")
    links = write_links(directions, pairs)
    if dictionary is not None:
        write_dictionary(dictionary, learn_dictionary(pairs, [*links.values()][-1]))
    if truth is not None:
        show({name: alignment_error_rate(found, truth) for name, found in links.items()}, as_json)
    failures.leave(bool(problems))


def too_long(models: Sequence["TeacherForced"], pairs: Sequence["Pair"]) -> dict[int, str]:
    """Pairs that the model, or the one of the other direction, cannot read."""
    sides = [list(side) for side in zip(*pairs, strict=True)]
    return {
        index: problem
        for model, both in zip(models, (sides, sides[::-1]), strict=False)
        for index, problem in model.too_long(*both).items()
    }


def joining(reverse: Path | None, symmetrise: str | None, agree: float | None) -> "Join":
    from regard.decoding.directions import agreed, symmetrised
    from regard.errors import UserError

    if reverse is None and (symmetrise is not None or agree is not None):
        raise UserError("--symmetrise and --agree join two directions: give a model of the other one with --reverse")
    if symmetrise is not None and agree is not None:
        raise UserError("give --symmetrise or --agree, not both")
    return symmetrised(symmetrise or "grow_diag") if agree is None else agreed(agree)


def read_both(source: Path, target: Path) -> list["Pair"]:
    """All pairs, the empty ones too: every line of the output belongs to a line of the input."""
    from regard.errors import DataError

    sides = {path: list(texts(path)) for path in (source, target)}
    shorter, longer = sorted((source, target), key=lambda path: len(sides[path]))
    count = len(sides[shorter])
    if count < len(sides[longer]):
        raise DataError(f"{longer}:{count + 1}: no line to go with it: {shorter} has only {count} lines")
    return list(zip(sides[source], sides[target], strict=True))


def texts(path: Path) -> Iterator[str]:
    from regard.data.lines import read_lines
    from regard.errors import DataError

    for lines in read_lines(path):
        for number, problem in lines.problems.items():
            raise DataError(f"{path}:{number}: {problem}")
        yield from lines.texts


def load_attentive(path: Path, device: str) -> "TeacherForced":
    from regard.decoding.load import load_generator
    from regard.errors import UserError

    trained = load_generator(path, device)
    if not trained.has_attention:
        raise UserError(f"{path}: this model has no attention, so there is nothing to align by")
    return trained


def choose_readings(models: Sequence[tuple[Path, "TeacherForced"]], pairs: Sequence["Pair"], gold: Sequence["Links"]) -> None:
    """Each model's best reading, the second one's on pairs and links turned round; they are stored with the models."""
    from regard.data.links import flip_gold
    from regard.evaluation.alignment import choose_reading
    from regard.models.directory import store_reading

    for path, model in models:
        model.reading = choose_reading(model, pairs, gold)
        store_reading(path, model.reading)
        head = "the mean of all heads" if model.reading.head is None else f"head {model.reading.head}"
        typer.echo(f"{path}: alignments are read from {head}, shift {model.reading.shift}", err=True)
        pairs, gold = [(target, source) for source, target in pairs], [flip_gold(links) for links in gold]


def write_links(directions: "Directions", pairs: Sequence["Pair"]) -> dict[str, list[frozenset["Link"]]]:
    """A line for each pair by all directions together; returns the links by each of them too."""
    from regard.data.links import format_links

    links: dict[str, list[frozenset[Link]]] = {}
    for first in range(0, len(pairs), BLOCK):
        for name, found in directions.align(pairs[first : first + BLOCK]).items():
            links.setdefault(name, []).extend(found)
        typer.echo("".join(f"{format_links(one)}\n" for one in found), nl=False)
    return links


def show(scores: dict[str, "AlignmentScore"], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({name: score._asdict() for name, score in scores.items()}), err=True)
        return
    typer.echo(f"{'':10}{'error rate':>12}{'precision':>12}{'recall':>12}", err=True)
    for name, score in scores.items():
        typer.echo(f"{name:10}" + "".join(f"{value:12.3f}" for value in score), err=True)
