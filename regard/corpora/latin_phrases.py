"""Phrases of the Latin corpus in both languages: nouns with what belongs to them, verbs, places.

Every Latin word has a key, and each English word bears the key of the Latin word it renders: that is the alignment.
"""

from collections.abc import Sequence
from itertools import count
from random import Random
from typing import NamedTuple, TypeVar

from regard.corpora.latin_inflection import NUMBERS, TENSES, Case, Number, Tense
from regard.corpora.latin_words import (
    ADVERBS_OF_BEING,
    AND,
    COPULA,
    PREPOSITIONS,
    Adjective,
    Kind,
    Lexicon,
    Noun,
    Verb,
)

T = TypeVar("T")
ACTORS: tuple[Kind, ...] = ("name", "person", "animal")
OBJECTS: dict[str, tuple[Kind, ...]] = {
    "person": ACTORS,
    "thing": ("thing",),
    "any": (*ACTORS, "thing"),
    "place": ("place", "landmark", "way"),
}
PLACES = {
    "motion": [preposition for preposition in PREPOSITIONS if preposition.motion is not False],
    "location": [preposition for preposition in PREPOSITIONS if preposition.motion is False],
}
AT_REST = [preposition for preposition in PREPOSITIONS if not preposition.motion]


class Word(NamedTuple):
    text: str
    key: int


class Phrase(NamedTuple):
    """The same in both languages."""

    latin: list[Word]
    english: list[Word]
    turns: bool = False  # noun adjective: the adjective comes first, if it may
    bare: bool = False  # ends in a noun that could take another adjective
    lean: float = 0.0  # to the clause's beginning or its end


NOTHING = Phrase([], [])


class Frame(NamedTuple):
    """What a clause is about: the act or state, its verb's number and tense, and whether nouns may have clauses."""

    act: str
    number: Number
    tense: Tense
    relatives: bool = False


class Phrases:
    """Draws phrases. Only `random()` is used, which Python keeps the same in all versions."""

    def __init__(self, words: Lexicon, seed: str) -> None:
        self.random = Random(seed).random
        self.keys = count()
        self.adverbs = words.adverbs
        self.nouns: dict[Kind, list[Noun]] = {"name": list(words.names)}
        for noun in words.nouns:
            self.nouns.setdefault(noun.kind, []).append(noun)
        self.owners = {(gives, number): owners(words, gives, number) for gives in (False, True) for number in NUMBERS}
        self.adjectives = {suits: [a for a in words.adjectives if a.suits in (suits, "any")] for suits in SUITS}
        self.verbs: dict[tuple[str, Tense], list[Verb]] = {}
        for verb in words.verbs:
            for tense in (tense for tense in TENSES if (tense, "singular") in verb.forms):
                self.verbs.setdefault((verb.use, tense), []).append(verb)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def word(self, text: str) -> Word:
        return Word(text, next(self.keys))

    def noun(self, kind: Kind) -> Noun:
        return self.pick(self.nouns[kind])

    def number(self, noun: Noun, plural: float = 0.35) -> Number:
        return "plural" if noun.kind != "name" and self.chance(plural) else "singular"

    def adjective(self, noun: Noun) -> Adjective:
        return self.pick(self.adjectives["person" if noun.kind in ACTORS else "thing"])

    def noun_phrase(self, noun: Noun, case: Case, number: Number, frame: Frame) -> Phrase:
        """The noun, perhaps with an adjective (unless the clause says a quality of it) and an owner."""
        word = self.word(noun.forms[case, number])
        head = Word(noun.english[number], word.key)
        if noun.kind == "name":
            return Phrase([word], [head])
        attributed = frame.act != "quality" and self.chance(0.3)
        adjective = self.quality(noun, case, number) if attributed else NOTHING
        owner = self.owner(frame) if self.chance(0.12) else NOTHING
        return Phrase(
            [word, *adjective.latin, *owner.latin],
            [Word("the", word.key), *adjective.english, head, *owner.english],
            turns=attributed and self.chance(0.5),
            bare=not (attributed or owner.latin),
        )

    def quality(self, noun: Noun, case: Case, number: Number) -> Phrase:
        """An adjective that agrees with the noun."""
        adjective = self.adjective(noun)
        word = self.word(adjective.forms[noun.gender, case, number])
        return Phrase([word], [Word(adjective.english, word.key)])

    def owner(self, frame: Frame) -> Phrase:
        noun, number = self.pick(self.owners[frame.act == "give", frame.number])
        word = self.word(noun.forms["genitive", number])
        texts = ("of", "the", noun.english[number]) if noun.kind != "name" else ("of", noun.english[number])
        return Phrase([word], [Word(text, word.key) for text in texts])

    def coordinated(self, nouns: Sequence[Noun], case: Case, numbers: Sequence[Number]) -> Phrase:
        """servus et puella: nouns alone, so that no adjective or owner could belong to one or both."""
        first, second = (self.alone(noun, case, number) for noun, number in zip(nouns, numbers, strict=True))
        word = self.word(AND.latin)
        return Phrase([*first.latin, word, *second.latin], [*first.english, Word(AND.english, word.key), *second.english])

    def alone(self, noun: Noun, case: Case, number: Number) -> Phrase:
        word = self.word(noun.forms[case, number])
        article = [] if noun.kind == "name" else [Word("the", word.key)]
        return Phrase([word], [*article, Word(noun.english[number], word.key)])

    def place(self, frame: Frame) -> Phrase:
        """in horto, ad magnum templum, cum Metella; right after a preposition an adjective may always stand."""
        preposition = self.pick(PLACES.get(frame.act, AT_REST))
        noun = self.noun(self.pick(preposition.kinds))
        phrase = self.noun_phrase(noun, preposition.case, self.number(noun, plural=0.15), frame)
        word = self.word(preposition.latin)
        english = [*(Word(text, word.key) for text in preposition.english.split()), *phrase.english]
        return Phrase([word, *(turned(phrase) if phrase.turns else phrase.latin)], english, bare=phrase.bare)

    def verb(self, verbs: Sequence[Verb], frame: Frame) -> list[Phrase]:
        """[non] verb, and perhaps an adverb anywhere in Latin; in English: did [not] [often] see."""
        verb, roll = self.pick(verbs), self.random()
        tense: Tense = "imperfect" if verb is COPULA and frame.tense == "perfect" else frame.tense
        word = self.word(verb.forms[tense, frame.number])
        auxiliary, main = english_verb(verb, tense, frame.number, negated=roll < 0.15)
        negation = self.render("non", "not") if roll < 0.15 else NOTHING
        adverb = self.adverb(verb) if roll > 0.8 else NOTHING
        texts = [*named(auxiliary, word), *negation.english, *adverb.english, *named(main, word)]
        phrase = Phrase([*negation.latin, word], texts, lean=0.4)
        return [phrase, Phrase(adverb.latin, [])] if adverb.latin else [phrase]

    def adverb(self, verb: Verb) -> Phrase:
        return self.render(*self.pick(ADVERBS_OF_BEING if verb is COPULA else self.adverbs))

    def render(self, latin: str, english: str) -> Phrase:
        word = self.word(latin)
        return Phrase([word], [Word(english, word.key)])


