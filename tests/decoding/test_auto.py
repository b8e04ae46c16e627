"""decoding.cache=auto: static where a device replays it, dynamic everywhere else."""

import pytest
from test_static import TEXTS, TWO, in_use

from regard.decoding import searching, strides
from regard.decoding.rules import RULES, DecodingRule
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


class TwoWords(DecodingRule):
    """A rule of one's own, which no setting names."""

    @classmethod
    def requested(cls, request):
        found = cls()
        found.left = request.lengths * 0 + 2
        return found

    def start(self):
        return self.left

    def apply(self, step, words, state):
        return step.cut(state <= 1), state - 1


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("static", [False, True])
def test_a_rule_of_ones_own_is_kept(static, kernels, replays, monkeypatch):
    monkeypatch.setattr(strides, "here", lambda like: kernels)
    monkeypatch.setitem(RULES, "two_words", type("Mine", (TwoWords,), {"static": static}))
    trained = in_use(TWO[0])
    assert max(len(tokens) for each in outputs(trained) for tokens in each) <= 2
    assert outputs(trained, beam=3) == outputs(trained, beam=3, cache="dynamic")
    assert (trained.slotted is not None) == static
    if not static:
        with pytest.raises(UserError, match="two_words looks at each word"):
            outputs(trained, cache="static")
