"""`regard recipes`"""

from typing import Annotated

import typer


def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this recipe whole, to start your own from.")] = None,
) -> None:
    """List the built-in recipes, or print one."""
    from regard.recipe import built_in, choose, plain

    shipped = built_in()
    if name is not None:
        typer.echo(choose(shipped, name, "recipe"), nl=False)
        return
    for each, text in shipped.items():
        typer.echo(f"{each:22} {plain(text, each).get('about', '')}")
