"""Small recurrent language models that read the source and go on with the target."""

from regard.nn.recurrent.cells import CELLS

SIZES = {"kind": "recurrent_alone", "embedding_size": 5, "hidden_size": 6}
KINDS = {name: {**SIZES, "cell": name, "layers": 2} for name in ("lstm", "gru", "lstm_tape") if name in CELLS}
KINDS["tied-locked"] = {**SIZES, "cell": "tanh", "tied": True, "locked": True, "dropout": 0.3, "weight_drop": 0.2}
