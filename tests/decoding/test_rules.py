"""Rules wrap a step: every search obeys them without knowing them, and a new one is a class and a line of RULES."""

import itertools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from tiny import END, FEW, START, batch, tiny

from regard.data.batching import reading
from regard.data.fields import texts
from regard.data.tokenizers import PAD, CharacterTokenizer
from regard.decoding.beam import beam_search
from regard.decoding.generator import TrainedGenerator
from regard.decoding.greedy import greedy_search
from regard.decoding.rules import RULES, DecodingRule, MaxLength, Request, requested, ruled
from regard.decoding.sampling import Sampling, sample
from regard.errors import InputError
from regard.models.directory import Bundle
from regard.models.interface import Step
from regard.recipe import Decoding

VOCABULARY, BANNED, LEAST, MOST = 6, 5, 2, 3
PATTERN = "a(b|⁇b)?|[^!]b?|bb.b"


class BannedWord(DecodingRule):
    """The simplest there is: no State at all."""

    @classmethod
    def requested(cls, request):
        return cls()

    def start(self):
        return None

    def apply(self, step, words, state):
        return step.forbid(torch.arange(step.log_probs.shape[1])[None] == BANNED), state


class MinLength(BannedWord):
    """A word that is forbidden for a while: END."""

    @classmethod
    def requested(cls, request):
        return cls(torch.zeros_like(request.lengths))

    def __init__(self, written):
        self.written = written

    def start(self):
        return self.written

    def apply(self, step, words, written):
        ends = torch.arange(step.log_probs.shape[1]) == END
        return step.forbid((written < LEAST)[:, None] & ends), written + 1


class NoWordTwice(MinLength):
    """Knows the words so far; a beam that did not re-order its State would hold a hypothesis to its neighbour's words."""

    def start(self):
        return self.written.new_zeros(len(self.written), 99, dtype=torch.bool)

    def apply(self, step, words, seen):
        seen = seen.scatter(1, words[:, None], True)
        repeated = seen[:, : step.log_probs.shape[1]].clone()
        repeated[:, END] = False
        return step.forbid(repeated), seen


class OtherThanTheFirst(BannedWord):
    """Knows the source: its first word is not written. What belongs to a sentence is found by the sentence's number."""

    @classmethod
    def requested(cls, request):
        return cls(request.batch["source"].values[:, 0])

    def __init__(self, first):
        self.first = first

    def start(self):
        return torch.arange(len(self.first))

    def apply(self, step, words, sentence):
        return step.forbid(self.first[sentence][:, None] == torch.arange(step.log_probs.shape[1])), sentence


MADE_UP = {"banned": BannedWord, "least": MinLength, "no_word_twice": NoWordTwice, "other": OtherThanTheFirst}


class Oracle(NamedTuple):
    """What a rule means, told without steps."""

    settings: dict[str, Any]  # that ask for it
    allows: Callable[..., bool] = lambda source, words: True  # of an output's tokens, END included where it has one
    worth: Callable[..., Any] = lambda log_probs, words: log_probs  # of each word


ORACLES = {
    "max_length": Oracle({}, lambda source, words: len(words) <= MOST and (words[-1] == END or len(words) == MOST)),
    "min_length": Oracle({"min_length": 1, "min_ratio": 1.0},
                         lambda source, words: len(closed(words)) >= max(1, len(source) - 1)),
    "no_repeat_ngram": Oracle({"no_repeat_ngram": 2}, lambda source, words: without_twins(closed(words), 2)),
    "repetition_penalty": Oracle({"repetition_penalty": 1.7}, worth=lambda log_probs, words: [
        one * (1.7 if word in words[:at] else 1) for at, (one, word) in enumerate(zip(log_probs, words, strict=True))
    ]),
    "prefix": Oracle({"prefix": "ab"}, lambda source, words: text_of(words).startswith("ab")),
    "ban": Oracle({"ban": ["a", "b⁇"]}, lambda source, words: not re.search(r"(?<!\w)a(?!\w)|(?<!\w)b⁇|!", text_of(words))),
    "only_words": Oracle({"only_words": "words.txt"}, lambda source, words: set(text_of(words).split()) <= {"ab", "⁇b", "aa"}),
    "pattern": Oracle({"pattern": PATTERN}, lambda source, words: re.fullmatch(PATTERN, text_of(words))),
    "must": Oracle({"must": ["ab", "ba"]}, lambda source, words: all(one in spelled(words) for one in ("<4><5>", "<5><4>"))),
    "banned": Oracle({}, lambda source, words: BANNED not in words),
    "least": Oracle({}, lambda source, words: END not in words[:LEAST]),
    "no_word_twice": Oracle({}, lambda source, words: len({START, *words}) == len(words) + 1),
    "other": Oracle({}, lambda source, words: source[0] not in words),
}  # fmt: skip


