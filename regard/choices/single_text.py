"""A recipe for one text alone: a language model of its characters, as large as the machine and the text allow."""

from pathlib import Path
from typing import Any

from regard.choices.case import Machine
from regard.data.readers import read_rows
from regard.recipe import Pairs, parse, read_values

BASE = "characters"  # for a GPU
WINDOW, LANES = 64, 16  # of a CPU
EPOCHS, LEAST, MOST = 8, 300, 3_000  # updates of a CPU


def choose_for_text(files: dict[str, Any], machine: Machine) -> tuple[dict[str, Any], list[str]]:
    """The recipe's values, and what to say of them."""
    lines = characters = 0
    for rows in read_rows(parse(Pairs, files, "data.train")):
        lines, characters = lines + len(rows.lines), characters + sum(len(text) + 1 for text in rows.columns["target"])
    values = read_values(BASE)
    values["about"] = f"Chosen from the data: one text of {characters:,} characters"
    name = Path(next(iter(files.values()))).name
    told = [f"one text alone ({name}: {lines:,} lines, {characters:,} characters): a language model of its characters"]
    if machine.gpu:
        return values, [*told, f"the recipe {BASE}: a GPU is here"]
    updates = max(LEAST, min(MOST, EPOCHS * characters // (WINDOW * LANES)))
    sizes = {"embedding_size": 48, "hidden_size": 192, "layers": 1, "weight_drop": 0.1, "dropout": 0.1, "output_dropout": 0.1}
    values["data"]["batch_tokens"] = WINDOW * LANES
    values["model"] |= {"window": WINDOW, "decoder": {**values["model"]["decoder"], **sizes}}
    values["training"] |= {
        "updates": updates,
        "precision": "float32",
        "warmup": updates // 20,
        "log_every": max(updates // 20, 1),
    }
    values["training"] |= {"learning_rate": 0.005, "validate_every": updates // 4, "save_every": updates // 4}
    return values, [*told, f"one LSTM layer of 192, {updates:,} updates of {WINDOW * LANES:,} characters: no GPU is here"]
