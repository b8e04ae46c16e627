"""Hugging Face Marian's weights by our names."""

import torch

ATTENTION = {"q_proj": "score.project_query", "k_proj": "score.project_key", "v_proj": "project_value"}
OWN = {
    **{f"self_attn.{theirs}": f"self_attention.attention.{ours}" for theirs, ours in ATTENTION.items()},
    "self_attn.out_proj": "self_output",
    "self_attn_layer_norm": "after_self.norm",
    "fc1": "feedforward.up",
    "fc2": "feedforward.down",
    "final_layer_norm": "after_feedforward.norm",
}
CROSS = {
    **{f"encoder_attn.{theirs}": f"cross.{ours}" for theirs, ours in ATTENTION.items()},
    "encoder_attn.out_proj": "cross_output",
    "encoder_attn_layer_norm": "after_cross.norm",
}
NETWORKS = {"relu": "relu", "gelu": "gelu", "swish": "swiglu"}


def section(config):
    """A recipe's `model` section for their config."""

    def side(layers, heads, inner):
        attention = {"heads": heads, "bias": True}
        return {
            "kind": "transformer", "hidden_size": config.d_model, "layers": layers, "feedforward_size": inner,
            "attention": attention,
            "feedforward": NETWORKS[config.activation_function], "positions": "learned",
            "longest": config.max_position_embeddings, "dropout": config.dropout,
        }  # fmt: skip

    encoder = side(config.encoder_layers, config.encoder_attention_heads, config.encoder_ffn_dim)
    decoder = side(config.decoder_layers, config.decoder_attention_heads, config.decoder_ffn_dim)
    # words are always scaled here: theirs that are not are divided first, and then differ from the output layer
    extra = {"cross_attention": decoder["attention"], "tied": config.scale_embedding, "output_bias": True}
    return {"encoder": encoder, "decoder": {**decoder, **extra}, "share_embeddings": True}


def layer(theirs, prefix, names, swish):
    """One layer's tensors; a norm's `bias` is our `offset`, and swish is SwiGLU with a gate of 1."""
    found = {}
    for their, our in names.items():
        found[f"{our}.weight"] = theirs[f"{prefix}.{their}.weight"]
        found[f"{our}.{'offset' if 'norm' in our else 'bias'}"] = theirs[f"{prefix}.{their}.bias"]
    if swish:
        weight, bias = found["feedforward.up.weight"], found["feedforward.up.bias"]
        found["feedforward.up.weight"] = torch.cat([weight, torch.zeros_like(weight)])
        found["feedforward.up.bias"] = torch.cat([bias, torch.ones_like(bias)])
    return found


def weights(config, theirs):
    """Our state_dict from theirs."""
    swish, found = config.activation_function == "swish", {}
    scale = 1.0 if config.scale_embedding else config.d_model**-0.5
    for side, layers, names in (("encoder", config.encoder_layers, OWN), ("decoder", config.decoder_layers, OWN | CROSS)):
        found[f"{side}.embed.weight"] = theirs["model.shared.weight"] * scale
        found[f"{side}.stack.positions.vectors"] = theirs[f"model.{side}.embed_positions.weight"]
        for number in range(layers):
            for name, tensor in layer(theirs, f"model.{side}.layers.{number}", names, swish).items():
                found[f"{side}.stack.layers.{number}.{name}"] = tensor
    found["decoder.output.weight"] = theirs["lm_head.weight"]
    found["decoder.output.bias"] = theirs["final_logits_bias"][0]
    return found
