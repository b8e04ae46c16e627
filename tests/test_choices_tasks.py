"""Choices for images with labels; and half of what is chosen, for few minutes."""

import random

import numpy as np
import pytest

from regard import preflight
from regard.choices import Machine, choose_recipe
from regard.data.fields import configure_fields, outlines
from regard.data.readers import read_rows
from regard.drafting import Files, draft
from regard.errors import DataError, UserError
from regard.models import configure
from regard.planning import minutes
from regard.recipe import Pairs, Recipe, parse

LAPTOP = Machine(gpu=False, threads=2)
NAMES = ["cat", "dog", "sea horse"]
NAMED = {"columns": {"source": 0, "label": 1}}


def table(folder, rows):
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    return {"pairs": str(folder / "pairs.tsv")}


def pictures(folder, number, height=8, width=8):
    folder.mkdir(exist_ok=True)
    for row in range(number):
        np.save(folder / f"{row:02}.npy", np.zeros((height, width, 3), np.uint8))
    return [f"{row:02}.npy" for row in range(number)]


@pytest.mark.parametrize(("height", "strides"), [(48, [2, 2, 2]), (16, [2, 2, 1]), (4, [1, 1, 1]), (2, [1, 1, 1])])
def test_images_with_labels_call_for_a_classifier(height, strides, tmp_path):
    """Because the labels say so, or who trains does, however few there are."""
    rows = [(name, NAMES[row % 3]) for row, name in enumerate(pictures(tmp_path, 80, height, 60))]
    for some, named in ((rows, {}), (rows[:40], NAMED)):
        files = table(tmp_path, some) | named
        choice = choose_recipe(files, LAPTOP)
        model, data = choice.values["model"], choice.values["data"]
        assert (model["kind"], model["encoder"]["input"]["strides"]) == ("classifier", strides)
        assert data["fields"]["source"] == {"kind": "image", "height": height, "width": 60}
        preflight.check(parse(Recipe, {**choice.values, "data": {**data, "train": choice.task.columns(files)}}))
    assert "decoder" in choose_recipe(table(tmp_path, rows), LAPTOP, labels=False).values["model"]


def test_a_folder_of_images_with_labels_is_read_as_such(tmp_path):
    for row, name in enumerate(pictures(tmp_path / "shots", 80)):
        (tmp_path / "shots" / name).with_suffix(".txt").write_text(f"{NAMES[row % 3]}\n")
    recipe = draft(None, Files({"pairs": str(tmp_path / "shots")}, {}, {}), talk=False)
    assert recipe.model["kind"] == "classifier"
    (rows,) = read_rows(recipe.data.train)
    assert rows.columns["source"][:2] == ["shots/00.npy", "shots/01.npy"]
    assert rows.columns["label"][:2] == ["cat", "dog"]
    with pytest.raises(DataError, match=r"has the columns `source` \(0, the images\) and `target` \(1, their texts\), no 2"):
        list(read_rows(parse(Pairs, {"pairs": str(tmp_path / "shots"), "columns": {"source": 0, "label": 2}})))


def test_images_have_no_tags(tmp_path):
    files = table(tmp_path, [(name, "a") for name in pictures(tmp_path, 8)])
    with pytest.raises(UserError, match="images get texts or labels, no tags; name a recipe"):
        choose_recipe({**files, "columns": {"source": 0, "tags": 1}})


def tagged(chance):
    """The last letter of a word tells its tag, and there are always words that were never seen."""
    words = ["".join(chance.choice("abcdefgh") for _ in range(5)) for _ in range(6)]
    return " ".join(words), " ".join("N" if word[-1] < "e" else "V" for word in words)


def test_half_of_a_tagger_of_characters_is_a_model(tmp_path):
    """What words take from their characters is halved with them."""
    chance = random.Random(1)
    chosen = parse(Recipe, choose_recipe(table(tmp_path, [tagged(chance) for _ in range(10_000)]), LAPTOP).values)
    smaller = minutes.halved(chosen)
    config = configure(smaller.model)
    preflight.outline(config, outlines(configure_fields(smaller.data, config.columns)), 10**9)
    assert (config.encoder.input.size, config.encoder.embedding_size) == (32, 64)
