"""How good a trained model is on a test set."""

import math
from collections.abc import Sequence

from regard.data.links import Links
from regard.data.readers import BadRows, read_rows
from regard.decoding.generator import TrainedGenerator
from regard.decoding.reading import Pair
from regard.errors import UserError
from regard.evaluation.alignment import alignment_error_rate
from regard.evaluation.metrics import METRICS, Score
from regard.recipe import Decoding, Pairs

LENGTHS = (5, 10, 15, 20, 30, 40, 60)  # source words, for scores by length


def read_test(pairs: Pairs) -> list[Pair]:
    """All rows of a test set; a bad row always stops, for a score over fewer rows is another score."""
    bad, rows = BadRows("stop", advice="mend the file: a score over fewer rows would be another score"), []
    if not {"source", "target"} <= pairs.named.keys():
        raise UserError(f"a test set has a source and a target; this one has {' and '.join(pairs.named)} only")
    for block in read_rows(pairs):
        bad.add(block.faults)
        rows += list(zip(block.columns["source"], block.columns["target"], strict=True))
    return rows


def evaluate(
    trained: TrainedGenerator,
    pairs: Sequence[Pair],
    gold: Sequence[Links] | None = None,
    decoding: Decoding | None = None,
) -> tuple[list[Score], list[str]]:
    """Every metric that applies, and the outputs they judge. A pair that is too long for the model has an empty output and no
    links, which count; its perplexity is not known, and that of the others is told."""
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    unscored = trained.too_long(sources, references)
    found = trained.answer(sources, trained.settings(decoding))
    outputs = [hypotheses[0].text if hypotheses else "" for hypotheses in found.results]
    scores = [metric(outputs, references) for metric in METRICS.values()]
    known = [pair for row, pair in enumerate(pairs) if row not in unscored]
    scores.append(Score("perplexity", perplexity(trained, known) if known else math.inf, ""))
    if gold is not None:
        scores += alignment_scores(trained, [("", "") if row in unscored else pair for row, pair in enumerate(pairs)], gold)
    return scores, outputs


def perplexity(trained: TrainedGenerator, pairs: Sequence[Pair]) -> float:
    """e ** (-log p / tokens) of the references, in the model's own tokens."""
    return math.exp(min(token_loss(trained, pairs), 700.0))


def token_loss(trained: TrainedGenerator, pairs: Sequence[Pair]) -> float:
    likelihoods = trained.score(pairs)
    return -sum(one.log_prob for one in likelihoods) / sum(one.tokens for one in likelihoods)


def alignment_scores(trained: TrainedGenerator, pairs: Sequence[Pair], gold: Sequence[Links]) -> list[Score]:
    if len(gold) != len(pairs):
        raise UserError(f"{len(gold)} lines of gold alignments for {len(pairs)} pairs")
    if not trained.has_attention:
        return []
    found = alignment_error_rate([one.links for one in trained.align(pairs)], gold)
    return [Score(f"alignment {name}", value, "") for name, value in found._asdict().items()]


def by_length(pairs: Sequence[Pair], outputs: Sequence[str], metric: str = "bleu") -> list[tuple[str, int, Score]]:
    """The score of sources of like length (in words), as the figures of Bahdanau and Luong show it."""
    groups: dict[int, list[int]] = {}
    for row, (source, _) in enumerate(pairs):
        words = len(source.split())
        groups.setdefault(next((end for end in LENGTHS if words <= end), 0), []).append(row)
    results = []
    for end in [*LENGTHS, 0]:
        if rows := groups.get(end):
            score = METRICS[metric]([outputs[row] for row in rows], [pairs[row][1] for row in rows])
            results.append((f"up to {end} words" if end else f"over {LENGTHS[-1]} words", len(rows), score))
    return results
