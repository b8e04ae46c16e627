"""Law 8: every recipe loads, builds, overfits a handful of pairs, saves, loads back and decodes the same."""

import pytest
import torch

import regard
from regard import run
from regard.corpora import CORPORA
from regard.corpora.corpus import generate
from regard.models import build, configure
from regard.models.interface import Copies
from regard.recipe import Recipe, built_in, override, parse, read_values

SMALL = [
    "data.batch_tokens=256", "data.tokenizer.kind=word", "data.tokenizer.size=500", "training.updates=150",
    "training.schedule=cosine", "training.learning_rate=0.02", "training.warmup=10", "training.validate_every=150",
    "training.save_every=150", "training.label_smoothing=0", "model.encoder.dropout=0", "model.decoder.dropout=0",
    "model.encoder.embedding_size=24", "model.decoder.embedding_size=24",
]  # fmt: skip

SLOW = {"sutskever2014": (400, 0.005), "latin-lstm-tape": (250, 0.008)}  # no attention to the source, or two kinds to learn


def longer(updates, rate):
    counts = [f"training.{name}={updates}" for name in ("updates", "validate_every", "save_every")]
    return [*counts, f"training.learning_rate={rate}"]


@pytest.fixture(scope="module")
def handful(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pairs = [pair for pair in generate(CORPORA["latin"], seed=1, size=60)["train"] if len(pair.source.split()) < 8][:5]
    (folder / "a.la").write_text("".join(f"{pair.source}\n" for pair in pairs))
    (folder / "a.en").write_text("".join(f"{pair.target}\n" for pair in pairs))
    return folder, pairs


def sizes(values):
    """Small hidden sizes that keep a recipe's own proportions (dot scores want them)."""
    encoder = values["model"]["encoder"]
    directions = 1 if encoder.get("bidirectional") is False else 2
    return [f"model.encoder.hidden_size={32 // directions}", "model.decoder.hidden_size=32"]


@pytest.mark.parametrize("name", built_in())
def test_a_recipe_overfits_saves_loads_and_decodes_the_same(name, handful, tmp_path):
    folder, pairs = handful
    values = read_values(name)
    values["data"] = {key: value for key, value in values["data"].items() if key != "corpus"}
    files = [
        f"data.{part}.{side}={folder / f'a.{suffix}'}"
        for part in ("train", "valid")
        for side, suffix in (("source", "la"), ("target", "en"))
    ]
    slow = longer(*SLOW[name]) if name in SLOW else []
    recipe = parse(Recipe, override(values, [*files, *SMALL, *slow, *sizes(values), "training.average=1"]))
    run.train(recipe, tmp_path / "run", talk=False)
    trained = regard.load(tmp_path / "run", "cpu")
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    assert trained.generate(sources) == targets
    again = regard.load(tmp_path / "run" / "model", "cpu")
    assert [[one.score for one in found] for found in again.search(sources)] == [
        [one.score for one in found] for found in trained.search(sources)
    ]


@pytest.mark.parametrize("name", built_in())
def test_a_recipe_builds_at_its_own_size_and_loads_its_weights_back(name):
    config = configure(read_values(name)["model"])
    model, other = build(config, 50, 60), build(config, 50, 60)
    other.load_state_dict({key: value.clone() for key, value in model.state_dict().items()})
    batch = torch.randint(4, 50, (2, 3)), torch.tensor([3, 2]), torch.randint(4, 50, (2, 4))
    copies = Copies(torch.randint(4, 62, (2, 3)), 62) if model.decoder.copies_words else None
    torch.testing.assert_close(other.eval()(*batch, copies), model.eval()(*batch, copies))
