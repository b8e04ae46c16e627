"""Help without `<bool>` beside --help, which takes no value; of flags `importing.py` takes care."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    def get_help_option(self, ctx: Any) -> Any:
        return without_value(super().get_help_option(ctx))


class Group(TyperGroup):
    def get_help_option(self, ctx: Any) -> Any:
        return without_value(super().get_help_option(ctx))


def without_value(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option
