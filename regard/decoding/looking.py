"""From what a model tells of its attentions to pictures of words: names of rows and columns, pieces put together."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from regard.data.batching import Batch
from regard.data.fields import Field, Text
from regard.data.links import merge_pieces
from regard.data.tokenizer import Tokenizer, readable
from regard.insight.heatmap import END_MARK, Heatmap
from regard.insight.look import Chance
from regard.insight.maps import ATTENTION_MAPS, AttentionMap, rollout
from regard.models.interface import AttentionWeights
from regard.models.looking import all_weights

if TYPE_CHECKING:
    from regard.decoding.trained import Trained

START_MARK, FIRST_STATE, GENERATED = "<s>", "s₀", "(generated)"
ALTERNATIVES = 3  # at least so many words are named beside the one that was written


class Labels(NamedTuple):
    """What stands at the positions of one side: names, and the name of which each position is a piece."""

    names: list[str]
    places: list[int]

    def then(self, names: Sequence[str], places: Sequence[int] | None = None) -> "Labels":
        """More positions; each has a name of its own unless `places` says otherwise."""
        more = range(len(names)) if places is None else places
        return Labels([*self.names, *names], [*self.places, *(len(self.names) + place for place in more)])


class Sides(NamedTuple):
    """Of one text and its output."""

    source: Labels  # with its end mark
    written: Labels  # what each step writes: the output, END
    read: Labels  # what each step reads: START, the output
    whole: str = "(whole)"  # what a text as a whole is called


NOTHING = Labels([], [])


def sides_of(source: Labels, output: Labels = NOTHING, marks: int = 1, whole: str = "(whole)") -> Sides:
    return Sides(
        source.then([END_MARK] * marks), output.then([END_MARK]), Labels([START_MARK], [0]).then(*output), whole or "(whole)"
    )


def after_the_last(source: Labels, count: int) -> Labels:
    """Some encoders go on after the last word."""
    return source.then([f"+{place + 1}" for place in range(count - len(source.places))])


def before_the_first(sides: Sides, steps: Labels, count: int) -> Labels:
    """Steps of a decoder alone follow the source; the state that a recurrence starts from stands on its tape."""
    extra = count - len(steps.places)
    if extra == 0:
        return steps
    return (sides.source if extra == len(sides.source.places) else NOTHING.then([FIRST_STATE] * extra)).then(*steps)


# What stands at so many rows or columns
SIDES: dict[str, Callable[[Sides, int], Labels]] = {
    "source": lambda sides, count: after_the_last(sides.source, count),
    "written": lambda sides, count: before_the_first(sides, sides.written, count),
    "read": lambda sides, count: before_the_first(sides, sides.read, count),
    "copied": lambda sides, count: after_the_last(sides.source, count - 1).then([GENERATED]),
    "experts": lambda sides, count: NOTHING.then([str(expert) for expert in range(1, count + 1)]),
    "whole": lambda sides, count: NOTHING.then([sides.whole]),
}


def maps_of(trained: "Trained", batch: Batch, sides: Sides) -> list[AttentionMap]:
    """All maps of a batch of one row, head by head, and the rollout of each stack."""
    name = trained.name
    found, stacks = list[AttentionMap](), defaultdict[str, list[np.ndarray]](list)
    for one in all_weights(trained.model, batch):
        weights = one.weights.float().cpu().numpy()
        stacks[one.kind].append(weights.mean(axis=0))
        found += named(one, weights, sides, name)
    rolled = [stacked(kind, layers, sides, name) for kind, layers in stacks.items() if ATTENTION_MAPS[kind].stacked]
    return [*found, *rolled]


def named(
    one: AttentionWeights, weights: Float[np.ndarray, "heads rows columns"], sides: Sides, name: str
) -> Iterator[AttentionMap]:
    for head, each in enumerate(weights, start=1):
        found = AttentionMap(one.kind, one.layer, head, drawn(one.kind, each, sides))
        yield found._replace(heatmap=found.heatmap._replace(title=f"{name}: {found.name}"))


def stacked(kind: str, layers: list[Float[np.ndarray, "time time"]], sides: Sides, name: str) -> AttentionMap:
    found = AttentionMap(kind, None, None, drawn(kind, rollout(layers), sides), rollout=True)
    return found._replace(heatmap=found.heatmap._replace(title=f"{name}: {found.name}"))


def drawn(kind: str, weights: Float[np.ndarray, "rows columns"], sides: Sides) -> Heatmap:
    """Of names instead of positions."""
    rows = SIDES[ATTENTION_MAPS[kind].rows](sides, len(weights))
    columns = SIDES[ATTENTION_MAPS[kind].columns](sides, weights.shape[1])
    merged = merge_pieces(weights, columns.places, rows.places)[: len(rows.names), : len(columns.names)]
    return Heatmap(columns.names, rows.names, merged)


def labels_of(field: Field, text: str, positions: Sequence[Any], tokens: bool) -> Labels:
    """Words of a text as its writer spelled them, or tokens; numbers of what is no text."""
    if not isinstance(field, Text):
        return NOTHING.then([str(place) for place in range(1, len(positions) + 1)])
    names, places = units(field.tokenizer, positions, tokens)
    return Labels(own(field.tokenizer, text, names, tokens), places)


def units(tokenizer: Tokenizer, ids: Sequence[int], tokens: bool) -> tuple[list[str], list[int]]:
    """What is shown of these ids, words or tokens, and the place of each id in it."""
    if tokens:
        return tokenizer.pieces(ids), list(range(len(ids)))
    return tokenizer.decode(ids).split(), tokenizer.words(ids)


def own(tokenizer: Tokenizer, text: str, side: list[str], tokens: bool) -> list[str]:
    """The words of the text itself, or its tokens, where they are as many."""
    given = [readable(spelling) for spelling in tokenizer.surfaces([text])[0]] if tokens else text.split()
    return given if len(given) == len(side) else side


def chances_of(
    tokenizer: Tokenizer,
    log_probs: Float[torch.Tensor, "steps words"],
    written: Sequence[int],
    labels: Labels,
    number: int,
    extra: Sequence[bytes] = (),
) -> list[Chance]:
    """How probable each token of an output was at its step, and which others were: the most probable ones."""
    best = log_probs.topk(min(max(number, ALTERNATIVES), log_probs.shape[1]), dim=1)
    found = list[Chance]()
    for step, token in enumerate(written):
        others = zip(tokenizer.pieces(best.indices[step].tolist(), extra), best.values[step].exp().tolist(), strict=True)
        (spelled,) = tokenizer.pieces([token], extra)
        found.append(Chance(spelled, labels.places[step], float(log_probs[step, token].exp()), list(others)))
    return found
