"""Tokenizers: what goes in comes out, training repeats, saving keeps, tokens know their words."""

import random
from collections.abc import Iterable
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import lines as lines_module
from regard.data import subwords
from regard.data import tokenizers as tokenizers_module
from regard.data.fields import configure_fields, fit_fields, tokenizer_of
from regard.data.tokenizers import (
    END,
    PAD,
    START,
    TOKENIZERS,
    UNKNOWN,
    Tokenizer,
    fitter_of,
    load_tokenizer,
    train_tokenizer,
)
from regard.errors import DamagedError, DataError, UserError
from regard.recipe import Data, Pairs
from regard.recipe import Tokenizer as Section

TEXTS = "der die das Haus Hund Katze läuft schläft schnell unter über neben große kleine alte Straße und oder"
WORDS = TEXTS.split()
ODD = [
    "",
    " ",
    "a" * 10_000,
    "a " * 5_000,
    "\u0301\u0301",
    "\u200b",
    "👩‍👩‍👧",
    "\u2028 \x0b",
    "\ufffd",
    "▁x ▁",
    "<s> </s>",
    "日本",
    "\ud800",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def corpus(lines: int = 400) -> list[str]:
    choice = random.Random(1)
    return [" ".join(choice.choices(WORDS, k=choice.randint(2, 12))) for _ in range(lines)]


def trained(kind: str, size: int = 120, lowercase: bool = False) -> Tokenizer:
    return train_tokenizer(Section(kind=kind, size=size, lowercase=lowercase), corpus())


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: trained(kind) for kind in TOKENIZERS} | {"with bytes": trained("unigram", 1200)}


EVERY = [*TOKENIZERS, "with bytes"]


@pytest.mark.parametrize("kind", EVERY)
def test_round_trip_of_known_text(tokenizers, kind):
    tokenizer = tokenizers[kind]
    for line, ids in zip(corpus(), tokenizer.encode(corpus()), strict=True):
        assert tokenizer.decode(ids) == line
        assert min(ids) > END
        assert max(ids) < len(tokenizer)
    assert tokenizer.encode([]) == []


@pytest.mark.parametrize("kind", EVERY)
def test_odd_lines_go_through(tokenizers, kind):
    tokenizer = tokenizers[kind]
    for line, ids in zip(ODD, tokenizer.encode(ODD), strict=True):
        assert tokenizer.encode([line]) == [ids]
        text = tokenizer.decode(ids)
        assert len(tokenizer.pieces(ids)) == len(tokenizer.words(ids)) == len(ids)
        assert all(0 <= word < max(len(text.split()), 1) for word in tokenizer.words(ids))


@pytest.mark.parametrize("kind", EVERY)
def test_specials_leave_no_trace(tokenizers, kind):
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode(["der Hund"])[0]
    assert tokenizer.decode([START, *ids, END, PAD, PAD]) == "der Hund"
    assert tokenizer.words([START, *ids, END, PAD]) == [-1, *tokenizer.words(ids), -1, -1]
    assert tokenizer.pieces([PAD, UNKNOWN, START, END]) == ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.mark.parametrize("kind", EVERY)
def test_words_are_those_of_the_text(tokenizers, kind):
    tokenizer = tokenizers[kind]
    for line, ids in zip(corpus(50), tokenizer.encode(corpus(50)), strict=True):
        groups: dict[int, list[int]] = {}
        for token, word in zip(ids, tokenizer.words(ids), strict=True):
            groups.setdefault(word, []).append(token)
        assert [tokenizer.decode(groups[word]).strip() for word in sorted(groups)] == line.split()
        assert sorted(groups) == list(range(len(line.split())))


