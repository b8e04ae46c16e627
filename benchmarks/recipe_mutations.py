"""Recipes and overrides as nobody should write them: one case for each number and seed."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import yaml

Random = random.Random
Values = dict[str, Any]


class Case(NamedTuple):
    text: str
    overrides: list[str]
    files: bool  # whether --source and --target are given


HUGE = [10**k for k in (3, 4, 5, 6, 7, 9, 10, 12, 18, 19, 30, 300)] + [2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64]
NUMBERS = [
    0, -1, 1, 2, 3, 7, 64, *HUGE, *(-one for one in HUGE), 0.0, -0.0, 0.5, 1.0, 1e-300, 5e-324, 1e38, 1.7e308,
    float("nan"), float("inf"), float("-inf"), 1e-8, 1e6, True, False, None,
]  # fmt: skip
WORDS = [
    "", " ", "x", "none", "GRU", "Transformer", "1e400", "1e-400", "2026-13-45", "12:30:45", "~", "=", "<<", "é\u0301", "日本",
    "\u200b", "../../etc", "a/b", "a\0b", "\x1b[31m", "two\nlines", "%s{}", "x" * 5000, "nan", "-", "0x", "07", "yes",
    "\U0001f600",
]  # fmt: skip
SNIPPETS = [
    "&a ", "*a", "<<: *a", "!!int ", "!!binary ", "!!set ", "!!timestamp ", "!!python/name:os.system ", "\t", "\0", "---\n",
    "%YAML 9.9\n", "? ", ": ", "- ", "[", "]", "{", "}", "'", '"', "|\n", "#", "\ufeff", "\u2028", '"\\ud800"', '"\\U00110000"',
    "\r", "...\n", "0x" + "f" * 5000,
]  # fmt: skip
PATHS = [
    "model.kind", "model", "data", "training", "seed", "training.seed", "a.b.c.d", ".", "..", "model.", ".model", "x" * 3000,
    "data.test.a.source", "a" + ".a" * 3000, "training.penalties.coverage", "decoding.beam", "model.encoder.layers",
    "model.decoder.attention", "base", "data.test.x/y.pairs",
]  # fmt: skip


def places(values: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, inner in pairs:
        yield (*where, key)
        yield from places(inner, (*where, key))


def at(values: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        values = values[key]
    return values


def put(values: Values, place: tuple[Any, ...], value: Any) -> None:
    at(values, place[:-1])[place[-1]] = value


def some_value(chance: Random, depth: int = 0) -> Any:
    kind = chance.random()
    if kind < 0.5 or depth > 3:
        return chance.choice(NUMBERS)
    if kind < 0.8:
        return chance.choice(WORDS)
    inner = [some_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return inner if kind < 0.9 else {str(chance.choice(WORDS)): one for one in inner}


def any_value(chance: Random, values: Values) -> None:
    put(values, chance.choice(list(places(values))), some_value(chance))


def near_value(chance: Random, values: Values) -> None:
    """A number of the same kind, or a name that stands elsewhere: most are accepted, or go far."""
    place = chance.choice(list(places(values)))
    old = at(values, place)
    if isinstance(old, bool) or old is None or isinstance(old, dict | list):
        put(values, place, chance.choice([True, False, None, old]))
    elif isinstance(old, int | float):
        put(values, place, type(old)(old * chance.choice([0, -1, 0.5, 2, 3, 10, 1000, 1e6])))
    else:
        words = [at(values, one) for one in places(values) if isinstance(at(values, one), str)]
        put(
            values,
            place,
            chance.choice([*words, old.upper(), old[:-1], f"{old}x", "hard", "local-p", "bytenet", "transformer"]),
        )


def unknown_keys(chance: Random, values: Values) -> None:
    sections = [(), *(place for place in places(values) if isinstance(at(values, place), dict))]
    section = at(values, chance.choice(sections))
    for number in range(chance.choice([1, 1, 3, 1500])):
        section[chance.choice([f"key{number}", *map(str, WORDS), *(str(key)[:-1] for key in section)])] = some_value(chance)


def lost_key(chance: Random, values: Values) -> None:
    place = chance.choice(list(places(values)))
    del at(values, place[:-1])[place[-1]]


def moved_section(chance: Random, values: Values) -> None:
    found = list(places(values))
    put(values, chance.choice(found), copy.deepcopy(at(values, chance.choice(found))))


def deep(chance: Random, values: Values) -> None:
    value: Any = 1
    for _ in range(chance.choice([10, 45, 60, 150])):
        value = [value] if chance.random() < 0.5 else {"a": value}
    put(values, chance.choice(list(places(values))), value)


CHANGES: list[Callable[[Random, Values], None]] = [
    any_value, any_value, any_value, near_value, near_value, near_value, near_value, unknown_keys, lost_key, moved_section, deep
]  # fmt: skip


def insert(chance: Random, text: str) -> str:
    place = chance.randrange(len(text) + 1)
    return text[:place] + chance.choice(SNIPPETS) + text[place:]


def cut(chance: Random, text: str) -> str:
    place = chance.randrange(len(text) + 1)
    return text[:place] + text[place + chance.choice([1, 2, 10, 200]) :]


def flip(chance: Random, text: str) -> str:
    place = chance.randrange(len(text) + 1)
    return text[:place] + chr(chance.choice([*range(256), 0x2028, 0x1F600])) + text[place + 1 :]


def repeat_lines(chance: Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    first = chance.randrange(len(lines))
    block = lines[first : first + chance.randrange(1, 6)]
    return "".join([*lines[: first + len(block)], *block * chance.choice([1, 1, 2000]), *lines[first + len(block) :]])


def bomb(chance: Random, text: str) -> str:
    """Aliases of aliases, as lists or as merges; or a value that holds itself."""
    link = chance.choice(["[{}]", "{{<<: [{}]}}"])
    rows = ["b0: &b0 {x: 1}"]
    for number in range(1, chance.choice([2, 5, 9, 20])):
        rows.append(f"b{number}: &b{number} " + link.format(", ".join([f"*b{number - 1}"] * chance.choice([2, 9]))))
    return chance.choice(["\n".join(rows) + "\n", "b: &b [*b]\n", "b: &b {<<: *b}\n"]) + text


def nested_text(chance: Random, text: str) -> str:
    return (
        text
        + chance.choice(["model: ", "x: ", "- "])
        + chance.choice(["[", "{a: ", "- ", "? "]) * chance.choice([40, 3000, 70000])
    )


TEXTS: list[Callable[[Random, str], str]] = [insert, insert, cut, flip, flip, repeat_lines, bomb, nested_text]


def some_override(chance: Random, values: Values) -> str:
    found = list(places(values))
    path = chance.choice(
        [".".join(map(str, chance.choice(found))), ".".join(map(str, chance.choice(found))), chance.choice(PATHS)]
    )
    text = json.dumps(some_value(chance)) if chance.random() < 0.7 else chance.choice([*WORDS, *SNIPPETS])
    return f"{path}={text}".replace("\0", "")  # no command line can hold it


def some_case(number: int, seed: int, recipes: list[Values]) -> Case:
    chance = Random(f"{seed} {number}")
    values = copy.deepcopy(chance.choice(recipes))
    overrides = [some_override(chance, values) for _ in range(chance.choice([0, 0, 0, 1, 2]))]
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        chance.choice(CHANGES)(chance, values)
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=chance.random() < 0.5)
    for _ in range(chance.choice([0, 0, 0, 1, 2])):
        text = chance.choice(TEXTS)(chance, text)
    return Case(text, overrides, chance.random() < 0.5)
