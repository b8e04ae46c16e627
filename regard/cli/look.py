"""`regard look`"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import failures
from regard.cli.look_pictures import look_at_pictures

if TYPE_CHECKING:
    from regard.decoding.generator import TrainedGenerator
    from regard.insight.heatmap import Heatmap


def look(
    run: Annotated[Path, typer.Argument(help="A run or a model directory.")],
    texts: Annotated[list[str], typer.Argument(help="What to translate, and to look at: texts, or names of images.")],
    target: Annotated[str | None, typer.Option(help="Align with this target instead of the model's own output.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write a drawing.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write what the ending of this name says, such as .svg.")] = None,
    past: Annotated[bool, typer.Option("--past", help="Show where the encoder looked while it read each word.")] = False,
    head: Annotated[int | None, typer.Option(min=-1, help="Show this head of the attention; -1: the mean of all.")] = None,
    shift: Annotated[int | None, typer.Option(min=0, max=1, help="1: show the step after a word's own.")] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show tokens instead of words; text without spaces is always shown so.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Show which source words the model looked at for each word it wrote."""
    from regard.decoding.load import load_generator
    from regard.decoding.reading import change_reading
    from regard.errors import UserError
    from regard.insight.figure import FORMATS
    from regard.insight.page import html as write_page
    from regard.insight.terminal import terminal
    from regard.recipe import choose

    if past and target is not None:
        raise UserError("--past looks at the source alone; it takes no --target")
    if (target is not None or png or svg or picture) and len(texts) > 1:
        raise UserError("--target, --png, --svg and --picture take one text; --html takes many")
    drawn = {picture: choose(FORMATS, picture.suffix[1:], "kind of picture")} if picture is not None else {}
    drawn |= {path: FORMATS[name] for name, path in (("png", png), ("svg", svg)) if path is not None}
    trained = load_generator(run, device)
    trained.reading = change_reading(trained.reading, head, shift)
    if trained.model.regions is not None:
        return look_at_pictures(trained, texts, target, past, {"png": png, "svg": svg, "html": html}, picture)
    readable = name_unread(trained, texts, target)
    looks = looks_back(trained, readable, run) if past else looks_of(trained, readable, target, tokens)
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for written, heatmap in looks:
        typer.echo(f"{written}\n\n{terminal(heatmap, color=color)}")
    for path, draw in drawn.items():
        draw_into(path, draw, looks[0][1])
    if html is not None:
        write_page([heatmap for _, heatmap in looks], html)
        typer.echo(f"written: {html}", err=True)
    failures.leave(len(readable) < len(texts))


def name_unread(trained: "TrainedGenerator", texts: list[str], target: str | None) -> list[str]:
    """The texts that can be looked at; the others are named, and if there is no other that is an error."""
    from regard.errors import UserError

    problems = trained.too_long(texts, None if target is None else [target])
    problems |= {at: "there is nothing to look at: the text is empty" for at, text in enumerate(texts) if not text.strip()}
    if len(problems) == len(texts):
        raise UserError(next(iter(problems.values())))
    failures.name_each(problems, "text ", "it is not shown")
    return [text for at, text in enumerate(texts) if at not in problems]


def looks_of(trained: "TrainedGenerator", texts: list[str], target: str | None, tokens: bool) -> list[tuple[str, "Heatmap"]]:
    """What was written for each text, and where the model looked."""
    from regard.errors import UserError

    targets = [target] if target is not None else trained.generate(texts)
    if not all(targets) and trained.has_attention:
        raise UserError(f"there is nothing to look at: the model writes nothing for {texts[targets.index('')]!r}")
    pairs = zip(texts, targets, strict=True)
    return [(wrote, trained.look(text, wrote, tokens or None).heatmap) for text, wrote in pairs]


def looks_back(trained: "TrainedGenerator", texts: list[str], run: Path) -> list[tuple[str, "Heatmap"]]:
    """Each text, and where the encoder looked while it read it."""
    return [(text, trained.look(text, text).view("encoder_recurrence").heatmap) for text in texts]


def draw_into(path: Path, draw: Callable[["Heatmap", Path], None], heatmap: "Heatmap") -> None:
    from regard.insight.figure import FORMATS, boxes

    if draw is FORMATS["png"] and (told := boxes(heatmap)) is not None:
        typer.echo(f"warning: {told}", err=True)
    draw(heatmap, path)
    typer.echo(f"written: {path}", err=True)
