"""Choices about the model and its training."""

import math

from regard.choices.case import Case, Values
from regard.choices.text import longest_tokens, round_up


def copying(case: Case) -> Values:
    """Where much of what is written stands in the source; of letters and other small symbols, only with few rows."""
    found, units = case.found, (case.unit("source"), case.unit("target"))
    overlap = {"words": found.copied_words, "names and signs": found.copied_names}.get(units[1], found.copied_letters)
    if units[0] != units[1] or overlap < 0.35 or (case.small_symbols and found.rows >= 3_000):
        return {}
    lessons: Values = {}  # what shows a model that copying is to be learned
    if case.small_symbols and found.rows <= FEW:
        lessons = {"training.made_up_stems": 0.66}
    elif units[1] == "names and signs":  # a smoothed truth asks for words of the vocabulary where names are to be copied
        lessons = {"training.unknown_words": 0.05, "training.label_smoothing": 0.0}
    return {"model.decoder.copy_words": "gated", **lessons}


FEW = 500  # rows; with made-up stems they are never the same, so they can be seen many more times


def recurrent(cell: str, embedding: int, hidden: int, layers: int, dropout: float) -> Values:
    encoder = {"kind": "recurrent", "cell": cell, "embedding_size": embedding, "hidden_size": hidden, "layers": layers}
    decoder = {
        "kind": "recurrent", "cell": cell, "embedding_size": embedding, "hidden_size": 2 * hidden, "layers": layers,
        "attention": {"score": "additive", "size": hidden}, "context": "into_cell", "tied": True,
    }  # fmt: skip
    return {"model.encoder": {**encoder, "dropout": dropout}, "model.decoder": {**decoder, "dropout": dropout}}


def transformer(size: int, inner: int, layers: int, heads: int, dropout: float) -> Values:
    stack = {
        "kind": "transformer", "hidden_size": size, "feedforward_size": inner, "layers": layers,
        "attention": {"heads": heads}, "dropout": dropout, "norm_place": "pre",
    }  # fmt: skip
    return {"model.encoder": stack, "model.decoder": {**stack, "cross_attention": {"heads": heads}}}


def shared_embeddings(case: Case) -> Values:
    """One table of words for both sides of a Transformer that has one vocabulary."""
    one = case.chosen.get("data.tokenizer", {}).get("shared")
    return {"model.share_embeddings": True} if one and is_transformer(case) else {}


def family(case: Case) -> Values:
    """The model, its size and its dropout."""
    rows, words = case.found.rows, case.epoch
    if case.small_symbols:
        if rows < (3_000 if case.machine.gpu else 10_000):
            return recurrent("gru", 64, 128, 1, 0.3)
        return recurrent("gru", 128, 256, 1, 0.3) if rows < 30_000 else recurrent("lstm", 256, 256, 2, 0.3)
    if case.machine.gpu and rows >= (100_000 if case.unit("target") == "names and signs" else 10_000):
        if words < 1_000_000:
            return transformer(256, 512, 4, 4, 0.3)
        return (
            transformer(256, 1024, 4, 4, 0.1)
            if words < 2_500_000
            else transformer(512, 1024 if words < 3e7 else 2048, 4, 8, 0.1)
        )
    return recurrent("gru", 128, 192, 1, 0.4) if rows < 10_000 else recurrent("gru", 256, 256, 1, 0.4)


def is_transformer(case: Case) -> bool:
    return bool(case.chosen["model.encoder"]["kind"] == "transformer")


def tell_family(case: Case) -> str:
    encoder = case.chosen["model.encoder"]
    if is_transformer(case):
        what = f"a Transformer of {encoder['layers']} layers of {encoder['hidden_size']}"
    else:
        layers = "" if encoder["layers"] == 1 else f"{encoder['layers']} layers of "
        cell = f"{layers}{encoder['cell'].upper()}, {encoder['hidden_size']} in each direction"
        what = f"a recurrent network with attention ({cell})"
    where = "a GPU is here" if case.machine.gpu else "no GPU is here"
    return f"{what}: {case.found.rows:,} rows, about {case.epoch:,.0f} tokens, {where}"


def made_up(case: Case) -> bool:
    return "training.made_up_stems" in case.chosen


def batches(case: Case) -> Values:
    """Some fifty updates an epoch where there are few rows; large batches where there is enough text."""
    much = is_transformer(case) and case.epoch > 1_000_000
    most = 16384 if case.machine.gpu and case.epoch > 2_500_000 else 8192 if much else 4096
    most = 256 if few_at_a_time(case) else most
    longest = max(longest_tokens(case, name) for name in case.found.columns)
    size = min(max(512 if made_up(case) else 256, 2 ** round(math.log2(max(case.epoch / 60, 1)))), most)
    return {"data.batch_tokens": max(size, round_up(2 * longest) if longest > size / 2 else size)}


def few_at_a_time(case: Case) -> bool:
    """A core computes many small updates of letters in the time of a large one, and learns more from them."""
    return case.small_symbols and not case.machine.gpu


def schedule(case: Case) -> Values:
    """Passes over the data until a small model has learned it; fewer for more rows."""
    epochs = next(number for most, number in EPOCHS if case.found.rows <= most)
    per_epoch = max(1.15 * case.epoch / case.chosen["data.batch_tokens"], 1)
    least = 2_000 if made_up(case) else 4_000 if is_transformer(case) else 500
    most = 100_000 if case.machine.gpu else 8_000 if few_at_a_time(case) else 20_000
    updates = round_up(min(max(epochs * per_epoch, least), most))
    hidden = case.chosen["model.encoder"].get("hidden_size", 512)
    every = max(updates // 16, 25)
    return {
        "training.updates": updates,
        "training.warmup": max(updates // 10, 20),
        "training.learning_rate": 0.001 if hidden >= 512 else 0.003 if hidden <= 128 else 0.002,
        "training.validate_every": every,
        "training.validate_first": max(every // 4, 10),
        "training.save_every": every,
        "training.log_every": min(max(updates // 100, 5), 50),
        "training.average": 3,
        "training.patience": None if made_up(case) else 6,  # what few rows say is noise
        "training.schedule": "cosine",
    }


EPOCHS = [(200, 120), (2_000, 60), (20_000, 40), (200_000, 20), (math.inf, 10)]


def precision(case: Case) -> Values:
    return {"training.precision": "bfloat16"} if case.machine.gpu and is_transformer(case) else {}
