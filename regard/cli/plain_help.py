"""Help in plain words: how a value is called (FILE, N), and none where none is taken; of flags `importing.py` takes care."""

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

# What typer calls a value, and what people do
PLACEHOLDERS = {
    "<path>": "FILE", "<str>": "TEXT", "<int>": "N", "<int range>": "N", "<float>": "NUMBER", "<float range>": "NUMBER",
    "<list[path]>": "FILE", "<list[str]>": "TEXT", "<list[int]>": "N", "<list[float]>": "NUMBER",
}  # fmt: skip

DIRECTORIES = {"--run", "--out"}


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        for param in params:
            plain(param, ctx)
        return params

    def get_help_option(self, ctx: Any) -> Any:
        return without_value(super().get_help_option(ctx))


class Group(TyperGroup):
    def get_help_option(self, ctx: Any) -> Any:
        return without_value(super().get_help_option(ctx))


def plain(param: Any, ctx: Any) -> None:
    """An argument has its name in capitals, in which no kind of value need be told; typer before 0.29 has its own words."""
    if isinstance(param, TyperArgument):
        param.metavar = param.metavar or str(param.name).upper().rstrip("_")
        param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
    elif param.metavar is None:
        told = param.display_type(ctx) if hasattr(param, "display_type") else ""
        param.metavar = "DIR" if DIRECTORIES & {*param.opts} else PLACEHOLDERS.get(told)


def without_value(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option
