"""What single inputs ask of their outputs, checked before anything is searched for."""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.data.copies import Copied
from regard.data.tokenizers import Tokenizer
from regard.decoding.rules.must import tokens_of
from regard.decoding.rules.regex import Pattern
from regard.decoding.rules.rule import Input
from regard.errors import UserError, refuse
from regard.recipe import Constraints, Decoding, parse

Asked = Mapping[str, Any] | None  # of one input: some of the fields of Constraints
Each = Sequence[Asked] | None


def each_asked(given: object, count: int) -> list[Asked]:
    """One for each text, if there are any."""
    if given is None:
        return []
    takes = "constraints are one dict for each text, such as {'prefix': 'The', 'must': ['dog']}, or None"
    each = [given] if isinstance(given, Mapping) and count == 1 else given
    if not isinstance(each, Sequence) or len(each) != count:
        refuse(f"{takes}; there are {count:,} texts", "this", given)
    for index, one in enumerate(each):
        if one is not None and not isinstance(one, Mapping):
            refuse(takes, f"constraints[{index}]", one)
    return list(each)


def inputs_of(
    each: Sequence[Asked], settings: Decoding, offers: Sequence[Copied], target: Tokenizer
) -> tuple[list[Input], dict[int, str]]:
    """What every output is asked, and the inputs that ask for what cannot be; nothing where all are asked the same."""
    usual = {key: value for key in Constraints.model_fields if (value := getattr(settings, key)) is not None}
    if not any(each) and not usual:
        return [], {}
    found, problems = list[Input](), dict[int, str]()
    for index, offer in enumerate(offers):
        asked = each[index] if each else None
        found.append(Input(settings, offer.extra))
        try:
            constraints = parse(Constraints, {**usual, **(asked or {})})
            found[index] = Input(settings.model_copy(update=dict(constraints)), offer.extra)
            require(constraints, target)
        except UserError as problem:
            problems[index] = str(problem)
    return found, problems


def require(constraints: Constraints, target: Tokenizer) -> None:
    if constraints.pattern is not None:
        Pattern(constraints.pattern)
    if constraints.must is not None:
        tokens_of(constraints.must, target)
