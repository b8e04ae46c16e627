"""A short run that has ended, for tests that look at it or spoil a copy."""

import shutil

import pytest
from small import shortened, small_recipe

from regard import run
from regard.corpora import CORPORA


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Six updates. Not to be written to."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    run.train(small_recipe(6), directory, talk=False)
    return directory


@pytest.fixture
def own(finished, tmp_path):
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "own")


@pytest.fixture(scope="session", autouse=True)
def short_corpora():
    """A hundred runs here begin with the same corpus, of which few rows are enough to validate on."""
    with pytest.MonkeyPatch.context() as patch:
        for name, corpus in CORPORA.items():
            patch.setitem(CORPORA, name, shortened(corpus))
        yield
