"""Words of the command line that name entries of a table."""

from collections.abc import Mapping


def listed(names: str | None, entries: Mapping[str, object], what: str) -> list[str]:
    """`a,b` as entries of a table, each once; all of them unless given."""
    from regard.recipe import choose

    chosen = list(entries) if names is None else list(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in chosen:
        choose(entries, name, what)
    return chosen
