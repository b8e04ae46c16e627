"""A handful of rows for each task, written to files, and a recipe that learns them by heart."""

import numpy as np

WORDS = ["a", "b", "c", "d"]
ROWS = [["a", "b", "c"], ["c"], ["d", "a"], ["b", "b", "d", "a"], ["c", "d", "c"], ["a"], ["b", "d"], ["d", "c", "b", "a", "a"]]
TRAINING = {"updates": 60, "learning_rate": 0.03, "warmup": 5, "schedule": "constant", "label_smoothing": 0.0, "clip": 5.0,
            "validate_every": 30, "save_every": 10, "log_every": 10}  # fmt: skip
RECURRENT = {"kind": "recurrent", "embedding_size": 12, "hidden_size": 12}
STACK = {
    "kind": "transformer",
    "hidden_size": 16,
    "feedforward_size": 24,
    "layers": 1,
    "attention": {"heads": 2},
    "dropout": 0.0,
}
DECODER = {**RECURRENT, "hidden_size": 24, "dropout": 0.0, "attention": {"score": "additive", "size": 12}}
MODELS = {
    "tagger": {"kind": "tagger", "encoder": RECURRENT},
    "classifier": {"kind": "classifier", "encoder": RECURRENT, "pooling": "max"},
    "recurrent_texts": {"kind": "language_model", "decoder": {**RECURRENT, "hidden_size": 24}},
    "transformer_texts": {"kind": "language_model", "decoder": {**STACK, "positions": "learned", "longest": 12}},
    "long_texts": {"kind": "language_model", "window": 3, "decoder": {**RECURRENT, "hidden_size": 24, "layers": 2}},
    "window_texts": {"kind": "language_model", "window": 14, "decoder": {**STACK, "positions": "learned", "longest": 16}},
    "vectors": {"encoder": RECURRENT, "decoder": DECODER},
    "image": {"encoder": {**STACK, "input": {"kind": "patches", "side": 2}}, "decoder": DECODER},
    "regions": {
        "encoder": {
            "kind": "identity",
            "embedding_size": 16,
            "input": {"kind": "convolutions", "channels": [16], "strides": [[2, 1]], "norm": "batch"},
        },
        "decoder": {**DECODER, "context": "gated"},
    },
}
FIELDS = {
    "vectors": {"source": {"kind": "vectors"}},
    "image": {"source": {"kind": "image"}},
    "regions": {"source": {"kind": "image"}},
}
CHANGES = {"regions": {"augment": {"shift": 1, "noise": 0.01, "brightness": 0.02}}}


def texts(rows=ROWS):
    return [" ".join(row) for row in rows]


def tags(rows=ROWS):
    """Vowels are told from consonants, and a consonant after another one from the rest."""
    before = [[None, *row] for row in rows]
    return [
        " ".join("V" if word == "a" else "C2" if last not in (None, "a") else "C" for last, word in zip(one, row, strict=False))
        for one, row in zip(before, rows, strict=True)
    ]


def labels(rows=ROWS):
    return ["with a" if "a" in row else "without" for row in rows]


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write(folder, task, rows=ROWS):
    """The files of a task, by column."""
    if task == "tagger":
        columns = {"source": texts(rows), "tags": tags(rows)}
    elif task == "classifier":
        columns = {"source": texts(rows), "label": labels(rows)}
    elif task.endswith("texts"):
        columns = {"target": texts(rows)}
    else:
        arrays = map(vectors if task == "vectors" else image, rows)
        columns = {"source": [f"{row}.npy" for row in range(len(rows))], "target": texts(rows)}
        for name, array in zip(columns["source"], arrays, strict=True):
            np.save(folder / name, array)
    return {name: write_lines(folder / f"{name}.txt", lines) for name, lines in columns.items()}


def vectors(row):
    return np.eye(len(WORDS), dtype=np.float32)[[WORDS.index(word) for word in row]]


def image(row):
    """[4, 6]: a column of pixels for each word, as bright as the word comes late."""
    picture = np.zeros((4, 6), np.uint8)
    for place, word in enumerate(row):
        picture[:, place] = 60 * (1 + WORDS.index(word))
    return picture


def pairs(files):
    usual = {name: str(path) for name, path in files.items() if name in ("source", "target")}
    others = {name: str(path) for name, path in files.items() if name not in usual}
    return {**usual, **({"columns": others} if others else {})}


def recipe(task, files, **training):
    data = {"train": pairs(files), "valid": pairs(files), "test": {"same": pairs(files)}, "tokenizer": {"kind": "word"}}
    data |= {"batch_tokens": 6 if task == "long_texts" else 64, "fields": FIELDS.get(task, {})}
    return {
        "data": data,
        "model": MODELS[task],
        "training": {**TRAINING, **CHANGES.get(task, {}), **training},
        "decoding": {"beam": 1},
    }
