"""What the steps of a run so far mean something by: its recipe, its vocabularies, its text. Every checkpoint carries it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.errors import UserError
from regard.models.names import spelled_as
from regard.overrides import flatten

FIXED = ("recipe.data.", "recipe.model.", "recipe.training.seed")  # the rest of a recipe may change on the way
DIGESTS = {"tokenizers": "other vocabularies than its folder `fields` has now", "files": "another training text"}


def compare(before: Mapping[str, Any], after: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """Refuse what may not change; the rest of what has, as {key: [was, is]}. What an older version had no key for is new."""
    before = spelled_as(after, before)
    for key, what in DIGESTS.items():
        if (was := before.get(key)) and (now := after.get(key)) and now[: len(was)] != was:  # files of links may come late
            raise UserError(f"{where}: the run began with {what}; take another --run")
    changed = {key: [was, now] for key, was, now in differences(before, after) if key not in DIGESTS}
    known = flatten(before)
    for key, (was, now) in changed.items():
        if key.startswith(FIXED) and key in known:
            raise UserError(f"{where}: the run began with {key.removeprefix('recipe.')}={was}, not {now}; take another --run")
    return {key.removeprefix("recipe."): values for key, values in changed.items()}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The keys, dotted, whose values are not the same."""
    old, new = flatten(before), flatten(after)
    return ((key, old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key))
