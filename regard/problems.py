"""What is wrong with a recipe, in words."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

LONGEST = 80  # characters of what was given that a message repeats
WAYS = ("int", "constrained-int", "str")  # of a field that takes numbers or text; pydantic tells which it tried, as a last key
MOST = 5  # problems that are told one by one


def shown(value: object, write: Callable[[object], str] = repr, longest: int = LONGEST) -> str:
    """What was given, in one line that is not long."""
    text = write(value)
    text = text if text.isprintable() else repr(value)
    return text if len(text) <= longest else f"{text[: longest - 10]} ... {text[-5:]}"


def hint(name: str, known: Iterable[str]) -> str:
    """`did you mean ...?` for a near miss, in small letters or large ones; the whole list otherwise."""
    names = sorted(known)
    folded = {one.casefold(): one for one in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    return f"did you mean {folded[near[0]]!r}?" if near else f"choose from {', '.join(names)}"


def is_other_way(problem: dict[str, Any]) -> bool:
    """Of a field that is a section or a list of them: that what was given as one is not the other."""
    ways = {"list_type": Mapping, "model_type": list}
    return problem["type"] in ways and isinstance(problem["input"], ways[problem["type"]])


def describe_all(section: type[BaseModel], problems: Iterable[Any], where: str) -> str:
    """The first few, and how many more there are."""
    found = [dict(problem) for problem in problems]
    told = [problem for problem in found if not is_other_way(problem)] or found
    more = [f"and {len(told) - MOST:,} more"] if len(told) > MOST else []
    return "; ".join(dict.fromkeys([*(describe(section, problem, where) for problem in told[:MOST]), *more]))


def describe(section: type[BaseModel], problem: dict[str, Any], where: str) -> str:
    loc = [str(part) for part in problem["loc"]]
    place, known = walk(section, loc[:-1] if loc and loc[-1] in WAYS else loc)
    key = ".".join([part for part in (where, *place) if part])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {shown(key)}; {hint(place[-1], known)}"
    if problem["type"] == "union_tag_invalid":
        kinds = [one.strip("' ") for one in problem["ctx"]["expected_tags"].split(",")]
        return f"{key}.kind: unknown kind {shown(problem['ctx']['tag'])}; {hint(problem['ctx']['tag'], kinds)}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    value = problem["input"]
    told = not isinstance(value, str | int | float) or (isinstance(value, str) and repr(value) in message)
    given = "" if told else f" (given: {shown(value)})"
    return f"{shown(key, str)}: {message[0].lower()}{message[1:]}{given}" if key else message


def walk(section: type[BaseModel], place: Sequence[str]) -> tuple[list[str], list[str]]:
    """A place as its keys are written, without the names of what was tried there; the keys that are allowed beside the last."""
    options, keys, known = [section], list[str](), list(section.model_fields)
    for part in place:
        if tried := [option for option in options if is_name_of(option, part)]:
            options = tried
            continue
        keys.append(part)
        known = sorted({name for option in options for name in option.model_fields})
        fields = [option.model_fields[part] for option in options if part in option.model_fields]
        options = [inner for field in fields for inner in sections_of(field)] or options
    return keys, known


def is_name_of(section: type[BaseModel], part: str) -> bool:
    """Whether pydantic calls it so in the place of a problem: its kind, its class, or that inside brackets (a list of it)."""
    kind = section.model_fields.get("kind")
    inside = "[" in part and part.rstrip("]").endswith(section.__name__)
    return inside or part == section.__name__ or (kind is not None and part == str(kind.default))


def sections_of(field: FieldInfo) -> list[type[BaseModel]]:
    """Those that a field may hold; a rule of it may know more of them than its type (`recipe.OneOf`)."""
    by_rule = [section for rule in field.metadata for section in getattr(getattr(rule, "func", None), "sections", ())]
    return by_rule or sections_in(field.annotation)


def sections_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in getattr(annotation, "__args__", ()) for found in sections_in(argument)]
