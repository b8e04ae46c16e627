"""Small deep recurrent systems: GNMT's and Deep-Att's wiring, and what their options combine to."""


def section(encoder, decoder, cell="lstm", layers=2):
    return {
        "encoder": {"cell": cell, "embedding_size": 4, "hidden_size": 4, "layers": layers, **encoder},
        "decoder": {"cell": cell, "embedding_size": 4, "hidden_size": 4, "layers": layers, "asks": "lowest", **decoder},
    }


THIRD = {"connections": "residual", "connect_from": 3, "connect_top": True}
FORWARD = {"connections": "fast_forward_half", "connect_top": True}
COLUMNS = {"bidirectional": "interleaved", "memory_size": 6, **FORWARD}
ALL_LAYERS = {"context": "to_all_layers", "start_from": "zero"}
HANDED = {"start_from": "encoder"}
ATTENDS = {"connections": "self_attention", "connect_top": True}
HEADS = {"self_attention": {"score": "projected", "size": 4, "heads": 2, "values": 6}}
BLOCKS = {"self_attention": {"score": "location", "scope": "compressed", "window": 2}}
BLIND = {"attention": None, "context": "none"}

KINDS = {
    "gnmt": section({"bidirectional": "first", **THIRD}, {**ALL_LAYERS, **THIRD}, layers=3),
    "gnmt-top-asks": section({"bidirectional": "first", **THIRD}, {**ALL_LAYERS, **THIRD, "asks": "top"}, "gru", 3),
    "deepatt": section(COLUMNS, {**FORWARD, "start_from": "zero"}, layers=3),
    "deepatt-norm": section({**COLUMNS, "layer_norm": True}, {**FORWARD, "context": "after_cell", "layer_norm": True}),
    "deepatt-feeding": section(COLUMNS, {**FORWARD, "context": "input_feeding"}, "lstm_tape"),
    "attends": section(ATTENDS, {**ATTENDS, "context": "input_feeding"}),
    "attends-heads": section({**ATTENDS, **HEADS, "bidirectional": "interleaved"}, {**ATTENDS, **HEADS}, "gru", 3),
    "attends-blocks": section({**ATTENDS, **BLOCKS, "bidirectional": "first"}, {**ATTENDS, **BLOCKS, "context": "after_cell"}),
    "attends-all-layers": section(
        {**ATTENDS, "reverse": True, "bidirectional": False}, {**ATTENDS, **ALL_LAYERS, "asks": "top"}
    ),
    "attends-tape": section({**ATTENDS, "connect_from": 2}, {**ATTENDS, "connect_from": 2}, "lstm_tape", 3),
    "handed-over": section({"bidirectional": False, "reverse": True}, {**HANDED, **BLIND}),
    "handed-over-both-ways": section({"hidden_size": 2}, {**HANDED, "context": "input_feeding"}, layers=3),
    "handed-over-columns": section({"bidirectional": "interleaved", "hidden_size": 2}, HANDED, "gru_cho", 3),
}
