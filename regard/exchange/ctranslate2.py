"""Transformers for CTranslate2, by its own converter: what it computes as we do is written, all else refused with its key.

Its positions are a table, so an exported model reads and writes so many tokens and no more.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.data.fields import Field
from regard.errors import UserError
from regard.exchange.vocabulary import names_of
from regard.models import ModelConfig, configure
from regard.models.directory import Bundle
from regard.nn.attention import Attention
from regard.nn.positions import POSITIONS
from regard.nn.transformer.layers import Layer, TransformerStack
from regard.nn.transformer.norms import LayerNorm
from regard.recipe import Decoding

PLACES = 4096  # that positions without a limit are written for
QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")
# by our feed-forward network: its activation, and whether it is gated
ACTIVATIONS = {"relu": ("RELU", False), "gelu": ("GELU", False), "swish": ("SWISH", False), "swiglu": ("SWISH", True)}
PLAIN: Mapping[str, Any] = {"score": "projected", "scope": "global", "selection": "soft", "temperature": 1.0, "coverage": False}
Refusal = tuple[str, Any, str]  # a key, what the model has there, what CTranslate2 has


def refusal(config: ModelConfig) -> str | None:
    """Why CTranslate2 cannot compute this model; None where it can."""
    found = next(refusals(config), None)
    if found is None:
        return None
    key, value, allowed = found
    return f"CTranslate2 cannot run this model: {key}={value}, and it has {allowed}"


def refusals(config: ModelConfig) -> Iterator[Refusal]:
    if config.kind != "sequence_to_sequence":
        yield "model.kind", config.kind, "encoders with decoders (sequence_to_sequence) here"
        return
    for side in ("encoder", "decoder"):
        if (kind := getattr(config, side).kind) != "transformer":
            yield f"model.{side}.kind", kind, "transformer"
            return
    for side in ("encoder", "decoder"):
        for key, value, allowed in stack_refusals(getattr(config, side)):
            yield f"model.{side}.{key}", value, allowed
    encoder, decoder = config.encoder, config.decoder
    if encoder.input is not None and encoder.input.kind != "words":
        yield "model.encoder.input.kind", encoder.input.kind, "words"
    for key, value, allowed in attention_refusals(decoder.cross_attention, decoder.hidden_size):
        yield f"model.decoder.cross_attention.{key}", value, allowed
    if decoder.cross_attention.heads != decoder.attentions[0].heads:
        yield "model.decoder.cross_attention.heads", decoder.cross_attention.heads, "as many as the decoder's own attention"
    if encoder.hidden_size != decoder.hidden_size:
        yield "model.decoder.hidden_size", decoder.hidden_size, f"the encoder's ({encoder.hidden_size})"
    if decoder.copy_words is not None:
        yield "model.decoder.copy_words", decoder.copy_words, "no copying"


def stack_refusals(stack: Any) -> Iterator[Refusal]:
    positions = POSITIONS[stack.positions]
    told = {
        "feedforward": (stack.feedforward in ACTIVATIONS, " or ".join(ACTIVATIONS)),
        "norm": (stack.norm in ("layer", "rms"), "layer or rms"),
        "positions": (positions.turns or not positions.relative, "those that are part of what is read, rotary or none"),
        "positions_join": (stack.positions_join == "added", "added"),
        "experts": (stack.experts is None, "no experts"),
        "hidden_size": (stack.hidden_size % 2 == 0, "even sizes"),
    }
    yield from ((key, getattr(stack, key), allowed) for key, (fits, allowed) in told.items() if not fits)
    for one in stack.attentions:
        for key, value, allowed in attention_refusals(one, stack.hidden_size):
            yield f"attention.{key}", value, allowed
    if len(heads := {one.heads for one in stack.attentions}) > 1:
        yield "attention.heads", sorted(heads), "as many in every layer"


def attention_refusals(attention: Any, size: int) -> Iterator[Refusal]:
    for key, plain in PLAIN.items():
        if (value := getattr(attention, key)) != plain:
            yield key, value, str(plain)
    for key in ("size", "values"):
        if (value := getattr(attention, key)) not in (None, size):
            yield key, value, f"the layer's size ({size})"


def write(bundle: Bundle, directory: Path, quantization: str | None = None) -> dict[str, Any]:
    """Into an empty directory; what `export.json` says of it beside the tokenizers."""
    spec, places = converted(bundle)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(directory))
    return {"quantization": quantization or "float32", **places, "search": search_options(bundle.decoding)}


def search_options(decoding: Decoding) -> dict[str, Any]:
    """Our settings as `Translator.translate_batch` takes them."""
    if decoding.length_norm != "power" and decoding.length_penalty:
        return {"beam_size": decoding.beam, "length_penalty": 0.0}
    return {"beam_size": decoding.beam, "length_penalty": decoding.length_penalty}


def library() -> Any:
    try:
        import ctranslate2.specs
    except ImportError:
        raise UserError("CTranslate2 is not installed: pip install 'regard[export]'") from None
    return ctranslate2


def converted(bundle: Bundle) -> tuple[Any, dict[str, int]]:
    """Their specification of the model, filled; and how many tokens either side may have, marks included."""
    config, model = configure(bundle.config), cast(Any, bundle.model)
    if (problem := refusal(config)) is not None:
        raise UserError(problem)
    specs, sides = library().specs, (config.encoder, config.decoder)
    encoder, decoder = (
        build(side.layers, side.attentions[0].heads, **options(side, specs))
        for side, build in zip(sides, (specs.TransformerEncoderSpec, specs.TransformerDecoderSpec), strict=True)
    )
    spec = specs.TransformerSpec(encoder, decoder)
    spec.config.add_source_eos, spec.config.layer_norm_epsilon = True, LayerNorm.eps
    fill_stack(encoder, model.encoder.stack)
    fill_stack(decoder, model.decoder.stack)
    encoder.embeddings[0].weight = array(model.encoder.embed.weight)
    decoder.embeddings.weight = array(model.decoder.embed.weight)
    fill_linear(decoder.projection, model.decoder.output)
    register(spec, bundle.fields)
    return spec, {"source_places": places_of(model.encoder.stack), "target_places": places_of(model.decoder.stack)}


def options(side: Any, specs: Any) -> dict[str, Any]:
    activation, gated = ACTIVATIONS[side.feedforward]
    rotary = {"rotary_dim": 0, "rotary_interleave": True} if POSITIONS[side.positions].turns else {}
    return {
        "pre_norm": side.norm_place == "pre", "activation": getattr(specs.common_spec.Activation, activation),
        "ffn_glu": gated, "rms_norm": side.norm == "rms", **rotary,
    }  # fmt: skip


def register(spec: Any, fields: Mapping[str, Field]) -> None:
    spec.register_source_vocabulary(names_of(fields["source"]))
    spec.register_target_vocabulary(names_of(fields["target"]))


def places_of(stack: TransformerStack) -> int:
    return stack.positions.known_places or PLACES


def fill_stack(spec: Any, stack: TransformerStack) -> None:
    """In pre-norm the norm that follows a sublayer is the next one's own, and the last is the stack's."""
    if not stack.positions.turns:
        spec.position_encodings.encodings = array(table(stack))
    elif hasattr(spec, "position_encodings"):
        del spec.position_encodings
    norms = [norm for layer in stack.layers for norm in norms_after(layer)]
    places = [place for layer in spec.layer for place in sublayers(layer)]
    if stack.first_norm is None:
        for place, norm in zip(places, norms, strict=True):
            fill_norm(place, norm)
    else:
        for place, norm in zip([*places, spec.layer_norm], [stack.first_norm, *norms], strict=True):
            fill_norm(place, norm)
    for theirs, ours in zip(spec.layer, stack.layers, strict=True):
        fill_layer(theirs, ours)


def table(stack: TransformerStack) -> Tensor:
    """The vector of each place; zeros where nothing is known of places."""
    places = torch.arange(places_of(stack))[None]
    found = stack.positions.encode(places)[0] if stack.positions.absolute else torch.zeros(places.shape[1], 1)
    return found.expand(-1, stack.size).float()


def norms_after(layer: Layer) -> list[LayerNorm]:
    joins = [layer.after_self, *([] if layer.cross is None else [layer.after_cross]), layer.after_feedforward]
    return [join.norm for join in joins]


def sublayers(layer: Any) -> list[Any]:
    """Where a layer's norms go, in the order of its sublayers."""
    parts = [layer.self_attention, *([layer.attention] if hasattr(layer, "attention") else []), layer.ffn]
    return [part.layer_norm for part in parts]


