"""Small trained models, shared by all tests of the command line."""

import random
import shutil

import pytest
from calling import regard

TINY = [
    "data.tokenizer.kind=word", "data.batch_tokens=256", "training.updates=4", "model.encoder.embedding_size=8",
    "model.encoder.hidden_size=8", "model.decoder.embedding_size=8", "model.decoder.hidden_size=8",
    "model.encoder.dropout=0", "model.decoder.dropout=0",
]  # fmt: skip
RECIPE = """
about: Words into capitals, in the order they come
data:
  train: {{source: {0}/train.source, target: {0}/train.target}}
  valid: {{source: {0}/short.source, target: {0}/short.target}}
  test:
    short: {{source: {0}/short.source, target: {0}/short.target, alignment: {0}/short.align}}
    long: {{source: {0}/long.source, target: {0}/long.target}}
  tokenizer: {{kind: word}}
  batch_tokens: 400
model:
  encoder: {{cell: gru, embedding_size: 24, hidden_size: 24, dropout: 0}}
  decoder: {{cell: gru, embedding_size: 24, hidden_size: 32, attention: {{score: additive, size: 24}}, dropout: 0}}
training: {{updates: 120, learning_rate: 0.02, warmup: 10, schedule: cosine, validate_every: 120, label_smoothing: 0.0}}
"""
WORDS = ["amicus", "bellum", "canis", "domus", "equus", "fīnis", "gladius", "hortus", "insula", "liber"]


def sentences(seed, count, longest):
    chance = random.Random(seed)
    return [chance.choices(WORDS, k=chance.randint(1, longest)) for _ in range(count)]


def write_pairs(folder, name, rows):
    texts = [" ".join(row) for row in rows]
    write_lines(folder / f"{name}.source", texts)
    write_lines(folder / f"{name}.target", map(str.upper, texts))
    write_lines(folder / f"{name}.align", (" ".join(f"{i}-{i}" for i in range(len(row))) for row in rows))


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Files NAME.source, NAME.target and NAME.align for train (400 rows), short (40) and long (20)."""
    folder = tmp_path_factory.mktemp("corpus")
    for seed, (name, count, longest) in enumerate([("train", 400, 7), ("short", 40, 7), ("long", 20, 25)]):
        write_pairs(folder, name, sentences(seed, count, longest))
    (folder / "capitals.yaml").write_text(RECIPE.format(folder))
    return folder


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory):
    """A run whose model does what it should, most of the time. Not to be written to."""
    folder = tmp_path_factory.mktemp("runs") / "capitals"
    assert regard("train", corpus / "capitals.yaml", "--run", folder, "--quiet") == (0, "", "")
    return folder


@pytest.fixture(scope="session")
def blind(corpus, tmp_path_factory):
    """A run of a model without attention."""
    folder = tmp_path_factory.mktemp("runs") / "blind"
    files = ["--source", corpus / "train.source", "--target", corpus / "train.target"]
    valid = ["--valid-source", corpus / "short.source", "--valid-target", corpus / "short.target"]
    assert regard("train", "sutskever2014-small", *files, *valid, "--run", folder, "--quiet", *TINY) == (0, "", "")
    return folder


@pytest.fixture
def own(trained, tmp_path):
    """A copy of the run, to be spoilt."""
    return shutil.copytree(trained, tmp_path / "own")
