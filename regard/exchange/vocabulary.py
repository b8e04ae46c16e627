"""The names of tokens for libraries that know tokens by names: one name for each, and no name twice."""

from regard.data.fields import Field, tokenizer_of
from regard.data.tokenizer import SPECIALS


def names_of(field: Field) -> list[str]:
    """As a reader sees them; where two look alike, or one looks like a special token, its number follows it."""
    tokenizer = tokenizer_of(field)
    seen = set[str]()
    return [unique(name, token, seen) for token, name in enumerate(tokenizer.pieces(range(len(tokenizer))))]


def unique(name: str, token: int, seen: set[str]) -> str:
    while name in seen or (name in SPECIALS and token >= len(SPECIALS)):
        name = f"{name}#{token}"
    seen.add(name)
    return name
