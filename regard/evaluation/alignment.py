"""How good word alignments are: the alignment error rate."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from regard.data.links import Link, Links
from regard.errors import UserError


class AlignmentScore(NamedTuple):
    """Shares between 0 and 1; a low error rate is good."""

    error_rate: float
    precision: float
    recall: float


def alignment_error_rate(found: Sequence[AbstractSet[Link]], gold: Sequence[Links]) -> AlignmentScore:
    """AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|) over the whole corpus (Och & Ney 2003)."""
    if len(found) != len(gold):
        raise UserError(f"{len(found)} alignments found but {len(gold)} gold alignments: one for each sentence pair")
    num_found, num_sure = sum(map(len, found)), sum(len(links.sure) for links in gold)
    if not num_sure:
        raise UserError("the gold alignments have no sure link (i-j): the alignment error rate is not defined")
    in_sure = sum(len(links & truth.sure) for links, truth in zip(found, gold, strict=True))
    in_possible = sum(len(links & truth.possible) for links, truth in zip(found, gold, strict=True))
    error_rate = 1 - (in_sure + in_possible) / (num_found + num_sure)
    return AlignmentScore(error_rate, precision=in_possible / max(num_found, 1), recall=in_sure / num_sure)
