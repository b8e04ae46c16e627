"""`regard look` of models that read images: the attention laid over the picture, one panel for each word."""

from collections.abc import Sequence

import typer

from regard.cli import failures
from regard.cli.look_texts import Files, numbered
from regard.decoding.trained import Trained
from regard.errors import UserError
from regard.insight.panels import PANEL_FORMATS, PictureLook, boxes, page_of


def look_at_pictures(
    trained: Trained, names: Sequence[str], targets: Sequence[str] | None, files: Files, refused: Sequence[str]
) -> None:
    """Files by their kind; a page has all images, other files one each."""
    if refused:
        raise UserError(f"{refused[0]} is about texts, which are read word by word; an image is read at once")
    if files.json is not None:
        raise UserError("--json is about texts; of images there are --png, --svg, --pdf and --html")
    _, problems = trained.encoded("source", names)
    if len(problems) == len(names):
        raise UserError(next(iter(problems.values())))
    failures.name_each(problems, "image ", "it is not shown")
    readable = [at for at in range(len(names)) if at not in problems]
    shown = list[PictureLook]()
    for at in readable:
        look = trained.look(names[at], targets[at] if targets is not None else None, maps=False)
        assert isinstance(look, PictureLook)
        typer.echo(repr(look))
        shown.append(look)
        for kind, path in files.drawn():
            place = path if len(readable) == 1 else numbered(path, len(shown))
            if kind != "html" and (told := boxes(look.panels)) is not None:
                typer.echo(f"warning: {told}", err=True)
            PANEL_FORMATS[kind](look.panels, place)
            typer.echo(f"written: {place}", err=True)
    if files.html is not None:
        files.html.write_text(page_of([one.panels for one in shown]), encoding="utf-8")
        typer.echo(f"written: {files.html}", err=True)
    failures.leave(bool(problems))
