"""A lexical shortlist: outputs are made of words that translate some word of the source, or that are frequent."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from safetensors.torch import save
from torch import Tensor

from regard.data.lexicon import learn, likeliest
from regard.data.sealed import read_manifest, sealed, verify
from regard.data.store import Store
from regard.data.tokenizers import END, START, UNKNOWN
from regard.errors import UserError
from regard.models.directory import find_model
from regard.models.interface import Step, StepFunction
from regard.models.stored import finite_weights

FILE, PLACE = "shortlist.safetensors", "shortlist"
IMPOSSIBLE = float("-inf")
ALWAYS = (UNKNOWN, START, END)  # as CTranslate2 has it


class Shortlist(NamedTuple):
    likely: Int[Tensor, "source count"]  # the translations of each word
    common: Int[Tensor, "words"]  # that may always be written, END among them

    def candidates(self, sources: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "some"], Bool[Tensor, "batch some"]]:
        """All words that some source of a batch may be written with, and which of them each may."""
        allowed = torch.zeros(len(sources), 1 + max(int(one.max()) for one in self), dtype=torch.bool)
        allowed[:, self.common] = True
        for row, source in enumerate(sources):
            allowed[row, self.likely[[*source]].flatten()] = True
        words = allowed.any(dim=0).nonzero().flatten()
        return words, allowed[:, words]


def learn_shortlist(store: Store, words: int, likely: int, common: int, rows: int) -> Shortlist:
    """From the first rows of a training's tokens."""
    source, target = store["source"], store["target"]
    pairs = ((source[row], target[row]) for row in range(min(rows, len(store))))
    table = likeliest(learn(pairs), words, likely, END)
    seen = np.bincount(np.asarray(target.values[: target.offsets[min(rows, len(store))]]).astype(np.int64))
    frequent = np.argsort(-seen, kind="stable")[:common]
    always = np.unique([*ALWAYS, *frequent[seen[frequent] > 0]])
    return Shortlist(torch.from_numpy(table.astype(np.int64)), torch.from_numpy(always.astype(np.int64)))


def place_of(path: Path) -> Path:
    """Beside the model that it is for."""
    directory = find_model(path).absolute()
    return directory.with_name(f"{directory.name}-{PLACE}")


def store_shortlist(path: Path, shortlist: Shortlist) -> Path:
    into = place_of(path)
    with sealed(into, {"kind": PLACE, "made_of": read_manifest(find_model(path))["seal"]}) as inside:
        (inside / FILE).write_bytes(save({name: one.int() for name, one in shortlist._asdict().items()}))
    return into


def load_shortlist(path: Path, sources: int, targets: int) -> Shortlist:
    into = place_of(path)
    if not into.is_dir():
        raise UserError(f"{path}: there is no shortlist beside this model; make one with `regard shortlist {path}`")
    if verify(into).get("made_of") != read_manifest(find_model(path))["seal"]:
        raise UserError(f"{into}: made for a model that is no longer there; make it again with `regard shortlist {path}`")
    found = Shortlist(**{name: one.long() for name, one in finite_weights(into / FILE).items()})
    if len(found.likely) != sources or any(int(one.min()) < 0 or int(one.max()) >= targets for one in found):
        raise UserError(f"{into}: made for other vocabularies; make it again with `regard shortlist {path}`")
    return found


def spread(
    step: StepFunction, words: Int[Tensor, "some"], allowed: Bool[Tensor, "batch some"], vocabulary: int
) -> StepFunction:
    """A step whose logits are of these words, as one of the whole vocabulary, in which all others are impossible."""
    barred = torch.zeros(allowed.shape).masked_fill_(~allowed, IMPOSSIBLE)[:, None]
    behind = len(words)  # where every word stands that is not among them
    places = torch.full((vocabulary,), behind).index_copy_(0, words, torch.arange(behind))

    def whole(tokens: Int[Tensor, "rows"], state: Any) -> Step:
        found = step(tokens, state)
        each = (found.logits.view(len(allowed), -1, behind) + barred).flatten(0, 1)
        padded = torch.cat([each, each.new_full((len(each), 1), IMPOSSIBLE)], dim=1)
        return found._replace(logits=padded.index_select(1, places))

    return whole
