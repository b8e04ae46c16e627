"""The token store: equal to encoding directly, accounted for, made anew exactly when its inputs change."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.fields import texts
from regard.data.readers import BadRows
from regard.data.store import Store, held_out, prepare
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.errors import DamagedError, DataError
from regard.recipe import Pairs
from regard.recipe import Tokenizer as Section

SOURCES = [f"source {'x' * (number % 7)} {number}" for number in range(50)]
TARGETS = [f"target {number} {'y z ' * (number % 5)}end" for number in range(50)]
BYTES = train_tokenizer(Section(kind="byte"), [])
WORDS = train_tokenizer(Section(kind="word"), TARGETS)


@pytest.fixture
def pairs(tmp_path: Path) -> Pairs:
    (tmp_path / "a").write_text("\n".join(SOURCES))
    (tmp_path / "b").write_text("\n".join(TARGETS))
    return Pairs(source=tmp_path / "a", target=tmp_path / "b")


def made(pairs: Pairs, target: Tokenizer = WORDS, max_length: int = 100, policy: str = "stop") -> Store:
    folder = pairs.files[0].parent / "store"
    return prepare(folder, pairs, texts(BYTES, target), max_length=max_length, bad_rows=BadRows(policy))


def rows(store: Store, column: str) -> list[list[int]]:
    return [store[column][row].tolist() for row in range(len(store))]


def test_the_store_holds_what_the_tokenizers_say(pairs):
    store = made(pairs)
    assert len(store) == 50
    assert list(store.columns) == ["source", "target"]
    assert rows(store, "source") == BYTES.encode(SOURCES)
    assert rows(store, "target") == WORDS.encode(TARGETS)
    assert store["source"][7].tolist() == BYTES.encode([SOURCES[7]])[0]
    assert store["target"][49].tolist() == WORDS.encode([TARGETS[49]])[0]
    assert np.asarray(store.lengths("source")).tolist() == [len(ids) for ids in BYTES.encode(SOURCES)]
    assert np.asarray(store.lengths("target")).dtype == np.int32
    assert np.asarray(store.lengths(None)).tolist() == [0] * 50
    assert store["source"].values.dtype == np.uint16


def test_a_large_vocabulary_takes_wider_tokens(pairs):
    large = train_tokenizer(Section(kind="word", size=70_000), [" ".join(map(str, range(100_000, 170_000))), *TARGETS])
    store = made(pairs, large)
    assert store["target"].values.dtype == np.int32
    assert rows(store, "target") == large.encode(TARGETS)


def counts(store: Store) -> list[int]:
    return [store.facts[key] for key in ("rows_in", "rows_used", "rows_reported")]


def test_rows_are_accounted_for(pairs, tmp_path):
    (tmp_path / "a").write_text("\n".join(["", "too long" * 20, *SOURCES[2:], "unmatched"]))
    bad = BadRows("skip", tmp_path / "report")
    store = prepare(tmp_path / "store", pairs, texts(BYTES, WORDS), max_length=100, bad_rows=bad)
    assert counts(store) == [51, 48, 3]
    assert bad.count == 3
    assert [fault.line for fault in bad.first] == [1, 2, 51] or [fault.line for fault in bad.first] == [1, 51, 2]
    assert f"{tmp_path / 'a'}:2: too long: 160 tokens, data.max_length is 100\n" in (tmp_path / "report").read_text()
    assert rows(store, "source") == BYTES.encode(SOURCES[2:])


def test_long_rows_never_stop(pairs, tmp_path):
    store = made(pairs, max_length=int(np.median([len(text) for text in SOURCES])))
    used = [text for text in SOURCES if len(text) <= store.facts["settings"]["max_length"]]
    assert 0 < len(used) < 50
    assert counts(store) == [50, len(used), 50 - len(used)]
    assert [BYTES.decode(store["source"][row]) for row in range(len(store))] == used


def test_long_targets_are_reported_with_their_file(tmp_path):
    (tmp_path / "p.tsv").write_text("a\tb\na\tb b b\n")
    bad = BadRows("stop")
    prepare(
        tmp_path / "s",
        Pairs(pairs=tmp_path / "p.tsv"),
        texts(BYTES, WORDS),
        max_length=2,
        bad_rows=bad,
    )
    assert [str(fault) for fault in bad.first] == [f"{tmp_path / 'p.tsv'}:2: too long: 3 tokens, data.max_length is 2"]


def test_stop_leaves_no_store(pairs, tmp_path):
    (tmp_path / "a").write_text("\n" + "\n".join(SOURCES[1:]))
    with pytest.raises(DataError, match="a:1: the source is empty"):
        made(pairs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def identity(store: Store) -> int:
    return (Path(store["source"].values.filename).parent / "manifest.json").stat().st_ino


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def rewrite(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace("0", "1", 1))
    assert path.read_text() != text


def test_an_unchanged_store_is_opened(pairs, tmp_path):
    first = made(pairs)
    assert identity(made(pairs)) == identity(first)
    touch(tmp_path / "a")  # another time, the same bytes
    assert identity(made(pairs)) == identity(first)
    (tmp_path / "a").rename(tmp_path / "c")
    moved = prepare(
        tmp_path / "store",
        Pairs(source=tmp_path / "c", target=tmp_path / "b"),
        texts(BYTES, WORDS),
        max_length=100,
        bad_rows=BadRows("stop"),
    )
    assert identity(moved) == identity(first)


@pytest.mark.parametrize("side", ["a", "b"])
def test_changed_files_make_it_anew(pairs, tmp_path, side):
    made(pairs)
    rewrite(tmp_path / side)
    store = made(pairs)
    assert [BYTES.decode(store["source"][row]) for row in range(50)] == (tmp_path / "a").read_text().split("\n")
    assert rows(store, "target") == WORDS.encode((tmp_path / "b").read_text().split("\n"))


@pytest.mark.parametrize("change", [{"target": BYTES}, {"max_length": 99}, {"policy": "skip"}])
def test_changed_settings_make_it_anew(pairs, change):
    first = made(pairs).facts["settings"]
    assert made(pairs, **change).facts["settings"] != first


@pytest.mark.parametrize("name", ["source.tokens", "target.offsets", "manifest.json"])
def test_a_damaged_store_is_refused_and_made_anew(pairs, tmp_path, name):
    made(pairs)
    path = tmp_path / "store" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=name):
        Store.open(tmp_path / "store")
    assert BYTES.decode(made(pairs)["source"][3]) == SOURCES[3]


def test_a_missing_input_is_named(pairs, tmp_path):
    made(pairs)
    (tmp_path / "a").unlink()
    with pytest.raises(DataError, match="a: cannot be read: No such file"):
        made(pairs)


@given(rows=st.integers(0, 3000), number=st.none() | st.integers(1, 3000), seed=st.integers(-(2**63), 2**63))
def test_held_out_rows(rows, number, seed):
    mask = held_out(np.arange(1, rows + 1), number, seed)
    assert mask.shape == (rows,)
    asked = number is not None and 2 * number <= rows
    assert mask.sum() == (number if asked else max(min(rows // 10, 1000), min(1, max(rows - 1, 0))))
    assert (mask == held_out(np.arange(1, rows + 1), number, seed)).all()


def test_held_out_rows_follow_the_seed():
    lines = np.arange(1, 1001)
    assert (held_out(lines, 100, 1) != held_out(lines, 100, 2)).any()


def test_more_rows_never_leave_fewer_to_train_on():
    left = [rows - held_out(np.arange(rows), None, 1).sum() for rows in range(2, 12_000, 37)]
    assert left == sorted(left)


def test_a_row_stays_aside_when_others_go():
    lines = np.arange(1, 1001)
    aside = set(lines[held_out(lines, 100, 1)])
    fewer = np.delete(lines, np.arange(0, 1000, 50))
    assert aside & set(fewer) <= set(fewer[held_out(fewer, 100, 1)])
