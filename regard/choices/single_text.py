"""Choices for one text alone: a language model of its characters, as large as the machine and the text allow."""

from regard.choices.case import Case, Values
from regard.choices.rules import BAD_ROWS, Rule

WINDOW, LANES = 64, 16  # of a CPU
EPOCHS, LEAST, MOST = 8, 300, 3_000  # updates of a CPU


def body(case: Case) -> Values:
    """The recipe is for a GPU."""
    if case.machine.gpu:
        return {}
    sizes = {"embedding_size": 48, "hidden_size": 192, "layers": 1, "weight_drop": 0.1, "dropout": 0.1, "output_dropout": 0.1}
    return {
        "data.batch_tokens": WINDOW * LANES,
        "model.window": WINDOW,
        **{f"model.decoder.{key}": value for key, value in sizes.items()},
    }


def tell_body(case: Case) -> str:
    return f"one LSTM layer of 192, updates of {WINDOW * LANES:,} characters: no GPU is here"


def schedule(case: Case) -> Values:
    smoothing: Values = {"training.label_smoothing": 0.0}  # bits per character are those of the characters as they are
    if case.machine.gpu:
        return smoothing
    updates = max(LEAST, min(MOST, EPOCHS * case.found.letters // (WINDOW * LANES)))
    quarter = updates // 4
    counts = {"updates": updates, "warmup": updates // 20, "log_every": max(updates // 20, 1)}
    counts |= {"validate_every": quarter, "save_every": quarter}
    numbers = {f"training.{key}": value for key, value in counts.items()}
    return {**smoothing, **numbers, "training.learning_rate": 0.005, "training.precision": "float32"}


def tell_schedule(case: Case) -> str:
    return "the recipe characters, for a GPU is here" if case.machine.gpu else f"{case.found.letters:,} characters"


# In this order: what stands below may look at what was chosen above
TEXT_CHOICES: dict[str, Rule] = {
    "bad rows": BAD_ROWS,
    "model": Rule(body, tell_body, "tinyshakespeare, H200, the recipe as it is: 2.02 bits per character"),
    "schedule": Rule(
        schedule, tell_schedule, "eight passes over a text of less than 384,000 characters, 3,000 updates at most"
    ),
}