@pytest.mark.parametrize("kind", EVERY)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_words_of_any_ids(tokenizers, kind, data):
    tokenizer = tokenizers[kind]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=12))
    words = [word for word in tokenizer.words(ids) if word >= 0]
    assert words == sorted(words)
    assert all(word < max(len(tokenizer.decode(ids).split()), 1) for word in words)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_training_repeats_and_saving_keeps(tmp_path, kind):
    first, second, other = trained(kind), trained(kind), trained(kind, lowercase=True)
    assert first.digest == second.digest != other.digest
    for tokenizer in first, other:
        tokenizer.save(tmp_path / "t")
        loaded = load_tokenizer(tmp_path / "t")
        assert type(loaded) is type(tokenizer)
        assert (loaded.digest, len(loaded), loaded.lowercase) == (tokenizer.digest, len(tokenizer), tokenizer.lowercase)
        assert loaded.encode(corpus() + ODD) == tokenizer.encode(corpus() + ODD)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_lowercase(kind):
    tokenizer = trained(kind, lowercase=True)
    assert tokenizer.encode(["DER Hund"]) == tokenizer.encode(["der hund"])
    assert tokenizer.decode(tokenizer.encode(["DER Hund"])[0]) == "der hund"


@settings(deadline=None)
@given(text=TEXT)
def test_bytes_and_characters_are_exact(text):
    for kind in ["byte"] + ["character"] * bool(text):
        tokenizer = train_tokenizer(Section(kind=kind), [text])
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text


@settings(deadline=None)
@given(text=TEXT.filter(bool))
def test_words_are_exact_and_white_space_goes_with_the_next_word(text):
    tokenizer = train_tokenizer(Section(kind="word"), [text])
    ids = tokenizer.encode([text])[0]
    assert tokenizer.decode(ids) == text
    assert sorted(set(tokenizer.words(ids)) | {0}) == list(range(max(len(text.split()), 1)))


def test_bytes_spell_what_pieces_do_not_know(tokenizers):
    tokenizer = tokenizers["with bytes"]
    ids = tokenizer.encode(["der 日本 Hund"])[0]
    assert UNKNOWN not in ids
    assert tokenizer.decode(ids) == "der 日本 Hund"
    assert "<0xE6>" in tokenizer.pieces(ids)
    assert UNKNOWN in tokenizers["unigram"].encode(["日本"])[0]
    assert tokenizers["unigram"].decode(tokenizers["unigram"].encode(["der 日本 Hund"])[0]).split()[1] == "⁇"


def test_decoding_agrees_with_sentencepiece(tokenizers):
    for line in [*corpus(50), "der 日本 Hund", "👩‍👩‍👧 x"]:
        ids = tokenizers["with bytes"].encode([line])[0]
        assert tokenizers["with bytes"].decode(ids) == tokenizers["with bytes"].processor.decode(ids)


def test_symbols_are_the_most_frequent_then_alphabetical():
    word = train_tokenizer(Section(kind="word", size=7), ["c b a c", "d c b a"])
    assert word.pieces(range(4, len(word))) == ["▁c", "▁a", "▁b"]
    assert word.encode(["c d a"]) == [[4, UNKNOWN, 5]]
    assert word.decode([4, UNKNOWN, 5]) == "c ⁇ a"
    assert word.words([4, UNKNOWN, 5]) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_too_small_is_refused(kind):
    with pytest.raises(UserError, match=rf"no {kind} tokenizer of size 10 .*raise data\.tokenizer\.size"):
        trained(kind, 10)


@pytest.mark.parametrize("kind", ["word", "character"])
def test_no_room_is_refused(kind):
    with pytest.raises(UserError, match="leaves no room"):
        trained(kind, 4)


@pytest.mark.parametrize("kind", sorted(TOKENIZERS.keys() - {"byte"}))
def test_no_text_is_refused(kind):
    with pytest.raises(UserError, match="no text"):
        train_tokenizer(Section(kind=kind), ["", ""])


def sampled(texts: Iterable[str], limit: int, letters: int) -> tuple[list[str], int]:
    sample = subwords.Sample(limit, letters)
    sample.add(texts)
    return sample.lines(), sample.seen


def test_training_takes_a_bounded_sample():
    texts = [f"{number:04}" for number in range(10_000)]
    assert sampled(texts[:10], 10, 40) == (texts[:10], 10)
    for limits in ((100, 10**6), (10**6, 400)):  # lines, letters
        kept, seen = sampled(iter(texts), *limits)
        assert (kept, seen) == sampled(texts, *limits)
        assert (kept, seen) == (sorted(set(kept)), 10_000)
        assert 80 < len(kept) <= 100
        assert 4000 < sum(map(int, kept)) / len(kept) < 6000
    assert sampled(["a" * 50], 10, 40) == (["a" * 50], 1)