def turned(phrase: Phrase) -> list[Word]:
    noun, adjective, *others = phrase.latin
    return [adjective, noun, *others]


def named(text: str, origin: Word) -> list[Word]:
    return [Word(text, origin.key)] if text else []


def coincides(noun: Noun, one: tuple[Case, Number], other: tuple[Case, Number]) -> bool:
    """Whether two forms look the same. Names have no plural."""
    return noun.forms[one] == noun.forms[other] and not (noun.kind == "name" and other[1] == "plural")


def owners(words: Lexicon, gives: bool, number: Number) -> list[tuple[Noun, Number]]:
    """Genitives that nothing else in the clause can look like: no nominative of its number, no dative if one is due."""
    taken: list[tuple[Case, Number]] = [("nominative", number), ("nominative", "singular")]
    taken += [("dative", "singular"), ("dative", "plural")] if gives else []
    candidates: list[tuple[Noun, Number]] = [(noun, "singular") for noun in words.names]
    candidates += [(noun, each) for noun in words.nouns if noun.kind == "person" for each in NUMBERS]
    return [(noun, each) for noun, each in candidates if not any(coincides(noun, ("genitive", each), slot) for slot in taken)]


def english_verb(verb: Verb, tense: Tense, number: Number, negated: bool) -> tuple[str, str]:
    """What comes before `not` and the adverb, and what after: is -, - sees, does see, was seeing, - saw, did see."""
    single = number == "singular"
    if verb is COPULA:
        return BEING[tense, number], ""
    if tense == "imperfect" and not verb.stative:
        return BEING[tense, number], verb.participle
    if tense == "present":
        return ("does" if single else "do", verb.base) if negated else ("", verb.present if single else verb.base)
    return ("did", verb.base) if negated else ("", verb.past)


SUITS = ("person", "thing")
BEING: dict[tuple[Tense, Number], str] = {
    ("present", "singular"): "is",
    ("present", "plural"): "are",
    ("imperfect", "singular"): "was",
    ("imperfect", "plural"): "were",
}
