"""`regard look` at texts: which models look, what is shown of each look, and what is written."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from regard.cli import failures
from regard.data.fields import Text
from regard.data.jsonl import json_line
from regard.data.links import Links, read_links
from regard.data.tokenizer import UNKNOWN
from regard.decoding.load import load
from regard.decoding.trained import Trained
from regard.errors import UserError
from regard.insight.figure import FORMATS, boxes
from regard.insight.look import Look, SideBySide
from regard.insight.maps import View, kinds_of
from regard.insight.page import write_page
from regard.insight.terminal import probabilities, terminal
from regard.models.unfinished import checkpoints_of
from regard.recipe import choose

if TYPE_CHECKING:
    from regard.insight.heatmap import Heatmap, Sheet

LONG = 500  # lines, more than a terminal is scrolled back for


class Files(NamedTuple):
    """What is written, by its kind; `picture` by what its name ends in."""

    png: Path | None
    svg: Path | None
    pdf: Path | None
    picture: Path | None
    html: Path | None
    json: Path | None

    @property
    def every(self) -> bool:
        """Whether all maps and probabilities are asked for."""
        return self.html is not None or self.json is not None

    def drawn(self) -> list[tuple[str, Path]]:
        """Formats of pictures and where they go."""
        named = {} if self.picture is None else {self.picture: format_of(self.picture)}
        given = {"png": self.png, "svg": self.svg, "pdf": self.pdf}
        for kind, path in given.items():
            refuse_other_ending(kind, path)
        return [(kind, path) for path, kind in (named | {path: kind for kind, path in given.items() if path}).items()]


def format_of(path: Path) -> str:
    choose(FORMATS, path.suffix[1:], "kind of picture")
    return path.suffix[1:]


def refuse_other_ending(kind: str, path: Path | None) -> None:
    """Programs open a file by what its name ends in."""
    if path is not None and path.suffix.lower() not in ("", f".{kind}"):
        raise UserError(f"--{kind} {path}: what is written is {kind.upper()}: let the name end in .{kind}, or use --picture")


class Wanted(NamedTuple):
    """What is shown of each text."""

    view: View
    past: bool
    grid: bool

    @property
    def chosen(self) -> bool:
        """Whether it is another map than the reading."""
        return self.past or self.grid or self.view._replace(head=None) != View()


def check(asked: Sequence[str], targets: Sequence[str] | None, gold: Path | None, wanted: Wanted, compares: bool) -> None:
    if not asked:
        raise UserError("name a text to look at, or --file with one on each line")
    if wanted.past and targets is not None:
        raise UserError("--past looks at the source alone; it takes no --target")
    if targets is not None and len(targets) != len(asked):
        raise UserError(
            f"{len(asked)} texts and {len(targets)} targets: --target is for one, --target-file has a line for each"
        )
    if gold is not None and targets is None:
        raise UserError("--gold links words of given targets: name --target or --target-file too")
    if wanted.grid and (compares or wanted.view._replace(kind=None) != View()):
        raise UserError("--grid is every layer and head of one model: no --layer, --head, --rollout, --beside or --checkpoints")


def kept_by(run: Path, trained: Trained, device: str) -> list[Trained]:
    """What a run has kept as it learned; all are read in its way."""
    steps = [load(path, device) for path in checkpoints_of(run)]
    if not steps:
        raise UserError(f"{run}: it has kept no checkpoints; train with training.keep_last=10, for example")
    for one in steps:
        one.reading = trained.reading
    return steps


def read_gold(path: Path | None, count: int) -> dict[int, Links]:
    links = [] if path is None else read_links(path)
    if path is not None and len(links) != count:
        raise UserError(f"{path}: {len(links)} lines of links for {count} texts")
    return dict(enumerate(links))


def unread(trained: Trained, texts: Sequence[str], targets: Sequence[str] | None) -> dict[int, str]:
    """What is wrong with some texts, which are named; if there is no other that is an error."""
    problems = trained.too_long(texts, targets) if "source" in trained.fields else {}
    problems |= {at: "there is nothing to look at: the text is empty" for at, text in enumerate(texts) if not text.strip()}
    if len(problems) == len(texts):
        raise UserError(next(iter(problems.values())))
    failures.name_each(problems, "text ", "it is not shown")
    return problems


def note_unknown(trained: Trained, texts: Sequence[str], shown: int = 8) -> None:
    """Words that are drawn as they stand, though the model has read none of them."""
    field = trained.fields.get("source")
    if not isinstance(field, Text):
        return
    rows = zip(field.tokenizer.encode(texts), field.tokenizer.surfaces(texts), strict=True)
    words = dict.fromkeys(word for row in rows for token, word in zip(*row, strict=True) if token == UNKNOWN)
    told = ", ".join(word.decode(errors="replace").strip() for word in list(words)[:shown])
    if words:
        more = f" and {len(words) - shown:,} more" if len(words) > shown else ""
        typer.echo(f"note: the model reads {told}{more} as the unknown word: no vocabulary of it has them", err=True)


class Looked(NamedTuple):
    """At one text: by the run that was named, and by all that are shown, while they write the same output."""

    own: Look
    shown: list[Look]


def looked(
    models: Sequence[Trained], first: Trained, row: tuple[str, str | None], links: Links | None, wanted: Wanted,
    every: bool, tokens: bool | None, beam: int | None,
) -> Looked:  # fmt: skip
    """One look for each model; the output is that of the run which was named."""
    maps, (text, target) = every or wanted.chosen or beam is not None, row
    own = first.look(text, target, tokens, maps, **({} if beam is None else {"beam": beam}))
    output = own.output if {"source", "target"} <= first.fields.keys() else None
    looks = [own if model is first else model.look(text, output, tokens, maps) for model in models]
    if links is not None:
        looks = [one.against(*links) for one in looks]
    if wanted.chosen and not wanted.grid:
        looks = [one.view(*(View(past_of(one)) if wanted.past else wanted.view)) for one in looks]
    return Looked(own, looks)


def past_of(look: Look) -> str:
    """The attention of an encoder to what it has read."""
    kinds = [kind for kind in kinds_of(look.maps) if kind in ("encoder_recurrence", "encoder", "sequence")]
    if not kinds:
        raise UserError(
            "this encoder does not attend to what it has read; train one with cell=lstm_tape, cell=tanh_attention or "
            "connections=self_attention"
        )
    return kinds[0]


def pictured(looks: Sequence[Look], wanted: Wanted) -> "Heatmap | Sheet":
    if wanted.grid:
        return looks[0].grid(wanted.view.kind)
    return looks[0].heatmap if len(looks) == 1 else SideBySide(looks).sheet


def tell(found: Sequence[Looked], wanted: Wanted, beam: bool) -> None:
    """On the terminal: the output, each map, and what else was probable to the run that was named."""
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for own, looks in found:
        heatmaps = looks[0].grid(wanted.view.kind).heatmaps if wanted.grid else [one.heatmap for one in looks]
        head = [own.text if wanted.past else own.output]
        drawn = "\n\n".join([*head, *(terminal(one, color=color) for one in heatmaps)])
        typer.echo(drawn)
        if (lines := drawn.count("\n") + 1) > LONG:
            typer.echo(f"note: these are {lines:,} lines; --html FILE is one page to move in, --png FILE one picture", err=True)
        if beam:
            typer.echo(f"\n{probabilities(own.chances, own.candidates)}")


def write(found: Sequence[Looked], wanted: Wanted, files: Files) -> None:
    for number, (_, looks) in enumerate(found, start=1):
        for kind, path in files.drawn():
            draw(pictured(looks, wanted), kind, path if len(found) == 1 else numbered(path, number))
    if files.html is not None:
        write_page([[one.page_figure for one in looks] for _, looks in found], files.html)
        typer.echo(f"written: {files.html}", err=True)
    if files.json is not None:
        files.json.write_text("".join(json_line(one.as_dict()) for _, looks in found for one in looks), "utf-8")
        typer.echo(f"written: {files.json}", err=True)


def numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}-{number}{path.suffix}")


def draw(picture: "Heatmap | Sheet", kind: str, path: Path) -> None:
    if kind in ("png", "pdf") and (told := boxes(picture)) is not None:
        typer.echo(f"warning: {told}", err=True)
    FORMATS[kind](picture, path)
    typer.echo(f"written: {path}", err=True)
