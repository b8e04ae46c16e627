"""`regard export`"""

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="A run or a model directory.")],
    to: Annotated[str, typer.Option("--to", help="ctranslate2 or onnx.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    quantization: Annotated[
        str | None, typer.Option(help="How CTranslate2 keeps weights: int8, float16 and others; float32 unless given.")
    ] = None,
) -> None:
    """Write a model for another program, with its tokenizers and an example that runs without regard.

    Example: regard export runs/mine --to ctranslate2 --output exported; python exported/generate.py < input > output
    """
    from regard.exchange import export as write

    write(run, to, output, quantization)
    typer.echo(f"{output}: written for {to}; its README.md says how it is used", err=True)
