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
    from regard.decoding.trained import Trained
    from regard.insight.heatmap import Heatmap
    from regard.insight.look import Look


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
    layer: Annotated[int | None, typer.Option(min=1, help="Show this layer; with it --head counts from 1 too.")] = None,
    map_: Annotated[str | None, typer.Option("--map", help="Which attention: cross, encoder, decoder ...")] = None,
    rollout: Annotated[bool, typer.Option("--rollout", help="All layers of a self-attention multiplied.")] = False,
    beam: Annotated[int | None, typer.Option(min=1, help="Outputs that are searched and told in pages and JSON.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write every map and probability, one object for each text.")] = None,
    shift: Annotated[int | None, typer.Option(min=0, max=1, help="1: show the step after a word's own.")] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show tokens instead of words; text without spaces is always shown so.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Show which source words the model looked at for each word it wrote, or any other of its attentions."""
    from regard.data.jsonl import json_line
    from regard.decoding.load import load
    from regard.decoding.reading import change_reading
    from regard.errors import UserError
    from regard.insight.figure import FORMATS
    from regard.insight.maps import View
    from regard.insight.page import html as write_page
    from regard.insight.terminal import terminal
    from regard.recipe import choose

    wanted = View(map_, layer, head, rollout)
    chosen = past or wanted._replace(head=None) != View()
    if past and target is not None:
        raise UserError("--past looks at the source alone; it takes no --target")
    if (target is not None or png or svg or picture) and len(texts) > 1:
        raise UserError("--target, --png, --svg and --picture take one text; --html takes many")
    drawn = {picture: choose(FORMATS, picture.suffix[1:], "kind of picture")} if picture is not None else {}
    drawn |= {path: FORMATS[name] for name, path in (("png", png), ("svg", svg)) if path is not None}
    trained = load(run, device)
    trained.reading = change_reading(trained.reading, None if chosen else head, shift)
    if getattr(trained.model, "regions", None) is not None:
        return look_at_pictures(trained, texts, target, past, {"png": png, "svg": svg, "html": html}, picture)
    readable = name_unread(trained, texts, target)
    changes = {} if beam is None else {"beam": beam}
    looks = [trained.look(text, target, tokens or None, bool(chosen or html or json), **changes) for text in readable]
    if chosen:
        looks = [one.view(*(View(past_of(one)) if past else wanted)) for one in looks]
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for one in looks:
        typer.echo(f"{one.text if past else one.output}\n\n{terminal(one.heatmap, color=color)}")
    for path, draw in drawn.items():
        draw_into(path, draw, looks[0].heatmap)
    if html is not None:
        write_page([one.page_figure for one in looks], html)
        typer.echo(f"written: {html}", err=True)
    if json is not None:
        json.write_text("".join(json_line(one.as_dict()) for one in looks), "utf-8")
        typer.echo(f"written: {json}", err=True)
    failures.leave(len(readable) < len(texts))


def name_unread(trained: "Trained", texts: list[str], target: str | None) -> list[str]:
    """The texts that can be looked at; the others are named, and if there is no other that is an error."""
    from regard.errors import UserError

    problems = trained.too_long(texts, None if target is None else [target]) if "source" in trained.fields else {}
    problems |= {at: "there is nothing to look at: the text is empty" for at, text in enumerate(texts) if not text.strip()}
    if len(problems) == len(texts):
        raise UserError(next(iter(problems.values())))
    failures.name_each(problems, "text ", "it is not shown")
    return [text for at, text in enumerate(texts) if at not in problems]


def past_of(look: "Look") -> str:
    """The attention of an encoder to what it has read."""
    from regard.errors import UserError
    from regard.insight.maps import kinds_of

    kinds = [kind for kind in kinds_of(look.maps) if kind in ("encoder_recurrence", "encoder", "sequence")]
    if not kinds:
        raise UserError(
            "this encoder does not attend to what it has read; train one with cell=lstm_tape, cell=tanh_attention or "
            "connections=self_attention"
        )
    return kinds[0]


def draw_into(path: Path, draw: Callable[["Heatmap", Path], None], heatmap: "Heatmap") -> None:
    from regard.insight.figure import FORMATS, boxes

    if draw is FORMATS["png"] and (told := boxes(heatmap)) is not None:
        typer.echo(f"warning: {told}", err=True)
    draw(heatmap, path)
    typer.echo(f"written: {path}", err=True)
