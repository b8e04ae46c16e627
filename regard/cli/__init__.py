"""The command line: one thin file for each verb. torch is imported only by the verbs that need it, when they run."""

import io
import sys
from typing import Annotated

import typer

from regard import __version__
from regard.cli import (
    align,
    compare,
    continue_,
    corpora,
    data,
    evaluate,
    export,
    generate,
    import_,
    lab,
    look,
    plan,
    predict,
    quantize,
    recipes,
    score,
    shortlist,
    train,
    tune,
    verify,
)
from regard.cli.importing import with_imports
from regard.cli.plain_help import Command, Group
from regard.cli.ranks import die_of_ctrl_c, first_to_tell, leave, under_torchrun
from regard.errors import UserError
from regard.memory import is_shortage, tell_shortage

app = typer.Typer(
    name="regard",
    cls=Group,
    help="Attention-based sequence-to-sequence models: train, translate, and look at what the model attends to.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (
    train.train, tune.tune, generate.generate, predict.predict, score.score, evaluate.evaluate, compare.compare, align.align,
    look.look, plan.plan, verify.verify, export.export, quantize.quantize, shortlist.shortlist, recipes.recipes,
    corpora.corpora, data.data,
):  # fmt: skip
    app.command(cls=Command)(with_imports(verb))
app.command("import", cls=Command)(with_imports(import_.import_))
app.command("continue", cls=Command)(with_imports(continue_.continue_))
app.add_typer(lab.lab)


def show_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", metavar="", help="Show the traceback of an error.")] = False,
) -> None:
    pass


def main() -> None:
    """Run a verb. Errors of users: one message, exit code 2. Typer turns Ctrl-C to 130 and is quiet when a reader goes away."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale says: text files are UTF-8 here
    die_of_ctrl_c()
    try:
        app(prog_name="regard")
    except SystemExit as ending:
        if under_torchrun():
            leave(ending.code)
        raise
    except (UserError, OSError, MemoryError, RuntimeError) as error:
        told = tell(error)
        if "--debug" in sys.argv or told is None:
            raise
        if first_to_tell(told):
            from regard.training.display import Log

            Log().write(f"error: {told}\n")
        sys.exit(2)


def tell(error: Exception) -> str | None:
    """What people are told of an error; nothing of one that is ours to mend."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if is_shortage(error):
        return tell_shortage(error, next((word for word in sys.argv[1:] if not word.startswith("-")), ""))
    return str(error) if isinstance(error, UserError | OSError) else None
