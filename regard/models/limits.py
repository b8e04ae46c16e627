"""How many tokens a model has places for: learned positions and the location score know so many and no more."""

from typing import Any, NamedTuple


class Limit(NamedTuple):
    """Places that a part of a model knows, and the recipe's key that says how many."""

    places: int
    key: str


class Limits(NamedTuple):
    """Of a whole model; None: any number."""

    source: Limit | None = None  # its tokens and its end mark
    target: Limit | None = None  # its start mark and its tokens
    both: Limit | None = None  # one behind the other

    def needs(self, source: Any, target: Any) -> list[tuple[Limit, str, Any]]:
        """Each limit there is, and what texts of so many tokens need of it: numbers, or arrays of them."""
        every = (
            (self.source, "the source has {} tokens with its end mark", source + 1),
            (self.target, "the target has {} tokens with its start mark", target + 1),
            (self.both, "source and target have {} tokens with their marks", source + target + 2),
        )
        return [(limit, what, count) for limit, what, count in every if limit is not None]

    def allow(self, source: Any, target: Any = 0) -> Any:
        """Whether texts of so many tokens, their marks not counted, can be read: of numbers or of arrays."""
        allowed: Any = True
        for limit, _, count in self.needs(source, target):
            allowed = allowed & (count <= limit.places)
        return allowed

    def problem(self, source: int, target: int = 0) -> str | None:
        """What is wrong with them, if something is."""
        for limit, what, count in self.needs(source, target):
            if count > limit.places:
                return f"too long: {what.format(f'{count:,}')}, the model has places for {limit.places:,} ({limit.key})"
        return None


def limit(places: int | None, key: str) -> Limit | None:
    return None if places is None else Limit(places, key)


def smallest(*limits: Limit | None) -> Limit | None:
    return min((one for one in limits if one is not None), default=None)


def under(section: str, found: Limit | None) -> Limit | None:
    """The same, its key as the whole recipe spells it."""
    return None if found is None else Limit(found.places, f"{section}.{found.key}")
