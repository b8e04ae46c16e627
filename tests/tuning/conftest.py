"""Data, a tiny recipe, and one study that ran through."""

import json

import pytest
from calling import regard
from studies import TINY, write_table

from regard.models import configure
from regard.recipe import Recipe, own_values, parse


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("rows") / "rows.tsv")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The name of a recipe."""
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def tiny_values(tiny, table):
    """The same with data and every default filled in."""
    recipe = parse(Recipe, own_values(tiny))
    values = recipe.model_copy(update={"model": configure(recipe.model).model_dump(mode="json")}).model_dump(mode="json")
    values["data"]["train"] = {"pairs": str(table)}
    return parse(Recipe, values).model_dump(mode="json")


@pytest.fixture(scope="session")
def finished(table, tiny, tmp_path_factory):
    """A study of five trials. Not to be written to."""
    folder = tmp_path_factory.mktemp("studies") / "study"
    result = regard("tune", table, "--recipe", tiny, "--trials", 5, "--run", folder, "--json")
    assert result.code == 0, result.err
    return folder, json.loads(result.out), result.err
