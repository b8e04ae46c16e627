"""`regard quantize`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.cli.evaluate import Result


def quantize(
    run: Annotated[Path, typer.Argument(help="A run or a model directory.")],
    to: Annotated[str, typer.Option(help="int8 or bfloat16: what its matrices are rounded to.")] = "int8",
    output: Annotated[
        Path | None, typer.Option(help="The new model directory; without it, beside the old one: model-int8.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(help="Sources to compare on; without it, the recipe's test sets, or the rows that training held out."),
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Their references.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both in one .tsv, .csv, .jsonl or .parquet file instead.")] = None,
) -> None:
    """Keep a model in fewer bits: smaller on disk and faster on a CPU. What it loses is measured, told and kept on its card.

    The new directory is used as any other: regard generate MODEL-INT8 < in > out
    """
    from regard.cli.evaluate import Wanted, judge, read_sets, tell_long
    from regard.data.sealed import refuse_foreign
    from regard.decoding.generator import TrainedGenerator
    from regard.decoding.load import load, rounded_twin
    from regard.errors import UserError
    from regard.judged import decides
    from regard.models.directory import find_model, store_rounded
    from regard.models.rounded import STORED
    from regard.recipe import choose

    choose(STORED, to, "precision")
    if to == "float32":
        raise UserError("a model in float32 is the one that was trained; --to int8 or bfloat16")
    trained = load(run, "cpu")
    if not isinstance(trained, TrainedGenerator):
        raise UserError(f"{run}: quantize is for models that write outputs, and this one {trained.does}")
    if trained.engine is not None:
        raise UserError(f"{run}: its weights are rounded already; quantize the model that it was made of")
    by, directory = decides(run), find_model(run)
    into = output or directory.absolute().with_name(f"{directory.absolute().name}-{to}")
    refuse_foreign(into)
    wanted = Wanted([] if by is None else [by], 1, False, False, None, None)
    files = {"source": source, "target": target, "pairs": pairs, "text": None, "alignment": None}
    trained, tests = read_sets(run, "cpu", files, {}, [], wanted)
    twin, told = rounded_twin(run, to), list[str]()
    for name, test in tests.items():
        tell_long(name, trained, test)
        told += compared(name, judge(trained, test, wanted, by), judge(twin, test, wanted, by), "in float32", f"in {to}")
    typer.echo("\n".join(told))
    lines = "".join(f"- {line}\n" for line in told)
    store_rounded(run, into, to, f"\nIts matrices are rounded to {to}. Greedy outputs beside those in float32:\n\n{lines}")
    typer.echo(f"{into}: model.safetensors {size(into):,} bytes, before {size(directory):,}")


def compared(name: str, plain: "Result", other: "Result", before: str, after: str) -> list[str]:
    """Each metric of both, and on how many inputs their outputs are the same."""
    same = sum(one == theirs for one, theirs in zip(plain.outputs, other.outputs, strict=True))
    metrics = [
        f"{name}: {one.name} {one.value:.2f} {before}, {theirs.value:.2f} {after}"
        for one, theirs in zip(plain.scores, other.scores, strict=True)
    ]
    count = len(plain.outputs)
    share = f" ({100 * same / count:.1f} %)" if count else ""
    return [*metrics, f"{name}: {same:,} of {count:,} outputs are the same{share}"]


def size(directory: Path) -> int:
    from regard.models.stored import WEIGHTS

    return (directory / WEIGHTS).stat().st_size
