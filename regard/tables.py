"""Names in a recipe are entries of the toolkit's tables, and stand nowhere else."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, Union

from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, Tag, TypeAdapter

from regard.errors import RecipeError
from regard.problems import hint, shown

T = TypeVar("T")

# The tables that stand above the recipe, by what an entry of each is called; their modules put them here (as functions, for one
# may be a part of another)
TABLES: dict[str, Callable[[], Mapping[str, object]]] = {}


def choose(table: Mapping[str, T], name: str, what: str) -> T:
    """Look `name` up in one of the toolkit's tables (CELLS, SCORES, ENCODERS ...)."""
    if not isinstance(name, str) or name not in table:
        raise RecipeError(f"unknown {what} {shown(name)}; {hint(str(name), table)}")
    return table[name]


def name_of(table: Mapping[str, object] | Callable[[], Mapping[str, object]], what: str) -> AfterValidator:
    """A recipe field that must name an entry of `table`, or of the part of one that a function gives:
    `cell: Annotated[str, name_of(CELLS, "cell")]`."""

    def check(name: str) -> str:
        choose(table() if callable(table) else table, name, what)
        return name

    return AfterValidator(check)


class EntryOf:
    """A recipe field that must name an entry of one of TABLES: `schedule: Annotated[str, entry_of("schedule")]`. It is checked
    at once where the table has been imported, and by `preflight` in any case."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __call__(self, name: str | None) -> str | None:
        if self.what in TABLES and name is not None:
            choose(TABLES[self.what](), name, self.what)
        return name


def entry_of(what: str) -> AfterValidator:
    return AfterValidator(EntryOf(what))


def one_of(table: Mapping[str, Any]) -> Any:
    """A field holding the section of one entry of `table`, told by its `kind`; the first entry is the default kind."""
    return Annotated[Any, BeforeValidator(OneOf(table))]


class OneOf:
    """A value as the section of the entry that its `kind` names, whatever entries there are by then."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = table

    def __call__(self, value: Any) -> Any:
        return any_of(tuple((name, entry.Config) for name, entry in self.table.items())).validate_python(value)

    @property
    def sections(self) -> list[type[BaseModel]]:
        return [entry.Config for entry in self.table.values()]


@cache
def any_of(configs: tuple[tuple[str, Any], ...]) -> TypeAdapter[Any]:
    default = configs[0][0]

    def kind(value: Any) -> str:
        return str(value.get("kind", default) if isinstance(value, Mapping) else getattr(value, "kind", default))

    if len(configs) == 1:
        return TypeAdapter(configs[0][1])
    tagged = tuple(Annotated[config, Tag(name)] for name, config in configs)
    members: Any = Annotated[Union[tagged], Discriminator(kind)]  # noqa: UP007 - they are only known here
    return TypeAdapter(members)


def check_names(section: BaseModel, where: str = "") -> None:
    """Refuse names that no table has, by their key: for values that were read before all tables were there."""
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(value, BaseModel):
            check_names(value, f"{where}{key}.")
        for rule in field.metadata:
            if isinstance(rule, AfterValidator) and isinstance(rule.func, EntryOf) and value is not None:
                try:
                    choose(TABLES[rule.func.what](), value, rule.func.what)
                except RecipeError as error:
                    raise RecipeError(f"{where}{key}: {error}") from None
