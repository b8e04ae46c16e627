"""ConvS2S and ByteNet, small."""

SIZES = {"embedding_size": 6, "hidden_size": 8, "longest": 16}
MIXED = {
    **SIZES,
    "layers": [{"hidden_size": 4, "times": 2}, {"hidden_size": 8, "width": 1}, {"hidden_size": 6, "width": 2}],
    "weight_norm": True,
}
BYTENET = {"kind": "bytenet", "embedding_size": 5, "hidden_size": 4, "dilations": [1, 2], "sets": 2}


def convolutional(encoder, decoder):
    return {"encoder": {"kind": "convolutional", **encoder}, "decoder": {"kind": "convolutional", **decoder}}


KINDS = {
    "convs2s": convolutional({**SIZES, "layers": 2}, {**SIZES, "layers": 3, "dropout": 0.2}),
    "convs2s-mixed": convolutional(MIXED, {**MIXED, "tied": True}),
    "convs2s-sinusoid": convolutional(
        {**SIZES, "layers": 1, "positions": "sinusoid"}, {**SIZES, "layers": 1, "positions": "none", "width": 4}
    ),
    "convolutions-read-by-a-gru": {
        "encoder": {"kind": "convolutional", **SIZES, "layers": 2},
        "decoder": {"kind": "recurrent", "embedding_size": 5, "hidden_size": 6},
    },
    "bytenet": {"encoder": BYTENET, "decoder": {**BYTENET, "dropout": 0.2}},
    "bytenet-tied": {"encoder": {**BYTENET, "stretch": 1.0, "extra": 3, "width": 5}, "decoder": {**BYTENET, "tied": True}},
}
