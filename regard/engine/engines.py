"""From a model to its engine. ENCODERS and DECODERS are the parts that have one; what has none stays the model's own."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxtyping import Int
from torch import Tensor, nn

from regard.engine.claims import decoder_problem, encoder_problem
from regard.engine.pages import large_pages
from regard.engine.products import PRECISIONS, Pack, projection
from regard.engine.recurrent import with_products
from regard.engine.transformer import TransformerDecoderEngine, TransformerEncoderEngine
from regard.models import Generator
from regard.models.decoders.recurrent import RecurrentDecoder
from regard.models.decoders.transformer import TransformerDecoder
from regard.models.encoders.recurrent import RecurrentEncoder
from regard.models.encoders.transformer import TransformerEncoder
from regard.nn.allocator import give_back_freed, keep_freed_memory
from regard.nn.linear import LinearForInference
from regard.nn.rounding import RoundedMatrix, rounded, rows_of
from regard.tables import choose


class Rewrite(NamedTuple):
    """How a part of a model is rewritten for inference, and what is in the way."""

    build: Callable[[Any, Pack], Any]
    problem: Callable[[Any], str | None] = lambda part: None


ENCODERS: dict[type[nn.Module], Rewrite] = {
    TransformerEncoder: Rewrite(TransformerEncoderEngine, encoder_problem),
    RecurrentEncoder: Rewrite(with_products),
}
DECODERS: dict[type[nn.Module], Rewrite] = {
    TransformerDecoder: Rewrite(TransformerDecoderEngine, decoder_problem),
    RecurrentDecoder: Rewrite(with_products),
}
PARTS: Mapping[str, Mapping[type[nn.Module], Rewrite]] = {"encoder": ENCODERS, "decoder": DECODERS}


class Engine(NamedTuple):
    """A model that encodes and steps as the one it was made of, faster. It shares its weights, and trains nothing."""

    model: Generator
    own: Mapping[str, str]  # what of it stays as it was, and why
    pack: Pack

    @property
    def is_compiled(self) -> bool:
        """Whether a word of its decoder is one call of layers.c, and nothing of the model stayed as it was."""
        return not self.own and getattr(self.model.decoder, "whole", None) is not None

    def narrowed(self, words: Int[Tensor, "some"]) -> Generator:
        """The same model, whose logits are of these words alone."""
        decoder: Any = copy.copy(self.model.decoder)
        whole = not isinstance(decoder.output.weight, RoundedMatrix)
        if whole and self.pack is PRECISIONS["int8"] and isinstance(decoder.output, LinearForInference):
            weights: dict[str, Any] = decoder.output._parameters
            weights["weight"] = RoundedMatrix(*rounded(weights["weight"]))  # once for all batches
        weight, bias = projection(decoder.output)
        product = self.pack(rows_of(weight, words), None if bias is None else bias[words])
        layer = LinearForInference(decoder.output, product)
        if isinstance(decoder, nn.Module):
            vars(decoder)["_modules"] = {**decoder._modules, "output": layer}
        else:
            decoder.output = layer
        return with_parts(self.model, {**self.model._modules, "decoder": decoder})


def with_parts(model: Generator, parts: Mapping[str, Any]) -> Generator:
    found = copy.copy(model)
    vars(found)["_modules"] = parts
    return found


def engine_for(model: Generator, precision: str) -> Engine:
    pack = choose(PRECISIONS, precision, "precision")
    parts, own = dict(model._modules), dict[str, str]()
    for name, part in parts.items():
        assert part is not None
        rewrite = PARTS.get(name, {}).get(type(part))
        problem = f"{type(part).__name__} has no engine" if rewrite is None else rewrite.problem(part)
        if rewrite is None or problem is not None:
            own[name] = problem or ""
        else:
            give_back_freed()  # new weights lie elsewhere than what they are made of
            with large_pages():
                parts[name] = rewrite.build(part, pack)
    give_back_freed()
    keep_freed_memory()  # from here on: what was needed to lay weights out is given back
    return Engine(with_parts(model, parts), own, pack)
