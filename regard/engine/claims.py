"""What the Transformer's engine computes: the paper's attention, with any norm, network and positions that are read."""

from torch import nn

from regard.models.decoders.transformer import TransformerDecoder
from regard.models.encoders.transformer import TransformerEncoder
from regard.nn.attention import Attention
from regard.nn.attention.scopes import SCOPES, Causal, Scope
from regard.nn.attention.scores import SCORES, ProjectedScore
from regard.nn.attention.selections import SELECTIONS, Soft
from regard.nn.transformer.feedforward import FeedForward
from regard.nn.transformer.layers import Layer, TransformerStack


def encoder_problem(encoder: TransformerEncoder) -> str | None:
    if not isinstance(encoder.embed, nn.Embedding):
        return "its source is no text"
    return stack_problem(encoder.stack)


def decoder_problem(decoder: TransformerDecoder) -> str | None:
    if decoder.copy_words is not None:
        return "it copies words"
    return stack_problem(decoder.stack)


def stack_problem(stack: TransformerStack) -> str | None:
    """Why a stack has no engine, in the words of its recipe."""
    if stack.positions.relative:
        return f"positions of kind {type(stack.positions).__name__} are told in pairs"
    if stack.positions.merge is not None:
        return "positions are concatenated"
    found = [problem for layer in stack.layers for problem in layer_problems(layer)]
    if found:
        return found[0]
    sizes = {(layer.self_attention.attention.heads, layer.self_attention.attention.score.size) for layer in stack.layers}
    return None if len(sizes) == 1 else "its layers have attentions of different sizes"


def layer_problems(layer: Layer) -> list[str]:
    """A decoder's layer sees its own past, and all of a memory; an encoder's sees all."""
    own = attention_problem(layer.self_attention.attention, causal=layer.cross is not None)
    cross = None if layer.cross is None else attention_problem(layer.cross, causal=False)
    found = [problem for problem in (own, cross) if problem is not None]
    if not isinstance(layer.feedforward, FeedForward):
        found.append(f"{type(layer.feedforward).__name__} stand between its layers")
    return found


def attention_problem(attention: Attention, causal: bool) -> str | None:
    if type(attention.score) is not ProjectedScore or attention.project_value is None:
        return f"score `{name_of(SCORES, attention.score)}` of attention"
    if type(attention.scope) not in (Scope, Causal) or attention.scope.bounded != causal:
        return f"scope `{name_of(SCOPES, attention.scope)}` of attention"
    if type(attention.selection) is not Soft or attention.selection.temperature != 1:
        return f"selection `{name_of(SELECTIONS, attention.selection)}` of attention, or its temperature"
    return "coverage of attention" if attention.covered is not None else None


def name_of(table: dict[str, type], entry: object) -> str:
    return next((name for name, kind in table.items() if kind is type(entry)), type(entry).__name__)
