"""What the text of an output must be like: automata against `re`, tokens against texts, inputs that each ask for their own."""

import itertools
import json
import random
import re

import pytest
import torch

from regard.data.tokenizers import TOKENIZERS, train_tokenizer
from regard.decoding.beam import allocate
from regard.decoding.rules.automata import Beginning, OnlyWords, Without
from regard.decoding.rules.lifted import Lifted, Place
from regard.decoding.rules.must import missing
from regard.decoding.rules.regex import Pattern
from regard.errors import InputError, InputTypeError, UserError
from regard.recipe import Tokenizer

TEXTS = ["the cat sat on the mat.", "foo(bar, 'baz q') + 1", " two  spaces\tand a tab", "猫がいる x 2026-11-18", "1:05 am"]


def accepted(automaton, text):
    state = automaton.start
    for character in text:
        if (state := automaton.step(state, character)) is None:
            return False
    return automaton.accepts(state)


@pytest.mark.parametrize(
    "expression",
    ["a*b", "(a|bc)+", "[^a]{2,3}c?", "(ab?){0,2}c*", r"\w+ \d", ".", "", "(a|)b", "a??b+?", "[a-b]*c", "(?:a(?:b|c))*",
     "c{3,}|a", r"\S\s?\D", "((a*)*b)*"],
)  # fmt: skip
def test_a_pattern_is_what_re_takes_it_for(expression):
    for size in range(5):
        for text in map("".join, itertools.product("abc 1\n", repeat=size)):
            assert accepted(Pattern(expression), text) == bool(re.fullmatch(expression, text))


