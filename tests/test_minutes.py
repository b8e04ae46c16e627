"""A chosen recipe made to fit into minutes: what the user set stays, and how many rows are validated on."""

import pytest

from regard.drafting import in_time
from regard.planning import minutes
from regard.recipe import Recipe, override, parse

SIZES = {"embedding_size": 8, "hidden_size": 8}
COUNTS = {"updates": 1000, "warmup": 100, "validate_every": 200, "validate_first": 20, "save_every": 400}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A recipe of which half the updates are possible, from some overrides."""
    (tmp_path / "a").write_text("".join(f"{'a ' * (row % 7)}b\n" for row in range(3000)))
    monkeypatch.setattr(minutes, "updates_in", lambda minutes, recipe: 500)
    files = {name: str(tmp_path / "a") for name in ("source", "target")}
    values = {
        "data": {"train": files, "tokenizer": {"kind": "word"}},
        "model": {"encoder": SIZES, "decoder": SIZES},
        "training": COUNTS,
    }
    return lambda *changes: parse(Recipe, override(values, changes))


def counts(recipe):
    return {key: getattr(recipe.training, key) for key in COUNTS}


def test_all_that_is_counted_in_updates_follows_them(made):
    fitted = minutes.within(2, made())
    halved = {key: count // 2 for key, count in COUNTS.items()}
    assert counts(fitted) == halved
    assert counts(in_time(made(), fitted, 2, ())) == {**halved, "updates": 1000, "warmup": 100}
    assert minutes.within(2, made("training.validate_first=null")).training.validate_first is None


@pytest.mark.parametrize("key", ["warmup", "validate_every", "validate_first", "save_every"])
def test_what_the_user_counts_stays(key, made):
    own = [f"training.{key}=77"]
    fitted = minutes.within(2, made(*own), own)
    assert counts(fitted)[key] == counts(in_time(made(*own), fitted, 2, own))[key] == 77
    assert counts(fitted)["updates"] == 500


@pytest.mark.parametrize(
    ("changes", "some", "told"),
    [
        (["data.batch_tokens=128"], range(200, 1000), True),  # validated by BLEU, though nobody said so
        (["data.batch_tokens=128", "data.held_out=120"], [None], False),  # fewer than there is time for
        (["data.batch_tokens=128", "training.validate_by=loss"], [None], False),
        (["data.batch_tokens=128", "training.validate_rows=60"], [60], False),
        (["data.batch_tokens=4096"], [None], False),
    ],
)
def test_as_many_rows_are_validated_on_as_there_is_time_to_write(changes, some, told, made, capsys):
    """500 updates take three quarters of the time, and 2 + 1000 / 200 validations the rest."""
    found = minutes.within(2, made(*changes), changes).training.validate_rows
    assert found in some
    assert (f"a validation is of {found} rows at most" in capsys.readouterr().err) == told
