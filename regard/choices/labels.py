"""Choices for models that label."""

import math

from regard.choices.case import Case, Values
from regard.choices.rules import BAD_ROWS, Rule
from regard.choices.text import round_up, spelled, strand
from regard.data.remarks import MOST

NEW_WORDS = 0.01  # the share of words in unseen rows that are new, from which on characters are read too
UNKNOWN = 0.3  # the same, from which on a short text is read by its characters alone


def words(case: Case) -> Values:
    """One token for each word that has a tag, with its characters where new words come; the letters of short texts."""
    source = case.found.source
    if "data.tokenizer" in case.chosen:
        return {}  # the user's own
    size = min(2 * source.vocabulary + 100, 50_000)
    if tags(case):
        kind = {"data.fields.source": {"kind": "spelled"}} if source.new_words > NEW_WORDS else {}
        return {"data.tokenizer": {"kind": "word", "size": size}, **kind}
    if (spelled(source) and source.new_words > UNKNOWN) or strand(source):
        return {"data.tokenizer": {"kind": "character", "size": 2 * source.alphabet + 100}}
    if source.unspaced > 0.3:
        return {"data.tokenizer": {"kind": "bpe", "size": max(4_000, 2 * source.alphabet + 300)}}
    return {"data.tokenizer": {"kind": "word", "size": size, "lowercase": True}}


def tags(case: Case) -> bool:
    return bool(case.chosen["model.kind"] == "tagger")


def tell_words(case: Case) -> str:
    source = case.found.source
    kind = case.chosen["data.tokenizer"]["kind"]
    beside = " and their characters" if "data.fields.source" in case.chosen else ""
    return f"{kind}s{beside}: {source.vocabulary:,} different words, {source.new_words:.1%} new in rows not seen"


def body(case: Case) -> Values:
    """An LSTM from both sides; its size by the rows, and larger only where there is a GPU."""
    rows = case.found.rows
    size = 64 if rows < 1_000 else 128 if rows < 5_000 or not case.machine.gpu else 256
    encoder = {"kind": "recurrent", "cell": "lstm", "embedding_size": size, "hidden_size": size, "dropout": 0.4}
    if "data.fields.source" in case.chosen:
        encoder["input"] = {"kind": "characters", "size": size // 2, "character_size": 32}
    pooling = {} if tags(case) else {"model.pooling": "attention"}
    return {"model.encoder": encoder, **pooling, "model.dropout": 0.4}


def tell_body(case: Case) -> str:
    size = case.chosen["model.encoder"]["hidden_size"]
    read = "a tag for each word" if tags(case) else "a learned query reads its states"
    where = "a GPU is here" if case.machine.gpu else "no GPU is here"
    return f"an LSTM from both sides, {size} in each, and {read}: {case.found.rows:,} rows, {where}"


def label_batches(case: Case) -> Values:
    """Some fifty updates an epoch where there are few rows."""
    longest = case.found.source.characters.longest if case.unit("source") == "characters" else case.found.source.words.longest
    size = min(max(256, 2 ** round(math.log2(max(label_epoch(case) / 60, 1)))), 2048)
    return {"data.batch_tokens": max(size, round_up(2 * longest)), "data.max_length": max(512, round_up(1.5 * longest))}


def label_epoch(case: Case) -> float:
    return case.found.rows * case.tokens("source")


def label_schedule(case: Case) -> Values:
    """Passes over the rows until a small model has learned them; fewer for more rows."""
    epochs = next(number for most, number in EPOCHS if case.found.rows <= most)
    per_epoch = max(1.15 * label_epoch(case) / case.chosen["data.batch_tokens"], 1)
    updates = round_up(min(max(epochs * per_epoch, 300), 40_000 if case.machine.gpu else 6_000))
    every = max(updates // 16, 20)
    return {
        "training.updates": updates,
        "training.warmup": max(updates // 20, 20),
        "training.learning_rate": 0.003 if case.found.rows < 1_000 else 0.002,
        "training.validate_every": every,
        "training.save_every": every,
        "training.log_every": min(max(updates // 100, 5), 50),
        "training.patience": 6,
    }


EPOCHS = [(1_000, 40), (20_000, 15), (200_000, 8), (math.inf, 4)]


def label_metric(case: Case) -> Values:
    """One that moves where nearly all rows have one label."""
    rare = not tags(case) and case.found.target.commonest > MOST
    return {"training.validate_by": "macro_f1"} if rare else {}


# In this order: what stands below may look at what was chosen above
LABEL_CHOICES: dict[str, Rule] = {
    "bad rows": BAD_ROWS,
    "tokenizer": Rule(
        words, tell_words,
        "UD English EWT: 5.4 % of the words of rows not seen are new, and their endings tell their tags; mpqa, phrases of "
        "three words, 600 updates of 512 tokens, one run each: words 84.9, characters 71.1 % right of rows held out",
    ),
    "model": Rule(
        body, tell_body,
        "phrases of SST, one run each, SST-2 test: LSTM of 128 with attention 82.0 after 525 updates, bag 84.0 after 1,200",
    ),
    "batch": Rule(
        label_batches, lambda case: f"about {label_epoch(case) / case.chosen['data.batch_tokens']:,.0f} updates per epoch",
        "as for pairs: multi30k de-en 41.9 BLEU with 4,000 updates of 4,096 tokens, 37.6 with 1,520 of 8,192",
    ),
    "schedule": Rule(
        label_schedule, lambda case: "it stops earlier when six validations bring nothing better",
        "trec6, one thread, one run stopped at update 594 of 1,040: test accuracy 87.6 with the best weights, of update 325",
    ),
    "metric": Rule(
        label_metric,
        lambda case: f"{case.found.target.commonest:.0%} of the rows have one label, and accuracy counts hardly anything else",
        "1,350 generated messages, 96 % of one label, one run of a minute: accuracy 96.0 and macro F1 49.0 at the first five "
        "validations, 98.7 and 89.7 at the last",
    ),
}  # fmt: skip
