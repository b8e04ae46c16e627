"""`regard shortlist`"""

from pathlib import Path
from typing import Annotated

import typer

SEEN = 1000  # sentences whose words are counted


def shortlist(
    run: Annotated[Path, typer.Argument(help="A run.")],
    likely: Annotated[int, typer.Option(min=1, max=10000, help="Translations of each word of the source.")] = 50,
    common: Annotated[int, typer.Option(min=0, help="Frequent words that may always be written.")] = 100,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the training data to learn from, at most.")] = 200_000,
    source: Annotated[
        Path | None,
        typer.Option(help="Sources to compare on; without it, the recipe's test sets, or the rows that training held out."),
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Their references.")] = None,
) -> None:
    """Learn which words may be written for which words of a source, for `regard generate --shortlist`.

    From the training data of the run, by IBM's Model 1. What outputs lose by it is measured and told.
    """
    from regard.cli.evaluate import Wanted, judge, read_sets
    from regard.cli.quantize import compared
    from regard.data.store import Store
    from regard.decoding.load import load_generator
    from regard.decoding.shortlist import learn_shortlist, store_shortlist
    from regard.errors import UserError
    from regard.judged import decides

    trained, data, by = load_generator(run, "cpu", precision="float32"), run / "data", decides(run)
    if not {"source", "target"} <= trained.fields.keys() or trained.model.copies_words:
        raise UserError(f"{run}: a shortlist is for models from text to text that do not copy words")
    if not data.is_dir():
        raise UserError(f"{run}: no data to learn from; a shortlist is learnt from a run, which keeps its own")
    wanted = Wanted([] if by is None else [by], 1, False, False, None, None)
    _, tests = read_sets(
        run, "cpu", {"source": source, "target": target, "pairs": None, "text": None, "alignment": None}, {}, [], wanted
    )
    found = learn_shortlist(Store.open(data), len(trained.source), likely, common, rows)
    into, narrow = store_shortlist(run, found), load_generator(run, "cpu", precision="float32")
    narrow.use_shortlist()
    for name, test in tests.items():
        both = judge(trained, test, wanted, by), judge(narrow, test, wanted, by)
        typer.echo("\n".join(compared(name, *both, "with all words", "with the shortlist")))
        texts = [row[0] for row in test.inputs]
        counts = [len(found.candidates([one])[0]) for one in trained.source.encode(texts[:SEEN])]
        typer.echo(f"{name}: {sum(counts) / max(1, len(counts)):.0f} of {len(trained.target):,} words for a sentence")
    typer.echo(str(into))
