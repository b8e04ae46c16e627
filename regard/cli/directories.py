"""What is said of a directory that a verb was given."""

from pathlib import Path

import typer


def tell_directory(recipe: str) -> None:
    """A run or a model directory may be named where a recipe is expected."""
    if (Path(recipe) / "recipe.yaml").is_file():
        typer.echo(f"{recipe} is a directory: its recipe.yaml is taken as the recipe", err=True)
