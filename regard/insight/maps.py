"""Every kind of attention that can be looked at, and one head of one layer of it as a picture."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from regard.errors import UserError
from regard.insight.heatmap import Heatmap


class MapKind(NamedTuple):
    """What rows and columns are (SIDES in `decoding/looking.py` names them), and what to call it."""

    rows: str
    columns: str
    told: str
    stacked: bool = False  # whether layers of it lie on each other as in a Transformer, so that it has a rollout
    headed: bool = True  # whether it has heads


ATTENTION_MAPS: dict[str, MapKind] = {
    "cross": MapKind("written", "source", "attention to the source"),
    "encoder": MapKind("source", "source", "self-attention of the encoder", stacked=True),
    "decoder": MapKind("written", "read", "self-attention of the decoder", stacked=True),
    "sequence": MapKind("written", "read", "self-attention over source and target", stacked=True),
    "encoder_recurrence": MapKind("source", "source", "self-attention in the encoder's recurrence"),
    "decoder_recurrence": MapKind("written", "read", "self-attention in the decoder's recurrence"),
    "pooling": MapKind("whole", "source", "pooling"),
    "copy": MapKind("written", "copied", "copying"),
    "encoder_experts": MapKind("source", "experts", "experts of the encoder", headed=False),
    "decoder_experts": MapKind("written", "experts", "experts of the decoder", headed=False),
}


class AttentionMap(NamedTuple):
    """One head; `head` None: the mean of a layer's heads; `layer` None: of all layers, by their mean or their rollout."""

    kind: str
    layer: int | None
    head: int | None
    heatmap: Heatmap
    rollout: bool = False

    @property
    def told(self) -> str:
        return ATTENTION_MAPS[self.kind].told

    @property
    def name(self) -> str:
        """Which it is, in words."""
        told = self.told
        if self.rollout:
            return f"{told}, rollout"
        layer = "mean of layers" if self.layer is None else f"layer {self.layer}"
        head = ", mean of heads" if self.head is None else f", head {self.head}"
        return f"{told}, {layer}{head if ATTENTION_MAPS[self.kind].headed else ''}"


def rollout(layers: Sequence[Float[np.ndarray, "time time"]]) -> Float[np.ndarray, "time time"]:
    """R_l = (A_l + I) / 2 · R_{l-1}: how much of each input is in each output, where half of every layer is what went past its
    attention (Abnar & Zuidema 2020, section 3). `layers` are means over heads, the lowest first."""
    found: Float[np.ndarray, "time time"] = np.eye(len(layers[0]), dtype=layers[0].dtype)
    for weights in layers:
        found = (weights @ found + found) / 2
    return found


class View(NamedTuple):
    """Which of a model's maps is wanted; None: the mean over all."""

    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    rollout: bool = False


def kinds_of(maps: Sequence[AttentionMap]) -> list[str]:
    return list(dict.fromkeys(one.kind for one in maps))


def heads_of(maps: Sequence[AttentionMap], kind: str | None) -> list[AttentionMap]:
    """Every head of every layer of one kind, the first that there is unless named."""
    kinds = kinds_of(maps)
    if not kinds:
        raise UserError("this model has no attention, so there is nothing to look at")
    if kind is not None and kind not in kinds:
        raise UserError(f"this model has no map {kind!r}; it has {', '.join(kinds)}")
    return [one for one in maps if one.kind == (kind or kinds[0]) and not one.rollout]


def view(maps: Sequence[AttentionMap], wanted: View) -> AttentionMap:
    """One of the maps, or the mean of some."""
    heads = heads_of(maps, wanted.kind)
    kind, title = heads[0].kind, heads[0].heatmap.title
    if wanted.rollout:
        return rolled(maps, kind)
    some = [one for one in heads if wanted.layer in (None, one.layer) and wanted.head in (None, one.head)]
    if not some:
        layers, most = max(one.layer or 0 for one in heads), max(one.head or 0 for one in heads)
        raise UserError(f"map {kind!r} has no such layer or head: layers go from 1 to {layers}, heads from 1 to {most}")
    weights = np.mean([one.heatmap.weights for one in some], axis=0)
    layer, head = only({one.layer for one in some}), only({one.head for one in some})
    found = AttentionMap(kind, layer, head, some[0].heatmap._replace(weights=weights))
    where = title.partition(": ")[0]
    return found._replace(heatmap=found.heatmap._replace(title=f"{where}: {found.name}"))


def only(numbers: set[int | None]) -> int | None:
    """The number that all have, of which there is no mean to tell."""
    return next(iter(numbers)) if len(numbers) == 1 else None


def rolled(maps: Sequence[AttentionMap], kind: str) -> AttentionMap:
    found = [one for one in maps if one.kind == kind and one.rollout]
    if not found:
        stacked = ", ".join(name for name, one in ATTENTION_MAPS.items() if one.stacked)
        raise UserError(f"a rollout is of the self-attention of a Transformer ({stacked}), and this is {kind!r}")
    return found[0]
