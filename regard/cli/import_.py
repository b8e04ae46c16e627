"""`regard import`"""

from pathlib import Path
from typing import Annotated

import typer


def import_(
    directory: Annotated[Path, typer.Argument(help="A Marian model as Hugging Face keeps it (opus-mt).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The model directory to write.")],
) -> None:
    """Turn another program's model into one of ours: it generates the same and can be trained on, looked into and evaluated.

    Example: regard import opus-mt-de-en --output models/de-en; echo "Guten Tag." | regard generate models/de-en
    """
    from regard.exchange import import_model

    import_model(directory, output)
    typer.echo(f"{output}: a model directory; `regard generate {output}` uses it", err=True)