TARGET = CharacterTokenizer(["a", "b"])


def text_of(words):
    """Their text; tokens that stand for none are not to be written under a rule for texts."""
    return "!" if {PAD, START} & set(words) else TARGET.decode(words)


def spelled(words):
    return "".join(f"<{word}>" for word in words)


def closed(words):
    return [word for word in words if word != END]


def without_twins(words, size):
    ngrams = [tuple(words[at : at + size]) for at in range(len(words) - size + 1)]
    return len(set(ngrams)) == len(ngrams)


@pytest.fixture
def rules(monkeypatch):
    """With a line for each made-up rule."""
    for name, rule in MADE_UP.items():
        monkeypatch.setitem(RULES, name, rule)
    return RULES


def test_every_rule_has_an_oracle():
    assert ORACLES.keys() - MADE_UP.keys() == RULES.keys()


def every_output(model, source, oracles, penalty=0.7):
    """Log-probabilities by the model itself and by what the rules make of them; best first."""
    found = []
    for size in range(1, MOST + 1):
        outputs = [words for words in itertools.product(range(VOCABULARY), repeat=size) if END not in words[:-1]]
        outputs = [words for words in outputs if all(oracle.allows(source, words) for oracle in oracles)]
        if outputs:
            inputs = torch.tensor([[START, *words[:-1]] for words in outputs])
            rows = reading(torch.tensor([source] * len(outputs)), torch.tensor([len(source)] * len(outputs)))
            each = model(rows, inputs).log_softmax(-1).gather(2, torch.tensor(outputs)[..., None]).squeeze(2).tolist()
            for log_probs, words in zip(each, outputs, strict=True):
                for oracle in oracles:
                    log_probs = oracle.worth(log_probs, words)
                found.append((sum(log_probs) / size**penalty, closed(words)))
    return sorted(found, reverse=True)


def asked(source, lengths, names):
    changes = {key: value for name in names for key, value in ORACLES[name].settings.items()}
    return Request(Decoding(max_length=MOST, **changes), reading(source, lengths), lengths, target=TARGET)


ALONE = [[name] for name in ORACLES]
TOGETHER = [name for name in RULES if name not in ("only_words", "must")]  # which leave nothing of so short outputs


@pytest.fixture(autouse=True)
def words_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("ab ⁇b\naa")