@settings(max_examples=60, deadline=None)
@given(blocks=st.lists(st.integers(1, 40), min_size=1, max_size=30), limit=st.integers(1, 300))
def test_columns_that_pass_by_in_turn_are_sampled_as_if_each_came_whole(blocks, limit):
    columns = {name: [f"{name} {number}" for number in range(sum(blocks))] for name in ("source", "target")}
    whole, turns = subwords.Sample(limit, 10**9), subwords.Sample(limit, 10**9)
    for name, texts in columns.items():
        whole.add(texts, name)
    for end, size in zip(accumulate(blocks), blocks, strict=True):
        for name, texts in columns.items():
            turns.add(texts[end - size : end], name)
    assert turns.lines() == whole.lines()
    assert turns.seen == whole.seen == 2 * sum(blocks)
    assert len(turns.lines()) <= limit
    if limit >= 2 * sum(blocks):
        assert turns.lines() == columns["source"] + columns["target"]


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("shared", [False, True])
def test_one_pass_gives_the_tokenizers_of_a_pass_for_each_side(tmp_path, monkeypatch, kind, shared):
    """And a vocabulary of both sides is that of all sources with all targets after them."""
    monkeypatch.setattr(lines_module, "BLOCK", 200)
    choice = random.Random(3)
    words = ["rex", "lex", "pax", "vox"], ["king", "law", "peace", "voice"]
    sides = [[" ".join(choice.choices(own, k=5)) for _ in range(90)] for own in words]
    for name, texts in zip("ab", sides, strict=True):
        (tmp_path / name).write_text("\n".join(texts) + "\n")
    section = Section(kind=kind, size=40, shared=shared)
    data = Data(train=Pairs(source=tmp_path / "a", target=tmp_path / "b"), tokenizer=section)
    reads = []
    monkeypatch.setattr(lines_module, "require_file", lambda path: reads.append(path.name))
    fields = fit_fields(data, configure_fields(data, {"source": "text", "target": "text"}))
    made = {name: tokenizer_of(field) for name, field in fields.items()}
    assert sorted(reads) == ["a", "b"]
    wanted = [sides[0] + sides[1]] * 2 if shared else sides
    assert [made[name].digest for name in ("source", "target")] == [train_tokenizer(section, texts).digest for texts in wanted]
    assert (made["source"] is made["target"]) == shared


def test_a_pass_over_the_rows_stops_at_a_bad_one(tmp_path):
    (tmp_path / "a").write_text("x\n\n")
    data = Data(train=Pairs(target=tmp_path / "a"), tokenizer=Section(kind="word"))
    with pytest.raises(DataError, match="a:2: the target is empty"):
        fit_fields(data, configure_fields(data, {"target": "text"}))


def test_words_are_counted_in_bounded_memory(monkeypatch):
    """The rarest are forgotten, the most frequent stay."""
    monkeypatch.setattr(tokenizers_module, "SYMBOLS", 60)
    section, common = Section(kind="word", size=24), [f"w{number}" for number in range(20)]
    fitter = fitter_of(section)
    assert isinstance(fitter, tokenizers_module.SymbolFitter)
    for number in range(500):
        fitter.add([" ".join(common[: 20 - number % 5]) + f" rare{number}"])
        assert len(fitter.counts) <= 60
    tokenizer = fitter.finish()
    wanted = [*sorted(common[:16]), *common[16:]]
    assert tokenizer.pieces(range(4, 24)) == [f"▁{word}" for word in wanted]
    assert tokenizer.trained_on == "counts without the rarest words, for there are more than 60"
    assert train_tokenizer(section, [" ".join(common)]).trained_on is None


def test_a_tokenizer_says_that_it_saw_a_sample(monkeypatch):
    texts = [f"salve {number % 90}" for number in range(300)]
    assert train_tokenizer(Section(kind="unigram", size=60), texts).trained_on is None
    monkeypatch.setattr(subwords, "LETTERS", 1500)
    told = train_tokenizer(Section(kind="unigram", size=60), texts).trained_on
    assert told is not None
    assert told.startswith("a sample of ")
    assert told.endswith(" of 300 lines")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_long_lines_and_a_large_alphabet_train(kind):
    letters = [chr(0x4E00 + number) for number in range(900)]
    lines = ["".join(random.Random(seed).choices(letters, k=9_000)) for seed in range(3)]
    tokenizer = train_tokenizer(Section(kind=kind, size=1500), lines)
    assert tokenizer.decode(tokenizer.encode([lines[0]])[0]) == lines[0]


