"""Small trained models, shared by all tests of the command line."""

import shutil

import pytest
from calling import regard
from capitals import RECIPE, TINY, sentences, write_pairs


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
