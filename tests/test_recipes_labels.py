"""Law 8 for recipes that label: each loads, builds, learns a handful by heart, saves, loads back and labels the same."""

import pytest
import torch
from recipes_by_shape import LABELLERS

import regard
from regard import run
from regard.corpora import CORPORA, generate
from regard.data.fields import configure_fields, outlines
from regard.models import build, configure
from regard.recipe import Recipe, override, parse, read, read_values

SMALL = [
    "data.batch_tokens=256", "data.tokenizer.size=500", "training.updates=60", "training.learning_rate=0.02",
    "training.warmup=10", "training.validate_every=60", "training.save_every=60", "training.label_smoothing=0",
    "training.unknown_words=0", "training.average=1", "model.dropout=0", "model.encoder.dropout=0",
    "model.encoder.embedding_size=24",
]  # fmt: skip
SIZES = {"recurrent": ["model.encoder.hidden_size=16"], "identity": []}


@pytest.fixture(scope="module")
def handful(tmp_path_factory):
    """Texts; their words in BIO tags by their length; and one label each."""
    folder = tmp_path_factory.mktemp("labels")
    texts = [pair.source for pair in generate(CORPORA["latin"], seed=1, size=60)["train"]][:6]
    tags = [" ".join("O" if len(word) < 4 else f"B-{len(word) % 2}" for word in text.split()) for text in texts]
    columns = {"source": texts, "tags": tags, "label": [f"label {number % 3}" for number in range(6)]}
    for name, values in columns.items():
        (folder / name).write_text("".join(f"{value}\n" for value in values))
    return folder, columns


def small(name):
    values = read_values(name)
    characters = ["model.encoder.input.size=8"] if "input" in values["model"]["encoder"] else []
    return override(values, [*SMALL, *characters, *SIZES[values["model"]["encoder"]["kind"]]])


@pytest.mark.parametrize("name", LABELLERS)
def test_a_recipe_learns_by_heart_saves_loads_and_labels_the_same(name, handful, tmp_path):
    folder, columns = handful
    writes = {"tagger": "tags", "classifier": "label"}[read_values(name)["model"]["kind"]]
    files = [
        f"data.{part}.{place}={folder / column}"
        for part in ("train", "valid")
        for column, place in (("source", "source"), (writes, f"columns.{writes}"))
    ]
    run.train(parse(Recipe, override(small(name), files)), tmp_path / "run", talk=False)
    trained, again = (regard.load(path, "cpu") for path in (tmp_path / "run", tmp_path / "run" / "model"))
    found = trained.predict(columns["source"])
    assert list(map(str, found)) == columns[writes]
    assert again.predict(columns["source"]) == found


@pytest.mark.parametrize("name", LABELLERS)
def test_a_recipe_builds_at_its_own_size_and_is_refused_nothing(name):
    recipe = read(name, ["data.tokenizer.size=60"])
    config = configure(recipe.model)
    with torch.device("meta"):
        model = build(config, *outlines(configure_fields(recipe.data, config.columns)))
    assert not any(model.load_state_dict(model.state_dict()))
    assert "ours" in recipe.about
