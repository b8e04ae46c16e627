"""What can be copied: every token knows what it stands for, and a sentence's unknown words get ids of their own."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from test_data_tokenizers import EVERY, ODD, corpus, trained

from regard.data.batching import collate
from regard.data.copies import copied, extended_rows
from regard.data.fields import texts
from regard.data.readers import BadRows
from regard.data.store import Store, prepare
from regard.data.tokenizers import END, PAD, START, TOKENIZERS, UNKNOWN, Tokenizer, train_tokenizer
from regard.models import build, configure
from regard.models.generator import shifted
from regard.recipe import Pairs
from regard.recipe import Tokenizer as Section

STRANGE = ["der Zaphod über Zaphod", "xyz日本 Hund, qq", "Ωmega", " doppelt  weit ", *ODD]


def words(texts: Sequence[str], size: int = 100, lowercase: bool = False) -> Tokenizer:
    return train_tokenizer(Section(kind="word", size=size, lowercase=lowercase), texts)


SOURCE, TARGET = words(["the cat saw a dog in Rome"]), words(["die katze in in Rome sah"])


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: trained(kind) for kind in TOKENIZERS} | {"with bytes": trained("unigram", 1200)}


@pytest.mark.parametrize("kind", EVERY)
def test_surfaces_stand_beside_the_ids(tokenizers, kind):
    tokenizer = tokenizers[kind]
    lines = [*STRANGE, *corpus(20)]
    for ids, surfaces in zip(tokenizer.encode(lines), tokenizer.surfaces(lines), strict=True):
        assert len(ids) == len(surfaces)
        assert all(
            surface == tokenizer.spellings[token] for token, surface in zip(ids, surfaces, strict=True) if token != UNKNOWN
        )
    assert tokenizer.surfaces([]) == []


@pytest.mark.parametrize("kind", EVERY)
def test_a_text_is_spelled_from_its_surfaces_though_words_are_unknown(tokenizers, kind):
    tokenizer = tokenizers[kind]
    comma = " ," if kind == "code" else ","  # glue is a token, which this text has not taught it
    lines = ["der Zaphod über Zaphod", f"xyz日本 Hund{comma} qq", "Ωmega", *corpus(5)]
    for line, offer in zip(lines, (copied(row, tokenizer) for row in tokenizer.surfaces(lines)), strict=True):
        assert tokenizer.decode(offer.ids, offer.extra) == line
        places = tokenizer.words(offer.ids, offer.extra)
        assert sorted(set(places)) == list(range(len(line.split())))
        assert len(tokenizer.pieces(offer.ids, offer.extra)) == len(offer.ids)
    assert tokenizer.by_spelling.keys().isdisjoint([b"", tokenizer.unknown.encode()])


def test_an_id_past_the_vocabulary_is_unknown_to_who_is_not_told():
    size = len(TARGET)
    katze = TARGET.by_spelling[b" katze"]
    assert TARGET.decode([katze, size + 1], [b" Ford", b" Arthur"]) == "katze Arthur"
    assert TARGET.decode([katze, size + 1], [b" Ford"]) == TARGET.decode([katze, size + 1]) == "katze ⁇"
    assert TARGET.words([katze, size, END]) == [0, 1, -1]
    assert TARGET.pieces([size], [b" Ford"]) == ["▁Ford"]


def test_known_unknown_and_repeated_words():
    """Words that the target has, words that the source's vocabulary has and the target's has not, and words of nobody."""
    size = len(TARGET)
    (surfaces,) = SOURCE.surfaces(["Zaphod saw Rome in Zaphod dog"])
    offer = copied(surfaces, TARGET)
    assert offer.ids == [size, size + 1, TARGET.by_spelling[b" Rome"], TARGET.by_spelling[b" in"], size, size + 2]
    assert offer.extra == [b" Zaphod", b" saw", b" dog"]


def test_a_target_uses_the_ids_of_its_own_source_alone():
    size = len(TARGET)
    sources, targets = ["Ford saw Zaphod", "Arthur saw", "cat"], ["Zaphod sah Ford", "Zaphod Arthur ⁇", "katze"]
    offers, ids = extended_rows(sources, targets, SOURCE, TARGET)
    assert [offer.extra for offer in offers] == [[b" Ford", b" saw", b" Zaphod"], [b" Arthur", b" saw"], [b" cat"]]
    sah, katze = TARGET.by_spelling[b" sah"], TARGET.by_spelling[b" katze"]
    assert ids == [[size + 2, sah, size], [UNKNOWN, size, UNKNOWN], [katze]]
    assert TARGET.decode(ids[0], offers[0].extra) == targets[0]


def test_lower_case_is_what_is_compared():
    source, target = words(["the"], lowercase=True), words(["rome"], lowercase=True)
    offers, ids = extended_rows(["ROME Zaphod"], ["zaphod Rome"], source, target)
    assert offers[0].extra == [b" zaphod"]
    assert ids == [[len(target), target.by_spelling[b" rome"]]]


def made(folder: Path, copying: bool = True, max_length: int = 5) -> Store:
    sources = ["Ford saw Zaphod", "the cat", "a b c d e f g", "in Rome Ford"]
    targets = ["Zaphod sah Ford", "die katze", "katze", "Ford Trillian Rome"]
    (folder / "a").write_text("\n".join(sources))
    (folder / "b").write_text("\n".join(targets))
    pairs = Pairs(source=folder / "a", target=folder / "b")
    asked = {"max_length": max_length, "bad_rows": BadRows("stop"), "copying": copying}
    return prepare(folder / "store", pairs, texts(SOURCE, TARGET), **asked)


def test_the_store_keeps_copies_where_asked(tmp_path):
    size, known = len(TARGET), TARGET.by_spelling
    plain = made(tmp_path, copying=False)
    assert "copies" not in plain.columns
    assert plain["target"][0].tolist() == [UNKNOWN, known[b" sah"], UNKNOWN]
    store = made(tmp_path)
    assert store.facts["settings"] != plain.facts["settings"]
    assert [store["copies"][row].tolist() for row in range(3)] == [
        [size, size + 1, size + 2],
        [size, size + 1],
        [known[b" in"], known[b" Rome"], size],
    ]
    assert [store["target"][row].tolist() for row in range(3)] == [
        [size + 2, known[b" sah"], size],
        [known[b" die"], known[b" katze"]],
        [size, UNKNOWN, known[b" Rome"]],
    ]
    assert made(tmp_path)["copies"].values.filename == store["copies"].values.filename
    assert "copies" not in made(tmp_path, copying=False).columns


def test_ids_past_a_full_vocabulary_are_kept(tmp_path):
    """65,533 words and 4 specials fill sixteen bits; the words of a sentence come on top."""
    large = words([" ".join(map(str, range(65_532)))], size=1 << 16)
    assert len(large) == 1 << 16
    (tmp_path / "a").write_text("Ford 7\n")
    pairs = Pairs(source=tmp_path / "a", target=tmp_path / "a")
    store = prepare(
        tmp_path / "s",
        pairs,
        texts(large, large),
        max_length=5,
        bad_rows=BadRows("stop"),
        copying=True,
    )
    assert store["target"][0].tolist() == store["copies"][0].tolist() == [1 << 16, large.by_spelling[b" 7"]]


def test_a_batch_of_copies(tmp_path):
    store, size, known = made(tmp_path), len(TARGET), TARGET.by_spelling
    batch = collate(store, np.array([1, 0]))
    assert batch["copies"].values.tolist() == [[size, size + 1, PAD, PAD], [size, size + 1, size + 2, PAD]]
    assert batch["copies"].values.shape == batch["source"].values.shape
    assert batch["copies"].size == size + 3
    target = batch["target"].values
    assert target.tolist() == [
        [known[b" die"], known[b" katze"], END, PAD],
        [size + 2, known[b" sah"], size, END],
    ]
    assert shifted(torch.from_numpy(target)).tolist() == [
        [START, known[b" die"], known[b" katze"], PAD],
        [START, size + 2, known[b" sah"], size],
    ]
    assert collate(store, np.array([1]))["copies"].size == size + 2


def test_a_batch_without_unknown_words_has_the_plain_size(tmp_path):
    (tmp_path / "a").write_text("in Rome\n")
    pairs = Pairs(source=tmp_path / "a", target=tmp_path / "a")
    store = prepare(
        tmp_path / "s",
        pairs,
        texts(SOURCE, TARGET),
        max_length=5,
        bad_rows=BadRows("stop"),
        copying=True,
    )
    assert collate(store, np.array([0]))["copies"].size == len(TARGET)


def test_what_was_copied_is_read_as_unknown():
    """By a decoder that copies; `shifted` keeps what was written."""
    assert shifted(torch.tensor([[9, 10, 11, END]])).tolist() == [[START, 9, 10, 11]]
    sections = {"encoder": {"embedding_size": 4, "hidden_size": 4}, "decoder": {"embedding_size": 4, "copy_words": "gated"}}
    decoder = build(configure(sections), 10, 10).decoder
    written, read = (torch.tensor([[START, 9, *words]]) for words in ([10, 11], [UNKNOWN, UNKNOWN]))
    assert decoder.words(written).equal(decoder.embed(read))
