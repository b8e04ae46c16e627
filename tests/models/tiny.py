"""Small models of every kind the tables allow."""

import itertools

import pytest
import torch

from regard.models import build, configure
from regard.models.decoders.context import CONTEXTS
from regard.nn.attention import SCOPES, SCORES, SELECTIONS
from regard.nn.recurrent.cells import CELLS

VOCABULARY = 9
END, START = 3, 2


def settings():
    """Every score and cell in every use of the context, all scopes with all selections, all scores with heads and coverage."""
    attending = [context for context in CONTEXTS if context != "none"]
    usual = [context for context in attending if context != "to_all_layers"]  # which test_deep.py has with every cell
    for cell, score, context in itertools.product(["tanh", "lstm", "gru"], SCORES, usual):
        yield f"{cell}-{score}-{context}", {"cell": cell, "attention": {"score": score}, "context": context}
    for cell, context in itertools.product(CELLS, usual):
        yield f"{cell}-additive-{context}", {"cell": cell, "attention": {"score": "additive"}, "context": context}
    turns = itertools.cycle(usual)  # all three for every scope and every selection, one for each pair of them
    for (scope, selection), context in zip(itertools.product(SCOPES, SELECTIONS), turns, strict=False):
        options = {"score": "general", "scope": scope, "selection": selection, "window": 2}
        yield f"gru-{scope}-{selection}-{context}", {"cell": "gru", "attention": options, "context": context}
    for score, context in itertools.product(SCORES, usual):
        options = {"score": score, "heads": 2, "values": 6, "coverage": True}
        yield f"gru-{score}-heads-coverage-{context}", {"cell": "gru", "attention": options, "context": context}
    for cell in CELLS:
        yield f"{cell}-none", {"cell": cell, "attention": None, "context": "none"}


SETTINGS = dict(settings())
FEW = {
    name: SETTINGS[name]
    for name in ("gru-additive-into_cell", "lstm-general-input_feeding", "tanh-dot-after_cell", "lstm-none")
}


def in_time():
    """What `make test` takes of these: every entry of every table, with one use of the context each, in turn."""
    uses = itertools.cycle(context for context in CONTEXTS if context not in ("none", "to_all_layers"))
    yield from FEW
    yield from (f"gru-{score}-{context}" for score, context in zip(SCORES, uses, strict=False))
    yield from (f"{cell}-additive-{context}" for cell, context in zip(CELLS, uses, strict=False))
    yield from (f"gru-{score}-heads-coverage-{context}" for score, context in zip(SCORES, uses, strict=False))
    yield from (name for name, options in SETTINGS.items() if not options["attention"] or "scope" in options["attention"])


SOON = frozenset(in_time())
LAWS = [name if name in SOON else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS]


def tiny(decoder, layers=2, vocabulary=VOCABULARY, scale=1.0, **encoder):
    config = configure(
        {
            "encoder": {"cell": decoder["cell"], "embedding_size": 5, "hidden_size": 4, "layers": layers, **encoder},
            "decoder": {"embedding_size": 5, "hidden_size": 8, "layers": layers, **decoder},
        }
    )
    model = build(config, vocabulary, vocabulary).eval()
    for parameter in model.parameters():
        parameter.data.mul_(scale)
    return model


def batch(*rows):
    """Rows of source tokens, padded."""
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True), torch.tensor([len(row) for row in rows])
