"""How good word alignments are: the alignment error rate. And which reading of a model's attention gives the best."""

from collections.abc import Sequence
from pathlib import Path

from regard.data.links import Links, read_links
from regard.decoding.forcing import TeacherForced
from regard.decoding.reading import Pair, readings
from regard.errors import DataError, UserError
from regard.evaluation.metrics import NO_SURE_LINK
from regard.evaluation.metrics import AlignmentScore as AlignmentScore
from regard.evaluation.metrics import alignment_error_rate as alignment_error_rate
from regard.models.directory import Reading

BLOCK = 256  # pairs whose alignments by all readings are held at once


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
