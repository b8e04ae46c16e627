"""What goes in comes out: decode(encode(text)) == text, for every tokenizer whose name does not say otherwise."""

import io

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import subwords
from regard.data.tokenizers import TOKENIZERS, UNKNOWN, load_tokenizer, train_tokenizer
from regard.errors import UserError
from regard.recipe import Tokenizer as Section

LOSSLESS = [kind for kind in TOKENIZERS if not kind.endswith("_nfkc")]
SIZES = [(kind, size) for kind in LOSSLESS for size in (400, 1200)]
# white space, NFKC-sensitive letters, combining marks, CJK, and what SentencePiece takes for its own signs
SYMBOLS = ["der", "Hund", "läuft", "x", "ﬁ", "Ａ", "e\u0301", "日本", "中", "⁇", "▁", "▅", "\ufffe", "\ufffe1", "<s>", "<0x41>"]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\n    ", "\u00a0", "\u3000", "\u2028"]
LINES = [f"{space}{word} {word}{space}{other}{space}" for space in SPACES for word in SYMBOLS for other in SYMBOLS]
KNOWN = st.lists(st.tuples(st.sampled_from(["", *SPACES]), st.sampled_from(SYMBOLS), st.sampled_from(SPACES))).map(
    lambda parts: "".join("".join(part) for part in parts)
)
CLEAN = ["der Hund läuft", "die Katze schläft unter der Straße", "das alte Haus"] * 20


@pytest.fixture(scope="module")
def tokenizers():
    return {(kind, size): train_tokenizer(Section(kind=kind, size=size), LINES) for kind, size in SIZES}


def back(tokenizer, text):
    return tokenizer.decode(tokenizer.encode([text])[0])


@pytest.mark.parametrize(("kind", "size"), SIZES)
@settings(max_examples=60, deadline=None)
@given(text=KNOWN)
def test_text_of_the_training_alphabet_comes_back(tokenizers, kind, size, text):
    assert back(tokenizers[kind, size], text) == text


@pytest.mark.parametrize("kind", ["unigram", "bpe", "byte"])
@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_where_there_are_bytes(tokenizers, kind, text):
    assert back(tokenizers[kind, 1200], text) == text


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_small_vocabulary_knows_every_letter_though_the_sample_has_not(monkeypatch, kind):
    monkeypatch.setattr(subwords, "LETTERS", 300)
    letters = [chr(0x4E00 + number) for number in range(80)]
    tokenizer = train_tokenizer(Section(kind=kind, size=300), [f"{letter} der Hund" for letter in letters])
    assert tokenizer.trained_on is not None
    assert all(back(tokenizer, letter) == letter for letter in letters)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_small_vocabulary_knows_letters_that_come_once(kind):
    tokenizer = train_tokenizer(
        Section(kind=kind, size=60), [*CLEAN * 4, "q"]
    )  # one letter in 5,000; SentencePiece itself keeps 0.9995
    assert back(tokenizer, "q") == "q"


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_old_models_load_and_do_as_they_did(tmp_path, kind):
    """Those that were saved under these names normalised; SentencePiece itself is the oracle."""
    writer = io.BytesIO()
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "minloglevel": 2, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CLEAN), model_writer=writer, model_type=kind, vocab_size=80, **ids
    )
    TOKENIZERS[kind](writer.getvalue()).save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    for text in [*CLEAN[:3], " der  Hund ", "ﬁ der", "a▁b", "der\tHund"]:
        theirs = loaded.processor.encode(text)
        assert loaded.encode([text]) == [theirs]
        assert loaded.decode(theirs) == loaded.processor.decode(theirs).strip(" ")
    assert back(loaded, "  der   Hund ") == "der Hund"


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_normalisation_is_in_the_name(kind):
    exact, lossy = (train_tokenizer(Section(kind=name, size=80), CLEAN) for name in (kind, f"{kind}_nfkc"))
    assert exact.spellings[4:] == lossy.spellings[4:]
    assert exact.encode(CLEAN) == lossy.encode(CLEAN)
    assert (back(exact, " der  Hund "), back(lossy, " der  Hund ")) == (" der  Hund ", "der Hund")
    assert back(lossy, "ｄｅｒ") == "der"


def test_white_space_that_words_have_not_seen_separates():
    word = train_tokenizer(Section(kind="word"), ["a b"])
    assert word.encode([" a\t\tb\n", "a b"]) == [[4, 5], [4, 5]]
    assert word.surfaces([" a\t\tc\n"]) == [[b" a", b" c"]]


def test_a_word_is_the_same_after_any_white_space():
    word = train_tokenizer(Section(kind="word"), ["a b\nb  a"])
    ids = word.by_spelling
    assert word.encode(["a\nb"]) == [[ids[b" a"], ids[b"\n"], ids[b" b"]]]
    assert word.encode(["a  b"]) == [[ids[b" a"], ids[b" "], ids[b" "], ids[b" b"]]]


@pytest.mark.parametrize("kind", ["word", "character"])
def test_rare_symbols_are_unknown_where_asked(kind):
    gap = "" if kind == "character" else " "
    lines = [gap.join("aabbc"), gap.join("ab")]
    assert len(train_tokenizer(Section(kind=kind), lines)) == 7
    tokenizer = train_tokenizer(Section(kind=kind, min_count=3), lines)
    assert tokenizer.encode([gap.join("abc")]) == [[4, 5, UNKNOWN]]
    with pytest.raises(UserError, match=r"data\.tokenizer\.min_count=9: nothing in this text comes so often"):
        train_tokenizer(Section(kind=kind, min_count=9), lines)


@pytest.mark.parametrize("kind", sorted(TOKENIZERS.keys() - {"word", "code", "character"}))
def test_pieces_and_bytes_have_no_counts(kind):
    with pytest.raises(UserError, match=rf"min_count=2 counts whole symbols: .*word, code or character, not {kind}"):
        train_tokenizer(Section(kind=kind, min_count=2), CLEAN)
