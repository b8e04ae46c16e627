"""decoding.cache=auto: static where a device replays it, dynamic everywhere else."""

import pytest
from test_static import TEXTS, TWO, in_use

from regard.decoding import searching
from regard.errors import UserError


@pytest.fixture
def replays(monkeypatch):
    """A CPU that is taken for such a device."""
    monkeypatch.setattr(searching, "REPLAYING", ("cpu",))


def outputs(trained, **changes):
    return [[one.tokens for one in each] for each in trained.search(TEXTS, **changes)]


@pytest.mark.parametrize("name", TWO)
def test_on_a_cpu_it_is_dynamic(name):
    trained = in_use(name)
    assert trained.decoding.cache == "auto"
    assert outputs(trained) == outputs(trained, cache="dynamic")
    assert trained.slotted is None


@pytest.mark.parametrize("name", TWO)
def test_elsewhere_static(name, replays):
    trained = in_use(name)
    assert outputs(trained) == outputs(trained, cache="dynamic")
    assert trained.slotted is not None
    trained.release()
    assert trained.slotted is None
    assert len(trained.search_batch(trained.encoded("source", ["ab"])[0], trained.settings())) == 1
    assert trained.slotted is not None


def growing():
    from tiny import SETTINGS

    name = next(name for name in SETTINGS if "tape" in name)
    return in_use(f"recurrent-{name}")


def test_a_state_that_grows_is_found_out_once(replays):
    trained = growing()
    assert outputs(trained) == outputs(trained, cache="dynamic")
    assert trained.grows
    trained.release()
    assert len(trained.search_batch(trained.encoded("source", ["ab"])[0], trained.settings())) == 1
    assert trained.slotted is None
    with pytest.raises(UserError, match="keep their shape"):
        outputs(trained, cache="static")
    trained.grows = False
    assert len(trained.search_batch(trained.encoded("source", ["ab"])[0], trained.settings())) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"token_scores": True},
        {"on_step": lambda one: True},
        {"no_repeat_ngram": 2},
        {"ban": ["a"]},
        {"constraints": [{"prefix": "a"}] * 9},
    ],
)
def test_what_static_does_not_have_is_dynamic(changes, replays):
    trained = in_use(TWO[1])
    assert outputs(trained, **changes) == outputs(trained, cache="dynamic", **changes)
    assert trained.slotted is None