@pytest.mark.parametrize("names", [*ALONE, list(MADE_UP), TOGETHER], ids="-".join)
@pytest.mark.parametrize("setting", FEW)
@torch.no_grad()
def test_a_wide_beam_finds_the_ranking_that_enumeration_finds(setting, names, monkeypatch):
    for name in set(names) & MADE_UP.keys():
        monkeypatch.setitem(RULES, name, MADE_UP[name])
    model, sources = tiny(FEW[setting], vocabulary=VOCABULARY, scale=2.5), [[4, 5, 4], [1, 4]]
    source, lengths = batch(*sources)
    step, state = ruled(*model.start(model.encode(reading(source, lengths))), requested(asked(source, lengths, names)))
    oracles = [ORACLES[name] for name in {"max_length", *names}]
    expected = [every_output(model, row, oracles) for row in sources]
    start = torch.full_like(lengths, START)
    found = beam_search(step, state, start, width=300, end=END, length_penalty=0.7)
    assert all(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [one.score for one in ours] == pytest.approx([score for score, _ in theirs], abs=1e-4)
        assert [one.tokens for one in ours[:12]] == [tokens for _, tokens in theirs[:12]]
        assert len({tuple(one.tokens) for one in ours}) == len(theirs)
    drawn = sample(step, state, start, chances=torch.rand(2, 30, MOST).double(), end=END, sampling=Sampling())
    for searched in (greedy_search(step, state, start, end=END), drawn):
        for ours, theirs in zip(searched, expected, strict=True):
            assert all(one.tokens in [tokens for _, tokens in theirs] for one in ours)


@pytest.fixture
def trained():
    source, target = CharacterTokenizer([" ", "b"]), TARGET
    model = tiny(FEW["gru-additive-into_cell"], vocabulary=len(target), scale=2.0)
    model.decoder.output.bias.data[END] += 2
    return TrainedGenerator(Bundle(model, texts(source, target), Decoding(beam=3, length_penalty=0.5, max_length=7)))


TEXTS = ["b b ", " ", "bb b bb ", "b?b", "? b"]


@pytest.mark.parametrize("way", ["greedy", "beam", "sample"])
def test_an_input_gives_the_same_output_alone_and_in_any_batch(trained, rules, way):
    def answers(texts):
        found = trained.sample(texts, 4) if way == "sample" else trained.search(texts, beam=1 if way == "greedy" else 3)
        return [[one.tokens for one in each] for each in found]

    together = answers(TEXTS)
    assert answers(TEXTS[::-1])[::-1] == together
    assert [answers([text])[0] for text in TEXTS] == together
    written = {word for each in together for tokens in each for word in tokens}
    assert BANNED not in written
    assert len(written) > 1
    assert all(len(tokens) >= LEAST for each in together for tokens in each)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("way", ["greedy", "beam", "sample"])
def test_with_every_rule_an_input_gives_the_same_output_in_any_company(trained, name, way):
    def answers(texts):
        changes = {"beam": {"greedy": 1, "beam": 3, "sample": 4}[way], "max_length": 7, **ORACLES[name].settings}
        drawn = Sampling() if way == "sample" else None
        found = trained.answer(texts, trained.settings(**changes), drawn).results
        return [each and [one.tokens for one in each] for each in found]

    together = answers(TEXTS)
    assert sum(bool(each) for each in together) > 1
    assert answers(TEXTS[::-1])[::-1] == together
    assert [answers([text])[0] for text in TEXTS] == together
    for text, found in zip(TEXTS, together, strict=True):
        (source,) = trained.source.encode([text])
        assert name == "max_length" or all(ORACLES[name].allows([*source, END], [*tokens, END]) for tokens in found or ())


def test_what_is_forbidden_makes_nothing_else_more_probable(trained, rules):
    for text, found in zip(TEXTS, trained.sample(TEXTS, 4), strict=True):
        closed = [one for one in found if len(one.tokens) < 7 and trained.target.encode([one.text])[0] == one.tokens]
        scored = trained.score([(text, one.text) for one in closed])
        assert [one.log_prob for one in closed] == pytest.approx([one.log_prob for one in scored], abs=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
def test_where_nothing_is_allowed_nothing_is_found(trained, monkeypatch, beam):
    class Nothing(BannedWord):
        def apply(self, step, words, state):
            return step.forbid(torch.ones(1, 1, dtype=torch.bool)), state

    monkeypatch.setitem(RULES, "nothing", Nothing)
    for ask in (
        trained.search,
        trained.generate,
        lambda texts, beam: trained.sample(texts, beam, Sampling(top_k=2, top_p=0.5)),
    ):
        with pytest.raises(InputError, match="keeps to all rules") as caught:
            ask([*TEXTS, ""], beam=beam)
        assert caught.value.problems.keys() == set(range(len(TEXTS)))
        assert caught.value.results == [None] * len(TEXTS) + [[] if ask != trained.generate else ""]


def test_a_rule_may_cut_one_hypothesis_and_leave_its_neighbours():
    """After the word 0 an output ends as it stands; others go on to the limit."""

    class CutAfterZero(BannedWord):
        def start(self):
            return torch.zeros(1, dtype=torch.bool)

        def apply(self, step, words, zero):
            return step.cut(words == 0), zero

    table = torch.tensor([[0.5, 0.4, 0.0, 0.1]]).log()
    limited = ruled(lambda words, state: Step(table.expand(len(words), -1), None, state), torch.zeros(1, 1),
                    [MaxLength(torch.tensor([3])), CutAfterZero()])  # fmt: skip
    (found,) = beam_search(*limited, torch.tensor([2]), width=40, end=3)
    written = {tuple(one.tokens) for one in found}
    assert written == {
        (), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1),
        (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1),
    }  # fmt: skip
