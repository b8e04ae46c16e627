"""`regard look` of models that read images: the attention laid over the picture, one panel for each word."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli import failures
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.decoding.trained import Trained


def look_at_pictures(
    trained: "Trained", names: list[str], target: str | None, past: bool, files: Mapping[str, Path | None],
    picture: Path | None,
) -> None:  # fmt: skip
    """Files by their kind, and one whose name says which it is."""
    from regard.insight.panels import PANEL_FORMATS, PictureLook

    if past:
        raise UserError("--past is about texts, which an encoder reads word by word; an image is read at once")
    if files.get("html") and len(names) > 1:
        raise UserError("of images --html takes one, as --png and --svg do")
    _, problems = trained.encoded("source", names)
    if len(problems) == len(names):
        raise UserError(next(iter(problems.values())))
    failures.name_each(problems, "image ", "it is not shown")
    for index, name in enumerate(names):
        if index in problems:
            continue
        look = trained.look(name, target)
        assert isinstance(look, PictureLook)
        typer.echo(repr(look))
        drawn = [*files.items(), *([(picture.suffix[1:], picture)] if picture is not None else [])]
        for kind, path in drawn:
            if path is not None:
                PANEL_FORMATS[kind](look.panels, path)
                typer.echo(f"written: {path}", err=True)
    failures.leave(bool(problems))