@pytest.mark.parametrize(
    ("expression", "told"),
    [("(", "no regular expression"), ("(?=a)b", "not known"), (r"(a)\1", "a reference to a group"), ("^a", "whole output"),
     ("(?i)a", "flags"), ("((a{99}){99}){99}", "places")],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(expression, told):
    with pytest.raises(UserError, match=re.escape(told)):
        Pattern(expression)


def test_words_are_banned_as_words():
    banned = ["ab", "b a", "猫", "-a"]
    words = re.compile(r"(?<!\w)(ab|b a)(?!\w)|猫|-a(?!\w)")
    found = set()
    for size in range(6):
        for text in map("".join, itertools.product("ab -猫", repeat=size)):
            spaced = re.sub("猫", " 猫 ", text)  # its script has no spaces: it is never a part of a word beside it
            assert accepted(Without(banned), text) == (words.search(spaced) is None), text
            found.add(words.search(spaced) is None)
    assert found == {True, False}


def test_a_text_of_known_words_and_a_beginning():
    for size in range(6):
        for text in map("".join, itertools.product("ab ", repeat=size)):
            assert accepted(OnlyWords(["a", "abb", "ba"]), text) == (set(text.split()) <= {"a", "abb", "ba"})
            assert accepted(Beginning("ab"), text) == text.startswith("ab")


def tokenizer_of(kind):
    return train_tokenizer(Tokenizer(kind=kind, size=400 if kind.startswith("word") else 90), TEXTS * 3)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_what_tokens_add_is_the_text(kind):
    tokenizer, chance = tokenizer_of(kind), random.Random(1)
    for _ in range(500):
        ids, text, bare = [chance.randrange(len(tokenizer)) for _ in range(chance.randint(0, 7))], b"", True
        for token in ids:
            text += tokenizer.added(tokenizer.spellings[token], bare)
            bare = tokenizer.bare_after(token, tokenizer.spellings[token], bare)
        added, decoded = text.decode(errors="replace"), tokenizer.decode(ids)
        assert added.strip(" ") == decoded if kind.endswith("_nfkc") else added == decoded


@pytest.mark.parametrize("kind", ["unigram", "byte", "word", "code"])
@pytest.mark.parametrize(
    "expression", [r"\w+( \w+)*\.?", r"猫.*\d{4}-\d\d-\d\d", r"\d:\d\d (am|pm)", r"[^c]*cat.*", r"\w+\((\w+, )*.*\) \+ \d"]
)
def test_tokens_are_allowed_where_some_text_goes_on_so(kind, expression):
    """Every walk over what is allowed spells a text that matches, and every text that matches can be walked."""
    tokenizer, chance = tokenizer_of(kind), random.Random(2)
    lifted, matched = Lifted(Pattern(expression), tokenizer, []), 0
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        place = Place(lifted.automaton.start)
        for token in ids:
            place = lifted.next(place).get(token) if place else None
        assert (place is not None and lifted.accepts(place)) == bool(re.fullmatch(expression, tokenizer.decode(ids)))
        matched += bool(re.fullmatch(expression, text))
    assert matched
    for _ in range(30):
        place, ids = Place(lifted.automaton.start), []
        for _ in range(12):
            if lifted.next(place):
                ids.append(chance.choice(list(lifted.next(place))))
                place = lifted.next(place)[ids[-1]]
            if lifted.accepts(place):
                assert re.fullmatch(expression, tokenizer.decode(ids))


@pytest.mark.parametrize("phrases", [((4, 5), (5, 4)), ((4,), (4, 4, 5), (5,)), ((4, 5, 6), (6, 4), (5, 6))])
def test_how_many_words_are_missing(phrases):
    def has_all(text):
        return all(any(text[at : at + len(one)] == one for at in range(len(text))) for one in phrases)

    shortest = next(size for size in range(9) if any(map(has_all, itertools.product((4, 5, 6), repeat=size))))
    assert missing(phrases, (0,) * len(phrases)) == shortest


def test_a_beam_is_shared_out_to_banks_in_turn():
    totals, banks = torch.randn(5, 30), torch.randint(0, 3, (5, 30))
    totals[0, banks[0] == 2] = -torch.inf
    best, chosen = allocate(totals, banks, 8)
    for row in range(5):
        each = [sorted((at for at in range(30) if banks[row, at] == level and totals[row, at] > -torch.inf),
                       key=lambda at: -totals[row, at].item()) for level in (2, 1, 0)]  # fmt: skip
        turns = [one for turn in itertools.zip_longest(*each) for one in turn if one is not None]
        assert chosen[row].tolist() == turns[:8]
        assert best[row].tolist() == totals[row, turns[:8]].tolist()


SOURCES = ["b b ", " ", "bb b bb "]


def test_every_input_may_ask_for_its_own(trained_letters):
    asked = [{"prefix": "ba"}, None, {"must": ["bab"], "ban": "a"}]
    for beam in (1, 2, 6):
        found = trained_letters.generate(SOURCES, beam=beam, constraints=asked, max_length=12)
        assert found[0].startswith("ba")
        assert found[1] == trained_letters.generate(SOURCES[1], beam=beam, max_length=12)
        assert "bab" in found[2]
        one = trained_letters.generate(SOURCES[0], beam=beam, constraints=asked[0], max_length=12)
        assert one == found[0]
    assert all(one.text == "ab" for one in trained_letters.sample(SOURCES[0], 3, pattern="ab"))


def test_banks_find_what_is_forced_too_late_without_them(trained_letters):
    def best(beam):
        (found,) = trained_letters.search(SOURCES[:1], beam=beam, must=["abba"], max_length=9, length_penalty=0.0)
        assert all("abba" in one.text for one in found)
        return found[0].score

    assert best(8) > best(1)


def test_what_cannot_be_met_fails_alone(trained_letters):
    asked = [{"pattern": "("}, {"prefix": "ab", "ban": ["ab"], "pattern": "ab"}, {"must": ["z"]}, {"must": ["ab" * 9]},
             {"musst": ["a"]}, {"prefix": 5}, {}]  # fmt: skip
    texts = ["b"] * len(asked)
    with pytest.raises(InputError) as caught:
        trained_letters.generate(texts, constraints=asked, max_length=9)
    told = caught.value.problems
    assert list(told) == [0, 1, 2, 3, 4, 5]
    assert "no regular expression" in told[0]
    assert "no output was found that keeps to all rules (prefix, ban, pattern)" in told[1]
    assert "cannot spell 'z'" in told[2]
    assert "max_length=9" in told[3]
    assert "did you mean 'must'" in told[4]
    assert "prefix: input should be a valid string" in told[5]
    assert caught.value.results[6] == trained_letters.generate("b", max_length=9)
    with pytest.raises(InputTypeError, match="one dict for each text"):
        trained_letters.generate(texts, constraints=asked[:2])


def test_json_lines_ask_for_their_own(trained_letters, tmp_path):
    from calling import regard
    from test_sampling import write_model

    model = write_model(trained_letters, tmp_path / "model")
    lines = [{"id": 1, "source": "b", "prefix": "ba"}, {"source": " b", "must": ["ab"]}, "b", {"source": "b", "prefix": 3}]
    result = regard("generate", model, "--jsonl", "ban=[a]", "max_length=9", stdin="\n".join(map(json.dumps, lines)).encode())
    found = [json.loads(line) for line in result.lines]
    assert result.code == 2
    assert found[0]["output"].startswith("ba")
    assert found[0]["id"] == 1
    assert "ab" in found[1]["output"]
    assert not any(re.search(r"\ba\b", one["output"]) for one in found[:3])
    assert "prefix" in found[3]["error"]
