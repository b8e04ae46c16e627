"""`regard recipes`"""

from typing import Annotated

import typer

from regard.cli.directories import tell_directory


def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this recipe, to start your own from.")] = None,
) -> None:
    """List the built-in recipes, or print one."""
    from regard.recipe import built_in, plain, text_of

    if name is not None:
        tell_directory(name)
        typer.echo(text_of(name), nl=False)
        return
    for each, text in built_in().items():
        typer.echo(f"{each:22} {plain(text, each).get('about', '')}")
