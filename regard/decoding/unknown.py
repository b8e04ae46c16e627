"""Unknown words of outputs, replaced by the source words that were looked at for them (Luong et al. 2015, 'Addressing the rare
word problem in neural machine translation'; Zhou et al. 2016 call it PosUnk)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.copies import Copied
from regard.data.tokenizers import UNKNOWN, Tokenizer
from regard.decoding.forcing import TeacherForced
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.reading import read_weights
from regard.decoding.trained import batches
from regard.errors import UserError

Results = list[list[Hypothesis] | None]


def require_looks(trained: TeacherForced) -> None:
    if not trained.has_attention:
        raise UserError("unknown words are replaced by what the model looked at, and this one has no attention")


@torch.inference_mode()
def replace_unknown(
    trained: TeacherForced, lines: Sequence[str], tokens: Sequence[Any], offers: Sequence[Copied], results: Results,
    dictionary: Mapping[str, str],
) -> Results:  # fmt: skip
    """The same hypotheses, with texts in which no word is unknown. However they were searched for, where the model looked is
    what it looks at when it reads them again: stepping equals teacher forcing."""
    found = [(row, place, one) for row, each in enumerate(results) for place, one in enumerate(each or ())]
    unknown = [(row, place, one) for row, place, one in found if UNKNOWN in one.tokens]
    sizes = [max(len(tokens[row]), len(one.tokens)) for row, _, one in unknown]
    replaced = [None if each is None else list(each) for each in results]
    for some in batches(sizes, trained.decoding.batch_tokens, range(len(unknown))):
        rows, places, written = zip(*(unknown[at] for at in some), strict=True)
        offered = [offers[row] for row in rows]
        steps = trained.steps([tokens[row] for row in rows], [one.tokens for one in written], trained.copies(offered), True)
        assert steps.weights is not None
        looks = read_weights(steps.weights, trained.reading).float().cpu()
        surfaces = trained.source.surfaces([lines[row] for row in rows])
        for at, (row, place, one) in enumerate(zip(rows, places, written, strict=True)):
            words = looked_at(one.tokens, looks[at], spelled(surfaces[at], trained.source, trained.target, dictionary))
            each = replaced[row]
            assert each is not None
            each[place] = one._replace(text=spell_out(one.tokens, words, offered[at], trained.target))
    return replaced


def looked_at(tokens: Sequence[int], looks: Float[Tensor, "target source"], words: Sequence[bytes]) -> list[bytes]:
    """For each unknown token the source word with the largest weight; the end mark is none."""
    best = looks[:, : len(words)].argmax(dim=-1).tolist()
    return [words[best[step]] for step, token in enumerate(tokens) if token == UNKNOWN]


def spelled(surfaces: Sequence[bytes], source: Tokenizer, target: Tokenizer, dictionary: Mapping[str, str]) -> list[bytes]:
    """The source's words as the target spells them, in the dictionary's translation where it has one."""
    texts = [surface.decode(errors="replace").replace(source.blank, " ").strip() for surface in surfaces]
    blank = target.blank if target.spaced else ""
    return [f"{blank}{dictionary.get(text, text).replace(' ', target.blank)}".encode() for text in texts]


def spell_out(tokens: Sequence[int], words: Sequence[bytes], offer: Copied, target: Tokenizer) -> str:
    """The text of these tokens, the unknown ones spelled as `words`: ids past what the sentence offers to be copied."""
    numbers = iter(range(len(target) + len(offer.extra), len(target) + len(offer.extra) + len(words)))
    return target.decode([next(numbers) if token == UNKNOWN else token for token in tokens], [*offer.extra, *words])
