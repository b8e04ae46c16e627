"""What metrics are compared with: definitions, written out."""

from functools import cache

import pytest

from regard.errors import UserError
from regard.evaluation.metrics import METRICS


@cache
def distance(ours, theirs):
    """Levenshtein's recursion."""
    if not ours or not theirs:
        return len(ours) + len(theirs)
    return min(
        distance(ours[1:], theirs) + 1, distance(ours, theirs[1:]) + 1, distance(ours[1:], theirs[1:]) + (ours[0] != theirs[0])
    )


def unordered(ours, theirs):
    """The edits that are left when words may stand anywhere: each word is used up once."""
    left = list(theirs)
    for word in ours:
        if word in left:
            left.remove(word)
    found = len(theirs) - len(left)
    return max(len(ours), len(theirs)) - found


def needs_installed(name):
    try:
        METRICS[name].ready()
    except UserError as error:
        pytest.skip(str(error))
