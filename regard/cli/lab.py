"""`regard lab`: one command for each experiment."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import experiments as frame
from regard.cli.importing import with_imports
from regard.cli.lab_words import listed
from regard.cli.neurons import neurons
from regard.cli.plain_help import Command, Group
from regard.errors import UserError
from regard.lab.experiments import EXPERIMENTS
from regard.lab.settings import SETTINGS

if TYPE_CHECKING:
    from regard.lab.texts import Texts

DEFAULT = "overnight"
ABOUT = "; ".join(f"{name}: {setting.about}" for name, setting in SETTINGS.items())

lab = typer.Typer(name="lab", cls=Group, help="Experiments: what the lectures show, made again under stated conditions.")


@lab.callback(invoke_without_command=True)
def experiments(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def cells(
    setting: Annotated[str | None, typer.Option(help=f"{ABOUT}. Unless given: {DEFAULT}.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as --setting quick.")] = False,
    cells: Annotated[str | None, typer.Option(help="Cells to compare, separated by commas; all unless given.")] = None,
    tasks: Annotated[str | None, typer.Option(help="arith, xml, words, separated by commas; all unless given.")] = None,
    text: Annotated[Path | None, typer.Option(help="Training text of the words task (.gz is fine); else generated.")] = None,
    valid_text: Annotated[Path | None, typer.Option(help="Its validation text.")] = None,
    test_text: Annotated[Path | None, typer.Option(help="Its test text.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Models tested of each cell; the setting has its own number.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the trials; runs/lab-cells-SETTING unless given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
) -> None:
    """Train every cell under the same budget on three tasks, and print the results beside the published figures.

    Finished trials are kept: the same command continues where it was stopped.
    """
    from regard.lab import table
    from regard.lab.cells import Comparison, compare
    from regard.lab.tasks import TASKS
    from regard.nn.recurrent.cells import CELLS
    from regard.recipe import choose

    if quick and setting not in (None, "quick"):
        raise UserError(f"--quick means --setting quick, not --setting {setting}")
    name = "quick" if quick else setting or DEFAULT
    chosen = choose(SETTINGS, name, "setting")
    chosen = replace(chosen, seeds=seeds or chosen.seeds)
    compared, contests = listed(cells, CELLS, "cell"), listed(tasks, TASKS, "task")
    texts = read_texts(text, valid_text, test_text, chosen.sentences if "words" in contests else 0)
    plan = Comparison(chosen, compared, contests, texts)
    directory = out or Path("runs") / f"lab-cells-{name}"
    results = compare(plan, directory)
    table.write(plan, results, directory)
    if as_json:
        typer.echo(json.dumps([table.row(result) for result in results], indent=1))
    else:
        table.show(plan, results)


def attention(
    recipe: Annotated[str, typer.Argument(help="A recipe whose decoder attends: `regard recipes`, or a YAML file.")] = "demo",
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to the recipes, as for `regard train`.")
    ] = None,
    vary: Annotated[str, typer.Option(help="score, scope or selection: what differs.")] = "score",
    names: Annotated[str | None, typer.Option(help="Entries to compare, separated by commas; all unless given.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each entry, each with a seed of its own: mean and spread.")] = 1,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Show this metric instead of BLEU and AER, for example exact. May be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the runs; runs/lab-attention-VARY unless given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list, a row per run, instead of a table.")] = False,
    as_latex: Annotated[bool, typer.Option("--latex", help="A LaTeX table instead.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not report progress.")] = False,
) -> None:
    """Train a recipe with every score (scope, selection), all else being equal: quality, alignment, speed, memory.

    Finished runs are kept: the same command continues where it was stopped. The table is in table.md and table.tex too.
    """
    from regard.lab.attention import PARTS, compare, report
    from regard.lab.experiment import publish
    from regard.lab.grids import print_grid
    from regard.recipe import choose, override, read_values
    from regard.training.display import Display

    words = [recipe, *(overrides or [])]
    name = "demo" if "=" in recipe else words.pop(0)
    entries = listed(names, choose(PARTS, vary, "part of an attention"), vary)
    directory = out or Path("runs") / f"lab-attention-{vary}"
    say = Display(0, 0, None, not quiet).say
    rows = compare(override(read_values(name), words), vary, entries, directory, seeds, say)
    found = report(name, vary, rows, metric or ())
    publish(found, rows, directory, say)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    elif as_latex:
        typer.echo("\n".join(found.latex))
    else:
        print_grid(found.grid)


def read_texts(train: Path | None, valid: Path | None, test: Path | None, sentences: int) -> "Texts | None":
    """Three files, or as many generated sentences, or none."""
    from regard.lab.texts import from_files, generated

    if train is not None and valid is not None and test is not None:
        return from_files(train, valid, test)
    if train is not None or valid is not None or test is not None:
        raise UserError("--text, --valid-text and --test-text go together")
    return generated(sentences) if sentences else None


def markov(
    runs: Annotated[list[Path], typer.Argument(help="Runs or model directories of taggers of the corpus `markov`.")],
    size: Annotated[int, typer.Option(min=2, help="Sequences that are drawn to compare on.")] = 1000,
    seed: Annotated[int, typer.Option(help="Another seed draws others.")] = 2,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """How far a recurrent network's posteriors are from the exact ones of a hidden Markov chain.

    Example: regard train markov-forward && regard lab markov runs/markov-forward
    """
    from regard.corpora import CORPORA, generate
    from regard.decoding.labelling import TrainedLabeller
    from regard.decoding.load import load_as
    from regard.lab.markov import divergences

    texts = [pair.source for pair in generate(CORPORA["markov"], seed, size)["train"]]
    typer.echo(f"mean divergence from the exact posteriors, nats per position, {size:,} sequences, with 95 % intervals")
    for run in runs:
        for name, found in divergences(load_as(TrainedLabeller, run, device), texts).items():
            low, high = found.interval or (found.mean, found.mean)
            typer.echo(f"  {run!s:32} {name:18} {found.mean:.4f} [{low:.4f}, {high:.4f}]")


for experiment in (cells, attention, markov, neurons):
    lab.command(cls=Command)(with_imports(experiment))
for name, entry in EXPERIMENTS.items():
    lab.command(name, cls=Command)(with_imports(frame.command(name, entry.about)))
