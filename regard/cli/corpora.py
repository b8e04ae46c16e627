"""`regard corpora`"""

from pathlib import Path
from typing import Annotated

import typer


def corpora(
    name: Annotated[str | None, typer.Argument(help="The corpus to write; without a name, all are listed.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory to write the files to.")] = None,
    seed: Annotated[int, typer.Option(help="Another seed, another corpus.")] = 1,
    size: Annotated[int | None, typer.Option(min=1, help="Training pairs; each corpus has its own default.")] = None,
) -> None:
    """List the data sets that regard can generate, or write one to files, with its word alignments if it has any."""
    from regard.corpora import CORPORA
    from regard.corpora.files import write
    from regard.errors import UserError
    from regard.recipe import choose

    if name is None:
        for each, corpus in CORPORA.items():
            typer.echo(f"{each:16} {corpus.about}")
        return
    corpus = choose(CORPORA, name, "corpus")
    if out is None:
        raise UserError(f"where to? `regard corpora {name} --out DIR`")
    for paths in write(corpus, out, seed, size).values():
        for path in paths.values():
            typer.echo(path)