DAMAGES = ["", "{}", "[]", "[" * 100_000, '{"format": 1, "kind": "none"}', '{"format": 1, "kind": []}', '{"format": 2}']
DAMAGES += ['{"format": 1, "kind": "word", "symbols": "abc", "lowercase": false}', '{"format": 1, "kind": "bpe"}', "\xff"]


@pytest.mark.parametrize("content", DAMAGES)
def test_a_damaged_description_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(DamagedError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_damaged_model_is_refused(tmp_path):
    trained("bpe").save(tmp_path)
    model = tmp_path / "pieces.model"
    for content in b"", b"x" * 100, model.read_bytes()[:-1]:
        model.write_bytes(content)
        with pytest.raises(DamagedError, match=r"pieces\.model"):
            load_tokenizer(tmp_path)
    model.unlink()
    with pytest.raises(DamagedError, match=r"pieces\.model"):
        load_tokenizer(tmp_path)


CODE = [
    ("call re.escape with 'a b', \"c\".", ["call", "re", "", ".", "", "escape", "with", "'a b'", "", ",", '"c"', "", "."]),
    ("x = u'it\\'s' + r\"%s\"", ["x", "=", "u'it\\'s'", "+", 'r"%s"']),
    ("don't, the users' lists'", ["don", "", "'", "", "t", "", ",", "the", "users", "", "'", "lists", "", "'"]),
    ("if  x_1 :\n\treturn ''", ["if", " ", " ", "x_1", ":", "\n", "\t", "return", "''"]),
    ("f('x')'y", ["f", "", "(", "", "'x'", "", ")", "", "'", "", "y"]),
]


@pytest.mark.parametrize(("text", "symbols"), CODE)
def test_code_is_cut_at_quotes_names_and_signs(text, symbols):
    tokenizer = train_tokenizer(Section(kind="code"), [text])
    assert TOKENIZERS["code"].split(text) == symbols
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


def test_a_name_is_the_same_token_whatever_stands_beside_it():
    """So a source's `escape.` can be copied into a target's `escape (`."""
    tokenizer = train_tokenizer(Section(kind="code"), ["call re.escape.", "re . escape ( )"])
    source, target = tokenizer.surfaces(["call re.escape.", "re . escape ( )"])
    assert b" escape" in source
    assert b" escape" in target
    assert tokenizer.decode([5, len(tokenizer)], [b" unheard"]).endswith("unheard")


def test_glue_that_is_not_known_only_separates():
    tokenizer = train_tokenizer(Section(kind="code"), ["f ( x )"])
    assert tokenizer.decode(tokenizer.encode(["f(x)"])[0]) == "f ( x )"
    assert len(tokenizer.surfaces(["f(x)"])[0]) == 4


@given(st.text("a1_'\" .(\\\t\n"))
def test_any_code_comes_back(text):
    if text:
        tokenizer = train_tokenizer(Section(kind="code"), [text])
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_only_the_first_tokens_are_read_where_a_text_is_long(kind, tmp_path):
    section = Section(kind=kind, size=120)
    whole, tokenizer = (train_tokenizer(one, corpus()) for one in (section, section.model_copy(update={"longest": 3})))
    lines = [*corpus()[:20], ""]
    assert tokenizer.encode(lines) == [ids[:3] for ids in whole.encode(lines)]
    assert tokenizer.surfaces(lines) == [row[:3] for row in whole.surfaces(lines)]
    assert tokenizer.digest != whole.digest
    assert any("first 3 tokens" in remark for remark in tokenizer.remarks)
    tokenizer.save(tmp_path / "kept")
    assert load_tokenizer(tmp_path / "kept").encode(lines) == tokenizer.encode(lines)


def test_a_damaged_number_of_tokens_is_named(tmp_path):
    train_tokenizer(Section(kind="word", longest=3), ["a b"]).save(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text().replace('"longest": 3', '"longest": -3'))
    with pytest.raises(DamagedError, match="no tokenizer can be read"):
        load_tokenizer(tmp_path)
