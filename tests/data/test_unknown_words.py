"""Hidden words, against a loop over rows and words."""

import numpy as np
import pytest

from regard.data.batching import Batch, Column
from regard.data.tokenizers import END, PAD, UNKNOWN, train_tokenizer
from regard.data.unknown_words import bits_of, hide_source, hide_words
from regard.errors import UserError
from regard.recipe import Tokenizer

SIZE = 14  # of the target's vocabulary; 14 and 15 are words that some rows alone have


def batch_of(rows, seed=0):
    """Random rows of a store: each always the same, in whatever batch."""
    source, target, copies = (np.zeros((len(rows), 9), np.int64) for _ in range(3))
    for at, row in enumerate(rows):
        random = np.random.default_rng([seed, row])
        length, written = random.integers(1, 9, 2)
        offers = random.integers(4, SIZE + 2, length)
        source[at, : length + 1] = [*(offers + 20), END]
        copies[at, :length] = offers
        target[at, : written + 1] = [*random.choice([UNKNOWN, *offers, 4, 5], written), END]
    columns = {"source": Column(source), "target": Column(target), "copies": Column(copies, size=SIZE + 2)}
    return Batch(columns, np.array(rows))


def chance_of(seed, step, row, word):
    """SplitMix64 in whole numbers."""
    bits = 0
    for number in (seed, step, row, word):
        bits = ((bits ^ number) + 0x9E3779B97F4A7C15) % 2**64
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
        bits ^= bits >> 31
    return (bits >> 11) / 2**53


def hidden_by_a_loop(batch, chance, seed, step):
    source, target, copies = (batch[name].values.tolist() for name in ("source", "target", "copies"))
    for at, row in enumerate(batch.rows.tolist()):
        shared = sorted({word for word in copies[at] if word != PAD and word in target[at]})
        words = [word for word in shared if chance_of(seed, step, row, word) < chance]
        new = {word: SIZE + 2 + number for number, word in enumerate(words)}
        source[at] = [UNKNOWN if copy in new else token for token, copy in zip(source[at], copies[at], strict=True)]
        target[at], copies[at] = ([new.get(word, word) for word in each] for each in (target[at], copies[at]))
    return source, target, copies


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.999])
@pytest.mark.parametrize("seed", [1, 2**63 - 1])
def test_hiding_words_is_a_loop_over_them(seed, chance):
    batch, changed = batch_of(range(40)), 0
    for step in range(4):
        found = hide_words(batch, chance, seed, step)
        for name, values in zip(("source", "target", "copies"), hidden_by_a_loop(batch, chance, seed, step), strict=True):
            assert found[name].values.tolist() == values
        assert found["copies"].size == max(SIZE + 2, found["copies"].values.max() + 1)
        changed += (found["source"].values == UNKNOWN).any()
    assert changed


def test_what_a_row_hides_depends_on_the_step_and_not_on_the_batch():
    whole = hide_words(batch_of(range(12)), 0.5, 1, 7)
    for part in ([3, 0, 11], [5]):
        some = hide_words(batch_of(part), 0.5, 1, 7)
        for name in ("source", "target", "copies"):
            assert some[name].values.tolist() == whole[name].values[part].tolist()
    for seed, step in ((1, 8), (2, 7)):
        other = hide_words(batch_of(range(12)), 0.5, seed, step)
        assert other["target"].values.tolist() != whole["target"].values.tolist()


def test_the_chance_is_the_chance():
    draws = (bits_of(3, 5, np.arange(200)[:, None], np.arange(500)) >> np.uint64(11)) * 2.0**-53
    for chance in (0.1, 0.5, 0.9):
        assert (draws < chance).mean() == pytest.approx(chance, abs=0.01)


def test_nothing_to_hide():
    nothing = Batch(
        {name: Column(np.zeros((2, 3), np.int64), size=SIZE) for name in ("source", "target", "copies")}, np.arange(2)
    )
    found = hide_words(nothing, 0.9, 1, 1)
    assert all(not column.values.any() for column in found.columns.values())
    assert found["copies"].size == SIZE


@pytest.mark.parametrize("kind", ["word", "character"])
def test_symbols_seen_fewer_times_are_unknown(kind):
    text = ["a b b c c c", "d"]
    found = [train_tokenizer(Tokenizer(kind=kind, min_count=count), text).symbols for count in (1, 2, 3)]
    words = [{"a", "b", "c", "d"}, {"b", "c"}, {"c"}]
    assert [{symbol.strip() for symbol in symbols} - {""} for symbols in found] == words
    with pytest.raises(UserError, match="min_count=9: nothing in this text comes so often"):
        train_tokenizer(Tokenizer(kind=kind, min_count=9), text)


@pytest.mark.parametrize("spelled", [False, True])
def test_words_of_a_source_are_hidden_and_their_characters_are_not(spelled):
    """Each by itself, a function of (seed, step, row, place); marks stay."""
    batch = batch_of([3, 8, 5])
    words = batch["source"].values
    values = np.stack([words, words + 100], axis=-1) if spelled else words
    given = Batch({"source": Column(values), "tags": Column(words)}, batch.rows)
    found = hide_source(given, 0.4, seed=7, step=2)["source"].values
    hidden = 0
    for at, row in enumerate(batch.rows.tolist()):
        for place, word in enumerate(words[at].tolist()):
            drawn = word > END and chance_of(7, 2, row, place) < 0.4
            hidden += drawn
            one = found[at, place]
            assert (one[0] if spelled else one) == (UNKNOWN if drawn else word)
            assert not spelled or one[1] == word + 100
    assert 0 < hidden < (words > END).sum()
    np.testing.assert_array_equal(hide_source(given, 0.4, seed=7, step=2)["tags"].values, words)
    alone = hide_source(Batch({"source": Column(values[1:2])}, batch.rows[1:2]), 0.4, seed=7, step=2)["source"].values
    np.testing.assert_array_equal(alone, found[1:2])
