"""`regard lab neurons`"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.experiments import JSON, LATEX, tell
from regard.cli.lab_words import listed
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.lab.neurons import Unit


def neurons(
    run: Annotated[Path, typer.Argument(help="A run or model directory of a recurrent language model, such as `quotes`.")],
    text: Annotated[Path | None, typer.Option(help="Text to search on, a line a text; else the recipe's corpus.")] = None,
    held_out: Annotated[Path | None, typer.Option(help="Text on which the cells that were found are judged.")] = None,
    track: Annotated[
        str | None, typer.Option(help="quotes, depth, indentation, line length, separated by commas; all unless given.")
    ] = None,
    cell: Annotated[str | None, typer.Option(help="Colour by this unit, LAYER.PART.PLACE as in 1.memory.17.")] = None,
    number: Annotated[int, typer.Option(min=1, help="Texts that are coloured, the longest ones.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Write the table, and the coloured text as HTML, PNG and SVG here.")] = None,
    as_json: JSON = False,
    as_latex: LATEX = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cpu",
) -> None:
    """What cells track: the unit that follows quotations, nesting, indentation or line length best; a text coloured by it.

    Example: regard train quotes && regard lab neurons runs/quotes
    """
    from rich.console import Console

    from regard.decoding.language import TrainedLanguageModel
    from regard.decoding.load import load_as
    from regard.insight import coloured as drawing
    from regard.lab import neurons as lab
    from regard.lab.experiment import as_told, publish

    names = listed(track, lab.TRACKED, "property")
    unit = None if cell is None else parsed(cell)
    trained = load_as(TrainedLanguageModel, run, device)
    both = lab.texts_of(lab.recipe_in(run), (text, held_out))
    found, watched = lab.inspect(trained, both, names)
    if unit is None and not found:
        raise UserError(f"{both[0].name}: nothing of {', '.join(names)} varies there; name a --cell to colour by")
    shown = unit or next((one for one in found if one.what != "line length"), found[0]).unit  # which is the least surprising
    what = next((f", which follows {one.what} (r = {one.held_out:+.2f})" for one in found if one.unit == shown), "")
    picture = lab.coloured(watched, shown, f"{run.name}: {shown}{what}; {both[1].name}", number)
    report = as_told(lab.report(run.name, found, both, len(watched.units)))
    rows = [{**one._asdict(), "unit": str(one.unit)} for one in found]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        publish(report, rows, out, lambda line: typer.echo(line, err=True))
        drawing.save(picture, out / "neuron")
        if (told := drawing.boxes(picture)) is not None:
            typer.echo(f"warning: {told}", err=True)
    tell(report, rows, as_json, as_latex)
    if not as_json and not as_latex:
        Console().print(drawing.terminal(picture), soft_wrap=True)


def parsed(cell: str) -> "Unit":
    from regard.lab.neurons import Unit

    found = re.fullmatch(r"(\d+)\.([a-z]+)\.(\d+)", cell)
    if found is None:
        raise UserError(f"--cell {cell}: write LAYER.PART.PLACE, for example 1.memory.17 or 1.hidden.3")
    return Unit(int(found[1]), found[2], int(found[3]))
