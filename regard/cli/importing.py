"""`--import`, which every verb has."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args

import typer


def import_all(names: list[str] | None) -> list[str]:
    """Before the verb reads anything."""
    from regard.imports import use

    for name in names or ():
        use(name)
    return names or []


OPTION = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="FILE.py|MODULE",
        help="Run this first: it adds parts of your own. May be repeated.",
        callback=import_all,
        is_eager=True,
    ),
]


def plain_flag(annotation: Any) -> None:
    """A flag takes no value, and help should not show one."""
    kind, *more = get_args(annotation) or (None,)
    if kind is bool and more[0].metavar is None:
        more[0].metavar = ""


def with_imports(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with one option more, which is obeyed before the others are read."""

    @wraps(verb)
    def call(imports: Any = None, **options: Any) -> None:
        verb(**options)

    signature = inspect.signature(verb)
    for annotation in verb.__annotations__.values():
        plain_flag(annotation)
    option = inspect.Parameter("imports", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=OPTION)
    call.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    call.__annotations__ = {**verb.__annotations__, "imports": OPTION}
    return call
