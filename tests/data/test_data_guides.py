"""Given alignments: links between words become links between tokens, row by row, whatever rows are left out."""

from pathlib import Path

import numpy as np
import pytest

from regard.data.batching import collate
from regard.data.fields import texts
from regard.data.readers import BadRows
from regard.data.store import Store, prepare
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.errors import DataError
from regard.recipe import Pairs
from regard.recipe import Tokenizer as Section

SOURCES = ["ab c", "d", "e fg h", "ij k"]
TARGETS = ["x yz", "uvw", "p q", "rs"]
LINKS = ["0-1 1?0", "", "0-0 2-0 1p1", "0-0 1-0"]
LETTERS = train_tokenizer(Section(kind="character"), [*SOURCES, *TARGETS])
WORDS = train_tokenizer(Section(kind="word"), [*SOURCES, *TARGETS])


def made(folder: Path, sources=SOURCES, targets=TARGETS, links=LINKS, tokenizer: Tokenizer = LETTERS, **asked) -> Store:
    for name, lines in ("a", sources), ("b", targets), ("links", links):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    pairs = Pairs(source=folder / "a", target=folder / "b", alignment=folder / "links")
    asked = {"max_length": 50, "bad_rows": BadRows("skip"), "links": True, **asked}
    return prepare(folder / "store", pairs, texts(tokenizer, tokenizer), **asked)


def by_hand(sources, targets, links):
    """Between letters: a blank belongs to the word that follows it."""

    def word(text, at):
        return text[: at + 1].count(" ")

    dense = []
    for source, target, line in zip(sources, targets, links, strict=True):
        pairs = {tuple(map(int, link.replace("?", "-").replace("p", "-").split("-"))) for link in line.split()}
        linked = [[float((word(source, j), word(target, i)) in pairs) for j in range(len(source))] for i in range(len(target))]
        dense.append([[share / max(sum(row), 1) for share in row] for row in linked])
    return dense


def check(store: Store, sources, targets, links) -> None:
    batch = collate(store, np.arange(len(store)))
    dense = batch["links"].values
    assert dense.dtype == np.float32
    assert dense.shape == (len(sources), batch["target"].values.shape[1], batch["source"].values.shape[1])
    for found, expected in zip(dense, by_hand(sources, targets, links), strict=True):
        rows, columns = len(expected), len(expected[0])
        np.testing.assert_allclose(found[:rows, :columns], expected)
        assert found.sum() == pytest.approx(np.sum(expected))  # nothing on ends and padding


def test_links_between_tokens(tmp_path):
    check(made(tmp_path), SOURCES, TARGETS, LINKS)


def test_links_between_words(tmp_path):
    batch = collate(made(tmp_path, tokenizer=WORDS), np.array([2]))
    np.testing.assert_allclose(batch["links"].values[0], [[0.5, 0, 0.5, 0], [0, 1, 0, 0], [0, 0, 0, 0]])


def test_rows_left_out_take_their_links_along(tmp_path):
    """An empty source, a target too long: the links of the rows behind stay with them."""
    sources, targets = [SOURCES[0], "", *SOURCES[1:]], [TARGETS[0], "x", "uvw" * 9, *TARGETS[2:]]
    store = made(tmp_path, sources, targets, [LINKS[0], "7-7 nonsense", "0-0", *LINKS[2:]], max_length=12)
    assert [int(line) for line in store.lines] == [1, 4, 5]
    check(store, *([side[0], *side[2:]] for side in (SOURCES, TARGETS, LINKS)))


def test_a_header_has_no_links(tmp_path):
    (tmp_path / "p.tsv").write_text("left\tright\nab c\tx yz\nd\tuvw\n")
    (tmp_path / "links").write_text("0-1\n0-0\n")
    pairs = Pairs(pairs=tmp_path / "p.tsv", source_column="left", target_column="right", alignment=tmp_path / "links")
    store = prepare(
        tmp_path / "s",
        pairs,
        texts(LETTERS, LETTERS),
        max_length=50,
        bad_rows=BadRows("stop"),
        links=True,
    )
    check(store, SOURCES[:2], TARGETS[:2], ["0-1", "0-0"])


@pytest.mark.parametrize("link", ["2-0", "0-2"])
def test_a_link_to_nowhere_is_named(tmp_path, link):
    with pytest.raises(DataError, match=rf"links:1: the link {link} .* source has 2 words, the target 2"):
        made(tmp_path, links=[link, *LINKS[1:]])
    with pytest.raises(DataError, match=r"links:3: '0_0' is not a link"):
        made(tmp_path, links=[*LINKS[:2], "0_0", LINKS[3]])


@pytest.mark.parametrize("lines", [3, 5])
def test_too_few_and_too_many_lines_are_counted(tmp_path, lines):
    with pytest.raises(DataError, match=rf"links: {lines} lines of links for the 4 rows of .*a and .*b"):
        made(tmp_path, links=[*LINKS, ""][:lines])
    assert not (tmp_path / "store").exists()


def test_a_changed_alignment_makes_the_store_anew(tmp_path):
    made(tmp_path)
    changed = ["1-1", *LINKS[1:]]
    check(made(tmp_path, links=changed), SOURCES, TARGETS, changed)


def test_links_are_read_only_where_asked_for(tmp_path):
    made(tmp_path)
    (tmp_path / "links").write_text("nonsense\n")
    pairs = Pairs(source=tmp_path / "a", target=tmp_path / "b", alignment=tmp_path / "links")
    store = prepare(tmp_path / "store", pairs, texts(LETTERS, LETTERS), max_length=50, bad_rows=BadRows("skip"))
    assert "links" not in store.columns
    assert collate(store, np.arange(4)).get("links") is None
    check(made(tmp_path), SOURCES, TARGETS, LINKS)


def test_words_that_the_tokenizer_parts_otherwise_are_not_guessed(tmp_path):
    """SentencePiece's normalisation reads a zero-width space as a blank: the row has three words, and two for the links."""
    lines = ["der Hund\u200bschläft tief", "die Katze schläft"] * 30
    tokenizer = train_tokenizer(Section(kind="unigram_nfkc", size=60), lines)
    store = made(tmp_path, lines[:2], lines[:2], ["0-0 1-1", "0-0 2-2"], tokenizer=tokenizer)
    assert store.facts["rows_unguided"] == 1
    links = collate(store, np.arange(2))["links"].values
    assert links[0].sum() == 0
    assert links[1].sum() > 0


def test_alignments_are_asked_for_by_name(tmp_path):
    (tmp_path / "a").write_text("x\n")
    pairs = Pairs(source=tmp_path / "a", target=tmp_path / "a")
    with pytest.raises(DataError, match=r"data\.train\.alignment"):
        prepare(
            tmp_path / "s",
            pairs,
            texts(WORDS, WORDS),
            max_length=5,
            bad_rows=BadRows("stop"),
            links=True,
        )
