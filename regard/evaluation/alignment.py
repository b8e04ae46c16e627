"""How good word alignments are: the alignment error rate. And which reading of a model's attention gives the best."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

from regard.data.links import Link, Links, read_links
from regard.decoding.forcing import TeacherForced
from regard.decoding.reading import Pair, readings
from regard.errors import DataError, UserError
from regard.models.directory import Reading

NO_SURE_LINK = "the gold alignments have no sure link (i-j): the alignment error rate is not defined"
BLOCK = 256  # pairs whose alignments by all readings are held at once


class AlignmentScore(NamedTuple):
    """Shares between 0 and 1; a low error rate is good."""

    error_rate: float
    precision: float
    recall: float


def read_gold(path: Path, pairs: Sequence[Pair]) -> list[Links]:
    """The true links of these pairs: a line for each, between words that are there."""
    gold = read_links(path)
    if len(gold) != len(pairs):
        raise UserError(f"{path}: {len(gold)} lines of gold alignments for {len(pairs)} pairs")
    if not any(links.sure for links in gold):
        raise UserError(f"{path}: {NO_SURE_LINK}")
    for number, (links, pair) in enumerate(zip(gold, pairs, strict=True), start=1):
        sources, targets = (len(side.split()) for side in pair)
        for source, target in sorted(links.possible):
            if source >= sources or target >= targets:
                link, words = f"{source}-{target}", f"{sources} source and {targets} target words"
                raise DataError(f"{path}:{number}: the link {link} is beyond {words} (counted from 0)")
    return gold


def alignment_error_rate(found: Sequence[AbstractSet[Link]], gold: Sequence[Links]) -> AlignmentScore:
    """AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|) over the whole corpus (Och & Ney 2003)."""
    if len(found) != len(gold):
        raise UserError(f"{len(found)} alignments found but {len(gold)} gold alignments: one for each sentence pair")
    num_found, num_sure = sum(map(len, found)), sum(len(links.sure) for links in gold)
    if not num_sure:
        raise UserError(NO_SURE_LINK)
    in_sure = sum(len(links & truth.sure) for links, truth in zip(found, gold, strict=True))
    in_possible = sum(len(links & truth.possible) for links, truth in zip(found, gold, strict=True))
    error_rate = 1 - (in_sure + in_possible) / (num_found + num_sure)
    return AlignmentScore(error_rate, precision=in_possible / max(num_found, 1), recall=in_sure / num_sure)


def choose_reading(trained: TeacherForced, pairs: Sequence[Pair], gold: Sequence[Links]) -> Reading:
    """The head, or the mean of all, and the step whose links have the lowest error rate; of equals, the first."""
    scores = score_readings(trained, pairs, gold, readings(trained.num_heads))
    return min(scores, key=lambda reading: scores[reading].error_rate)


def score_readings(
    trained: TeacherForced, pairs: Sequence[Pair], gold: Sequence[Links], ways: Sequence[Reading]
) -> dict[Reading, AlignmentScore]:
    blocks = (trained.align_by(pairs[first : first + BLOCK], ways) for first in range(0, len(pairs), BLOCK))
    found = [[one.links for one in each] for block in blocks for each in block]  # a pair, a reading
    return {way: alignment_error_rate([each[at] for each in found], gold) for at, way in enumerate(ways)}
