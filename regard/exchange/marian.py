"""Marian models as Hugging Face keeps them (opus-mt): their equations are our Transformer's, so they become models of ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field as Bounds
from torch import Tensor

from regard.bounds import Count, Depth, Rate, Size, Width
from regard.data.fields import texts
from regard.data.marian_tokenizer import MarianTokenizer
from regard.data.tokenizer import LARGEST, PAD, START
from regard.data.untrusted import read_json, read_plain
from regard.errors import DamagedError, UserError
from regard.exchange.imported import Imported
from regard.models.stored import CONFIG, WEIGHTS, blamed_on, finite_weights, read_header
from regard.nn.positions import SinusoidHalves
from regard.recipe import Recipe, Section, parse

GENERATION, VOCABULARY, PYTORCH = "generation_config.json", "vocab.json", "pytorch_model.bin"
LARGEST_CONFIG = 1 << 20  # bytes
NEVER = -1e4  # log p of a word that is not written, but for a constant
WORDS = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
NETWORKS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
# what older converters may say, and what it must be: Hugging Face's code computes nothing else
PLAIN = {
    "normalize_embedding": False, "normalize_before": False, "add_final_layer_norm": False, "static_position_embeddings": True,
    "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True,
}  # fmt: skip
# their names of a layer's tensors and ours; a norm's `bias` is our `offset`
ATTENTION = {"q_proj": "score.project_query", "k_proj": "score.project_key", "v_proj": "project_value"}
LAYER = {
    **{f"self_attn.{theirs}": f"self_attention.attention.{ours}" for theirs, ours in ATTENTION.items()},
    "self_attn.out_proj": "self_output", "self_attn_layer_norm": "after_self.norm", "fc1": "feedforward.up",
    "fc2": "feedforward.down", "final_layer_norm": "after_feedforward.norm",
}  # fmt: skip
CROSS = {
    **{f"encoder_attn.{theirs}": f"cross.{ours}" for theirs, ours in ATTENTION.items()},
    "encoder_attn.out_proj": "cross_output", "encoder_attn_layer_norm": "after_cross.norm",
}  # fmt: skip


class Marian(Section):
    """The keys of config.json and generation_config.json that decide what is computed."""

    vocab_size: Annotated[int, Bounds(gt=3, lt=1 << 24)]
    d_model: Size
    encoder_layers: Depth
    decoder_layers: Depth
    encoder_attention_heads: Size
    decoder_attention_heads: Size
    encoder_ffn_dim: Size
    decoder_ffn_dim: Size
    activation_function: str = "gelu"
    scale_embedding: bool = False
    dropout: Rate = 0.1
    activation_dropout: Rate = 0.0
    pad_token_id: Count
    eos_token_id: Count = 0
    decoder_start_token_id: Count
    num_beams: Width = 4
    max_length: Size = 512
    length_penalty: Annotated[float, Bounds(ge=0, le=10)] = 1.0


def read(directory: Path) -> Imported:
    """UserError for what is missing, of other sizes, or of a model that we do not compute."""
    config = read_config(directory)
    vocabulary = read_vocabulary(directory / VOCABULARY, config.vocab_size)
    order = order_of(config, vocabulary, directory)
    pieces = [vocabulary[token] for token in order[4:]]
    source, target = (tokenizer_of(directory / f"{side}.spm", pieces) for side in ("source", "target"))
    recipe = parse(Recipe, {"about": f"Imported from {directory.name}", "model": section_of(config), **settings(config)})
    theirs = Tensors(directory / WEIGHTS, read_weights(directory))
    found = Imported(recipe, weights(config, theirs, order), texts(source, target))
    theirs.refuse_the_rest(config)
    found.check(directory, directory / WEIGHTS)
    return found


def read_config(directory: Path) -> Marian:
    values = read_json(directory / CONFIG, LARGEST_CONFIG)
    for key, plain in PLAIN.items():
        if values.get(key, plain) != plain:
            raise UserError(f"{directory / CONFIG}: {key}={values[key]!r:.40} is not imported, only {plain}")
    if (size := values.get("decoder_vocab_size")) not in (None, values.get("vocab_size")):
        raise UserError(
            f"{directory / CONFIG}: decoder_vocab_size={size!r:.40} is not imported, only one vocabulary for both sides"
        )
    if (name := values.get("activation_function", "gelu")) not in NETWORKS:
        raise UserError(f"{directory / CONFIG}: activation_function={name!r:.40} is not imported, only {', '.join(NETWORKS)}")
    if (directory / GENERATION).exists():
        search = read_json(directory / GENERATION, LARGEST_CONFIG)
        values |= {key: search[key] for key in ("num_beams", "max_length", "length_penalty") if search.get(key) is not None}
    with blamed_on(directory / CONFIG):
        return parse(Marian, {key: value for key, value in values.items() if key in Marian.model_fields and value is not None})


def read_vocabulary(path: Path, size: int) -> list[str]:
    """The piece of each of their ids."""
    values = read_json(path, LARGEST)
    pieces = {token: piece for piece, token in values.items() if isinstance(token, int)}
    if len(values) != size or pieces.keys() != set(range(size)):
        raise DamagedError(f"{path}: does not number {size:,} pieces from 0 to {size - 1:,}, as config.json says")
    return [pieces[token] for token in range(size)]


def order_of(config: Marian, vocabulary: Sequence[str], directory: Path) -> list[int]:
    """Their id of each of ours: padding, unknown, start (padding again) and end, then the others in their order."""
    if "<unk>" not in vocabulary:
        raise DamagedError(f"{directory / VOCABULARY}: has no <unk>")
    marks = [config.pad_token_id, vocabulary.index("<unk>"), config.decoder_start_token_id, config.eos_token_id]
    if max(marks) >= len(vocabulary) or len({marks[0], marks[1], marks[3]}) < 3 or marks[2] != marks[0]:
        told = "pad_token_id, eos_token_id and decoder_start_token_id are not two pieces, the last the same as the first"
        raise DamagedError(f"{directory / CONFIG}: {told}")
    return marks + [token for token in range(len(vocabulary)) if token not in set(marks)]


def tokenizer_of(path: Path, pieces: Sequence[str]) -> MarianTokenizer:
    try:
        return MarianTokenizer(read_plain(path, LARGEST), pieces)
    except (RuntimeError, ValueError) as error:
        if isinstance(error, DamagedError):
            raise
        raise DamagedError(f"{path}: SentencePiece cannot read it: {str(error).rpartition('] ')[2]:.200}") from None


def read_weights(directory: Path) -> dict[str, Tensor]:
    path = directory / WEIGHTS
    if not path.exists() and (directory / PYTORCH).exists():
        raise UserError(
            f"{directory / PYTORCH}: such a file can run anything and is never loaded here; where you trust it, write "
            f"{WEIGHTS} with transformers: MarianMTModel.from_pretrained(DIRECTORY).save_pretrained(ANOTHER)"
        )
    read_header(path)
    return {name: tensor.float() for name, tensor in finite_weights(path).items()}


class Tensors:
    """Theirs by name; knows which nobody has asked for."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self.path, self.tensors, self.left = path, tensors, set(tensors)

    def __call__(self, *names: str) -> Tensor:
        """The first of these that is there; all are taken to be the same."""
        present = [name for name in names if name in self.tensors]
        if not present:
            raise DamagedError(f"{self.path}: has no {names[0]}")
        for name in present[1:]:
            if not self.tensors[name].equal(self.tensors[present[0]]):
                raise UserError(f"{self.path}: {name} is not {present[0]}, and one table of words for all is imported only")
        self.left -= set(present)
        return self.tensors[present[0]]

    def refuse_the_rest(self, config: Marian) -> None:
        """Positions may be kept too, though they are computed."""
        for name in sorted(self.left):
            if not name.endswith("embed_positions.weight"):
                raise UserError(f"{self.path}: {name:.80} is of no Marian model that is imported")
            table = self.tensors[name]
            known = SinusoidHalves(config.d_model).encode(torch.arange(len(table))[None])[0]
            if table.shape != known.shape or not torch.allclose(table, known, atol=1e-3):  # they may have been float16
                raise UserError(f"{self.path}: {name} are not Marian's sinusoids, and no others are imported")


