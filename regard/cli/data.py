"""`regard data`: what files hold, and what would be chosen for them."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.columns import Columns, as_section, column_files, named
from regard.errors import UserError


def data(
    files: Annotated[list[Path], typer.Argument(help="A table (.tsv, .csv, .jsonl, .parquet), or a source and a target file.")],
    column: Columns = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Look into training files: what they hold, what is odd about them, and which model would be chosen for them.

    Example: regard data pairs.tsv
    """
    from regard.choices import choose_recipe
    from regard.choices.telling import choice_lines, survey_lines
    from regard.data.readers import notes
    from regard.data.survey import plain_facts
    from regard.recipe import Pairs, parse

    if len(files) > 2:
        raise UserError(f"one table of pairs, or a source and a target file, not {len(files)} files")
    names: dict[str, Any] = {"pairs": str(files[0])} if len(files) == 1 else {"source": str(files[0]), "target": str(files[1])}
    names |= as_section(columns := named(column), column_files(columns, names.get("pairs")))
    for note in notes(parse(Pairs, names)):
        typer.echo(f"note: {note}", err=True)
    chosen, first = choose_recipe(names), first_row(names)
    if as_json:
        told = [{"rule": rule, "chosen": values, "reason": reason} for rule, values, reason in chosen.told]
        typer.echo(
            json.dumps({"survey": plain_facts(chosen.found), "choices": told, "recipe": chosen.values}, ensure_ascii=False)
        )
    else:
        shown = f"first row: {' -> '.join(f'{value!r:.60}' for value in first.values())}"
        for line in (*survey_lines(chosen.found), shown, "", *choice_lines(chosen)):
            typer.echo(line)


def first_row(names: dict[str, Any]) -> dict[str, str]:
    """As it is read: a header that was taken for a row, or swapped columns, are seen at once."""
    from regard.data.readers import read_rows
    from regard.recipe import Pairs, parse

    rows = next(rows for rows in read_rows(parse(Pairs, names)) if rows.lines)
    return {name: values[0] for name, values in rows.columns.items()}
