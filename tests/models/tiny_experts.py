"""Small recurrent systems with experts between their layers: scanned at once, step by step, and both."""

EXPERTS = {"num_experts": 3, "top_k": 2, "feedforward_size": 6}


def section(encoder, decoder, cell="lstm", layers=2, **experts):
    sizes = {"cell": cell, "embedding_size": 4, "hidden_size": 4, "layers": layers, "experts": {**EXPERTS, **experts}}
    return {"encoder": {**sizes, **encoder}, "decoder": {**sizes, "start_from": "zero", **decoder}}


RESIDUAL = {"connections": "residual", "connect_top": True}
COLUMNS = {"bidirectional": "interleaved", "connections": "fast_forward_half", "memory_size": 6}

KINDS = {
    "shazeer": section({"bidirectional": "first", "layers": 3, **RESIDUAL}, {"asks": "lowest", **RESIDUAL}),
    "feeding": section({"reverse": True}, {"context": "input_feeding"}),
    "after-cell": section(COLUMNS, {"context": "after_cell"}, layers=3, under=2, sigmoid=False, feedforward="swiglu"),
    "all-layers": section({}, {"context": "to_all_layers", "asks": "lowest"}, "gru", layers=3, noise=False),
    "no-attention": section({}, {"context": "none", "attention": None, "start_from": "projected"}, number=5),
}
