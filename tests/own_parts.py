"""Made-up entries for tests: the tables of the house, put back afterwards as they were."""

from contextlib import contextmanager
from importlib import import_module

from regard import imports

# every table that ARCHITECTURE.md says to add a line to, by where it stands
TABLES = {
    "CELLS": "regard.nn.recurrent.cells",
    "CONNECTIONS": "regard.nn.recurrent.connections",
    "SCORES": "regard.nn.attention.scores",
    "SCOPES": "regard.nn.attention.scopes",
    "SELECTIONS": "regard.nn.attention.selections",
    "POSITIONS": "regard.nn.positions",
    "NORMS": "regard.nn.transformer.norms",
    "FEEDFORWARDS": "regard.nn.transformer.feedforward",
    "MODELS": "regard.models",
    "FIELDS": "regard.data.fields",
    "INPUTS": "regard.models.inputs",
    "FITS": "regard.data.pictures",
    "AUGMENTATIONS": "regard.data.augment",
    "POOLINGS": "regard.nn.pooling",
    "SPELLINGS": "regard.nn.spelling",
    "BODIES": "regard.models.language_model",
    "COPIES": "regard.nn.copying",
    "PENALTIES": "regard.models.penalties",
    "ACTIVATIONS": "regard.models.penalties",
    "SYMMETRISATIONS": "regard.data.symmetrise",
    "CONTEXTS": "regard.models.decoders.context",
    "ENCODERS": "regard.models.encoders",
    "DECODERS": "regard.models.decoders",
    "TOKENIZERS": "regard.data.tokenizers",
    "READERS": "regard.data.readers",
    "CORPORA": "regard.corpora",
    "SCHEDULES": "regard.training.schedules",
    "METRICS": "regard.evaluation.metrics",
    "SOURCES": "regard.evaluation.evaluate",
    "RISKS": "regard.training.expected",
    "SEARCHES": "regard.evaluation.candidates",
    "NORMALISATIONS": "regard.decoding.ranking",
    "STOPS": "regard.decoding.ranking",
    "CACHES": "regard.decoding.searching",
    "RULES": "regard.decoding.rules",
    "EXPORTS": "regard.exchange",
    "IMPORTS": "regard.exchange",
    "FORMATS": "regard.insight.figure",
    "TASKS": "regard.lab.tasks",
    "SPACE": "regard.tuning.space",
    "PRECISIONS": "regard.engine.products",
    "FUSED": "regard.engine.recurrent",
    "ENGINES": "regard.decoding.engines",
    "STORED": "regard.models.rounded",
    "TRACKED": "regard.lab.neurons",
    "CASES": "regard.lab.complexity",
}
# of paths there are two families of this name
PATHS = {"scan": "regard.nn.recurrent.scan", "attention": "regard.nn.attention.attend"}


def every_table():
    """The dictionaries themselves."""
    yield imports.GIVEN
    for name, module in TABLES.items():
        yield getattr(import_module(module), name)
    for module in PATHS.values():
        yield from (getattr(import_module(module), name) for name in ("PATHS", "APPLIES", "FASTEST"))


@contextmanager
def as_in_a_new_process():
    """What is imported inside is forgotten afterwards."""
    tables = [(table, dict(table)) for table in every_table()]
    try:
        yield
    finally:
        for table, before in tables:
            table.clear()
            table.update(before)