def section_of(config: Marian) -> dict[str, Any]:
    """A recipe's `model` section for their config."""

    def side(layers: int, heads: int, inner: int) -> dict[str, Any]:
        return {
            "kind": "transformer", "hidden_size": config.d_model, "layers": layers, "feedforward_size": inner,
            "attention": {"heads": heads, "bias": True}, "feedforward": NETWORKS[config.activation_function],
            "positions": "sinusoid_halves", "dropout": config.dropout, "feedforward_dropout": config.activation_dropout,
        }  # fmt: skip

    encoder = side(config.encoder_layers, config.encoder_attention_heads, config.encoder_ffn_dim)
    decoder = side(config.decoder_layers, config.decoder_attention_heads, config.decoder_ffn_dim)
    # words are always scaled here: theirs that are not are divided first, and then differ from the output layer
    extra = {"cross_attention": decoder["attention"], "tied": config.scale_embedding, "output_bias": True}
    return {"kind": "sequence_to_sequence", "encoder": encoder, "decoder": {**decoder, **extra}, "share_embeddings": True}


def settings(config: Marian) -> dict[str, Any]:
    """Their search; and a training that goes on with care."""
    decoding = {
        "beam": config.num_beams, "max_length": config.max_length, "length_penalty": config.length_penalty, "max_ratio": 1000.0,
    }  # fmt: skip
    return {"decoding": decoding, "training": {"learning_rate": 2e-5, "warmup": 200, "weight_decay": 0.0}}


def weights(config: Marian, theirs: "Tensors", order: Sequence[int]) -> dict[str, Tensor]:
    """Our state_dict from theirs. Padding and the start mark, which are one token there, are never written."""
    words, bias = theirs(*WORDS), theirs("final_logits_bias").flatten()
    if len(words) != len(order) - 1 or len(bias) != len(words):
        raise DamagedError(
            f"{theirs.path}: {len(words):,} words and {len(bias):,} biases, not {len(order) - 1:,} as config.json says"
        )
    bias, scale = bias[order], 1.0 if config.scale_embedding else config.d_model**-0.5
    bias[[PAD, START]] = NEVER
    found = {"decoder.output.weight": words[order], "decoder.output.bias": bias}
    for side, layers, names in (("encoder", config.encoder_layers, LAYER), ("decoder", config.decoder_layers, LAYER | CROSS)):
        found[f"{side}.embed.weight"] = words[order] * scale
        for number in range(layers):
            for their, our in names.items():
                place, prefix = f"{side}.stack.layers.{number}.{our}", f"model.{side}.layers.{number}.{their}"
                found[f"{place}.weight"] = theirs(f"{prefix}.weight")
                found[f"{place}.{'offset' if our.endswith('norm') else 'bias'}"] = theirs(f"{prefix}.bias")
    return found
