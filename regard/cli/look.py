"""`regard look`"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli import failures
from regard.cli.look_pictures import look_at_pictures


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
    from regard.insight.figure import FORMATS, boxes
    from regard.insight.heatmap import Heatmap
    from regard.insight.page import html as write_page
    from regard.insight.terminal import terminal
    from regard.recipe import choose

    if past and target is not None:
        raise UserError("--past looks at the source alone; it takes no --target")
    if (target is not None or png or svg or picture) and len(texts) > 1:
        raise UserError("--target, --png, --svg and --picture take one text; --html takes many")
    drawn = {path: choose(FORMATS, path.suffix[1:], "kind of picture") for path in [picture] if path is not None}
    trained = load_generator(run, device)
    trained.reading = change_reading(trained.reading, head, shift)
    if trained.model.regions is not None:
        return look_at_pictures(trained, texts, target, past, {"png": png, "svg": svg, "html": html}, picture)
    problems = trained.too_long(texts, None if target is None else [target])
    problems |= {
        index: "there is nothing to look at: the text is empty" for index, text in enumerate(texts) if not text.strip()
    }
    if len(problems) == len(texts):
        raise UserError(next(iter(problems.values())))
    failures.name_each(problems, "text ", "it is not shown")
    texts = [text for index, text in enumerate(texts) if index not in problems]
    targets = [target] if target is not None else texts if past else trained.generate(texts)
    if not all(targets) and trained.has_attention:
        raise UserError(f"there is nothing to look at: the model writes nothing for {texts[targets.index('')]!r}")
    if past:
        heatmaps = [
            Heatmap(one.source, one.target, one.weights, f"{run}: the encoder") for one in map(trained.look_back, texts)
        ]
    else:
        heatmaps = [trained.look(text, wrote, tokens or None).heatmap for text, wrote in zip(texts, targets, strict=True)]
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for heatmap, written in zip(heatmaps, targets, strict=True):
        typer.echo(f"{written}\n\n{terminal(heatmap, color=color)}")
    drawn |= {path: FORMATS[name] for name, path in (("png", png), ("svg", svg)) if path is not None}
    for path, draw in drawn.items():
        if draw is FORMATS["png"] and (told := boxes(heatmaps[0])) is not None:
            typer.echo(f"warning: {told}", err=True)
        draw(heatmaps[0], path)
        typer.echo(f"written: {path}", err=True)
    if html is not None:
        write_page(heatmaps, html)
        typer.echo(f"written: {html}", err=True)
    failures.leave(bool(problems))
