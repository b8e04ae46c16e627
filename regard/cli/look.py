"""`regard look`"""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli import failures


def look(
    run: Annotated[Path, typer.Argument(help="A run, a model directory or a checkpoint of a run.")],
    texts: Annotated[list[str] | None, typer.Argument(help="What to look at: texts, or names of images.")] = None,
    file: Annotated[Path | None, typer.Option(help="More of them, one per line.")] = None,
    target: Annotated[str | None, typer.Option(help="Align with this target instead of the model's own output.")] = None,
    target_file: Annotated[Path | None, typer.Option(help="A target for each text, one per line.")] = None,
    gold: Annotated[Path | None, typer.Option(help="True links of each text and target, drawn as outlines.")] = None,
    beside: Annotated[list[Path] | None, typer.Option(metavar="RUN", help="Another model beside it. May be repeated.")] = None,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="The run as it learned: all that it has kept.")] = False,
    png: Annotated[Path | None, typer.Option(help="Write a picture; of many texts, each gets a number.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write a drawing.")] = None,
    pdf: Annotated[Path | None, typer.Option(help="Write a drawing for papers.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page, of all texts.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write what the ending of this name says, such as .svg.")] = None,
    past: Annotated[bool, typer.Option("--past", help="Show where the encoder looked while it read each word.")] = False,
    head: Annotated[int | None, typer.Option(min=-1, help="Show this head of the attention; -1: the mean of all.")] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="Show this layer; with it --head counts from 1 too.")] = None,
    map_: Annotated[str | None, typer.Option("--map", help="Which attention: cross, encoder, decoder ...")] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Every layer and head of it as one picture.")] = False,
    rollout: Annotated[bool, typer.Option("--rollout", help="All layers of a self-attention multiplied.")] = False,
    beam: Annotated[int | None, typer.Option(min=1, help="Tell so many outputs, and how probable each word was.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write every map and probability, one object for each look.")] = None,
    shift: Annotated[int | None, typer.Option(min=0, max=1, help="1: show the step after a word's own.")] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show tokens instead of words; text without spaces is always shown so.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Show which source words the model looked at for each word it wrote, or any other of its attentions."""
    from regard.cli.align import texts as lines_of
    from regard.cli.look_pictures import look_at_pictures
    from regard.cli.look_texts import Files, Wanted, check, kept_by, looked, note_unknown, read_gold, tell, unread, write
    from regard.decoding.load import load
    from regard.decoding.reading import change_reading
    from regard.insight.maps import View

    wanted, files = Wanted(View(map_, layer, head, rollout), past, grid), Files(png, svg, pdf, picture, html, json)
    asked = [*(texts or []), *(lines_of(file) if file is not None else [])]
    targets = [target] if target is not None else None if target_file is None else list(lines_of(target_file))
    check(asked, targets, gold, wanted, compares=checkpoints or bool(beside))
    files.drawn()
    trained = load(run, device)
    trained.reading = change_reading(trained.reading, None if wanted.chosen else head, shift)
    if getattr(trained.model, "regions", None) is not None:
        refused = {"--beside": beside, "--checkpoints": checkpoints, "--grid": grid, "--gold": gold, "--past": past}
        return look_at_pictures(trained, asked, targets, files, [name for name, given in refused.items() if given])
    models = [*(kept_by(run, trained, device) if checkpoints else [trained]), *(load(path, device) for path in beside or [])]
    links, problems = read_gold(gold, len(asked)), unread(trained, asked, targets)
    note_unknown(trained, [text for at, text in enumerate(asked) if at not in problems])
    found = [
        looked(
            models,
            trained,
            (text, targets[at] if targets is not None else None),
            links.get(at),
            wanted,
            files.every,
            tokens or None,
            beam,
        )
        for at, text in enumerate(asked)
        if at not in problems
    ]
    tell(found, wanted, beam is not None)
    write(found, wanted, files)
    failures.leave(bool(problems))