def fill_layer(spec: Any, layer: Layer) -> None:
    fill_attention(spec.self_attention.linear, layer.self_attention.attention, layer.self_output, own=True)
    if layer.cross is not None:
        fill_attention(spec.attention.linear, layer.cross, layer.cross_output, own=False)
    fill_feedforward(spec.ffn, layer.feedforward)


def fill_attention(linears: Any, attention: Attention, output: nn.Linear, own: bool) -> None:
    """Of a sequence to itself they join all three projections, of one to a memory keys and values."""
    score, value = attention.score, attention.project_value
    groups = [[score.project_query, score.project_key, value]] if own else [[score.project_query], [score.project_key, value]]
    for place, group in zip(linears, [*groups, [output]], strict=True):
        place.weight = array(torch.cat([one.weight for one in group]))
        if group[0].bias is not None:
            place.bias = array(torch.cat([one.bias for one in group]))


def fill_feedforward(spec: Any, network: Any) -> None:
    fill_linear(spec.linear_1, network.down)
    if not hasattr(spec, "linear_0_noact"):
        fill_linear(spec.linear_0, network.up)
        return
    for place, half in ((spec.linear_0, 0), (spec.linear_0_noact, 1)):
        place.weight = array(network.up.weight.chunk(2)[half])
        place.bias = array(network.up.bias.chunk(2)[half])


def fill_linear(place: Any, layer: nn.Linear) -> None:
    place.weight = array(layer.weight)
    if layer.bias is not None:
        place.bias = array(layer.bias)


def fill_norm(place: Any, norm: LayerNorm) -> None:
    place.gamma = array(norm.weight)
    if norm.offset is not None:
        place.beta = array(norm.offset)


def array(tensor: Tensor) -> Any:
    return tensor.detach().float().cpu().contiguous().numpy()
