"""A grammar of Latin with its English, made so that a Latin sentence has one translation only.

Latin order is free and many forms coincide (puellae: of the girl, to the girl, the girls), so the grammar keeps rules:
- commas part the clauses, every clause has one verb, and nothing that the verb needs is left out;
- only names, persons and animals do anything, so a neuter is the object (or the subject of `est`);
- ablatives follow a preposition at once; genitives follow their noun; an adjective stands by its noun, and after it
  where the word before is a noun that could claim it (`order`);
- a plural verb admits no genitive like a nominative plural (`owners`) and no object like milites (`object_number`);
- where something is given, no genitive looks like a dative, and no dative like the givers (`recipient`).
"""

from collections.abc import Sequence

from regard.corpora.corpus import Pair
from regard.corpora.latin_inflection import RELATIVE, TENSES, Number, Tense
from regard.corpora.latin_phrases import ACTORS, OBJECTS, Frame, Phrase, Phrases, Word, coincides, turned
from regard.corpora.latin_words import AND, BUT, COPULA, NOUNS, SUBORDINATORS, Joiner, Kind, Noun

ACTS = ("rest", "rest", "motion", "motion", "object", "object", "object", "object", "give", "give")
STATES = ("quality", "location")
USES = ("person", "person", "person", "thing", "thing", "any", "any", "place")
SUBJECT_LEANS, PRONOUN_LEANS = -0.4, -9.0  # subjects rather early, relative pronouns always first


class Grammar(Phrases):
    """Draws sentences of any number of clauses."""

    def sentence(self, num_clauses: int) -> Pair:
        tense = self.pick(TENSES)
        latin: list[Word] = []
        english: list[Word] = []
        for index, joiner in enumerate(self.joiners(num_clauses, tense)):
            opening = [self.word(",")] if index else []
            clause = self.joined(joiner, tense)
            latin += [*opening, *clause.latin]
            english += [*opening, *clause.english]
        stop = self.word(".")
        return align([*latin, stop], [*english, stop])

    def joiners(self, num_clauses: int, tense: Tense) -> list[Joiner | None]:
        """What each clause begins with; the main clause, first or second, with nothing."""
        subordinators = [joiner for joiner in SUBORDINATORS if tense in joiner.tenses]
        later = [self.pick((AND, BUT, *subordinators)) for _ in range(num_clauses - 1)]
        if later and self.chance(0.4):
            return [self.pick(subordinators), None, *later[1:]]
        return [None, *later]

    def joined(self, joiner: Joiner | None, tense: Tense) -> Phrase:
        if joiner is None:
            return self.clause(tense)
        word = self.render(joiner.latin, joiner.english)
        clause = self.clause(tense)
        return Phrase(word.latin + clause.latin, word.english + clause.english)

    def clause(self, tense: Tense) -> Phrase:
        roll, relatives = self.random(), self.chance(0.25)
        if roll < 0.12:
            return self.two_subjects(Frame(self.pick((*ACTS, "location")), "plural", tense, relatives))
        if roll < 0.17:
            return self.one_subject(self.noun("name"), Frame("identity", "singular", tense, relatives))
        if roll < 0.35:
            noun = self.noun(self.pick(("name", *NOUNS)))
            return self.one_subject(noun, Frame(self.pick(STATES), self.number(noun), tense, relatives))
        noun = self.noun(self.pick(("name", "name", "person", "person", "animal")))
        return self.one_subject(noun, Frame(self.pick(acts(noun)), self.number(noun), tense, relatives))

    def one_subject(self, noun: Noun, frame: Frame) -> Phrase:
        subject = self.related(self.noun_phrase(noun, "nominative", frame.number, frame), noun, frame.number, frame)
        return self.said_of(subject, self.predicate(noun, frame), SUBJECT_LEANS)

    def two_subjects(self, frame: Frame) -> Phrase:
        nouns = self.two_nouns(("name", "person"))
        subject = self.coordinated(nouns, "nominative", [self.number(noun) for noun in nouns])
        return self.said_of(subject, self.predicate(nouns[0], frame), SUBJECT_LEANS)

    def two_nouns(self, kinds: Sequence[Kind]) -> list[Noun]:
        first = second = self.noun(self.pick(kinds))
        while second is first:
            second = self.noun(self.pick(kinds))
        return [first, second]

    def said_of(self, subject: Phrase, predicate: list[Phrase], lean: float) -> Phrase:
        english = [*subject.english, *(word for phrase in predicate for word in phrase.english)]
        return Phrase(self.order([subject._replace(lean=lean), *predicate]), english)

    def order(self, phrases: list[Phrase]) -> list[Word]:
        """Shuffled, verbs rather late; an adjective goes before its noun only where no other noun could claim it."""
        words: list[Word] = []
        bare = False
        for _, index in sorted((self.random() + phrase.lean, index) for index, phrase in enumerate(phrases)):
            phrase = phrases[index]
            words += turned(phrase) if phrase.turns and not bare else phrase.latin
            bare = phrase.bare
        return words

    def predicate(self, noun: Noun, frame: Frame) -> list[Phrase]:
        """The verb and its complements, in the order of English."""
        if frame.act in ("rest", "motion"):
            return [*self.verb(self.verbs[frame.act, frame.tense], frame), *self.perhaps_place(frame, 0.6)]
        if frame.act == "object":
            use = self.pick(USES)
            verb = self.verb(self.verbs[use, frame.tense], frame)
            return [*verb, self.object(OBJECTS[use], frame), *self.perhaps_place(frame, 0.2)]
        if frame.act == "give":
            verb = self.verb(self.verbs["give", frame.tense], frame)
            return [*verb, self.object(OBJECTS["thing"], frame), self.recipient(frame)]
        return [*self.verb([COPULA], frame), self.state(noun, frame)]

    def state(self, noun: Noun, frame: Frame) -> Phrase:
        if frame.act == "quality":
            return self.quality(noun, "nominative", frame.number)
        return self.identity(noun, frame) if frame.act == "identity" else self.place(frame)

    def identity(self, name: Noun, frame: Frame) -> Phrase:
        """Caecilius est [mercator bonus]: a noun of the name's gender, `a` in English."""
        fitting = [noun for noun in self.nouns["person"] if noun.gender == name.gender]
        phrase = self.noun_phrase(self.pick(fitting), "nominative", "singular", frame)
        article, following, *others = phrase.english
        text = "an" if following.text[0] in "aeiou" else "a"
        return phrase._replace(english=[Word(text, article.key), following, *others])

    def perhaps_place(self, frame: Frame, probability: float) -> list[Phrase]:
        return [self.place(frame)] if self.chance(probability) else []

    def object(self, kinds: Sequence[Kind], frame: Frame) -> Phrase:
        if self.chance(0.08):
            nouns = self.two_nouns(kinds)
            return self.coordinated(nouns, "accusative", [self.object_number(noun, frame) for noun in nouns])
        noun = self.noun(self.pick(kinds))
        number = self.object_number(noun, frame)
        return self.related(self.noun_phrase(noun, "accusative", number, frame), noun, number, frame)

    def object_number(self, noun: Noun, frame: Frame) -> Number:
        """No milites beside a plural verb: they might be the subject."""
        ambiguous = noun.kind in ACTORS and coincides(noun, ("accusative", "plural"), ("nominative", "plural"))
        return "singular" if ambiguous and frame.number == "plural" else self.number(noun)

    def recipient(self, frame: Frame) -> Phrase:
        """To whom something is given. No puellae beside a plural verb: the girls might give."""
        noun = self.noun(self.pick(("name", "person", "person")))
        ambiguous = coincides(noun, ("dative", "singular"), ("nominative", "plural"))
        number = "plural" if ambiguous and frame.number == "plural" else self.number(noun)
        phrase = self.noun_phrase(noun, "dative", number, frame)
        return phrase._replace(english=[Word("to", phrase.latin[0].key), *phrase.english])

    def related(self, phrase: Phrase, noun: Noun, number: Number, frame: Frame) -> Phrase:
        """The phrase, perhaps with a relative clause between commas."""
        if not (frame.relatives and self.chance(0.5)):
            return phrase
        opening, closing = self.word(","), self.word(",")
        clause = self.relative(noun, number, frame.tense)
        latin = [*phrase.latin, opening, *clause.latin, closing]
        return phrase._replace(latin=latin, english=[*phrase.english, opening, *clause.english, closing], bare=False)

    def relative(self, noun: Noun, number: Number, tense: Tense) -> Phrase:
        """qui in horto ambulat, quem Metella amat."""
        thing = noun.kind not in ("name", "person")
        if self.chance(0.35):
            pronoun = self.render(RELATIVE[noun.gender, "accusative", number], "which" if thing else "whom")
            clause = self.without_object(noun, tense)
            return Phrase(pronoun.latin + clause.latin, pronoun.english + clause.english)
        pronoun = self.render(RELATIVE[noun.gender, "nominative", number], "which" if thing else "who")
        frame = Frame(self.pick((*acts(noun), *STATES)), number, tense)
        return self.said_of(pronoun, self.predicate(noun, frame), PRONOUN_LEANS)

    def without_object(self, noun: Noun, tense: Tense) -> Phrase:
        """A clause whose object is the relative pronoun before it."""
        subject = self.noun(self.pick(ACTORS))
        frame = Frame("object", self.number(subject), tense)
        uses = [use for use, kinds in OBJECTS.items() if noun.kind in kinds]
        verb = self.verb(self.verbs[self.pick(uses), tense], frame)
        return self.said_of(self.noun_phrase(subject, "nominative", frame.number, frame), verb, SUBJECT_LEANS)


def acts(noun: Noun) -> tuple[str, ...]:
    """Animals give nothing, things do nothing."""
    return () if noun.kind not in ACTORS else ACTS[:-2] if noun.kind == "animal" else ACTS


def align(latin: list[Word], english: list[Word]) -> Pair:
    source, origins = settle(latin)
    target, renderings = settle(english)
    position = dict(origins)
    links = sorted({(position[key], place) for key, place in renderings})
    return Pair(" ".join(source), " ".join(target), tuple(links))


def settle(words: list[Word]) -> tuple[list[str], list[tuple[int, int]]]:
    """The texts, and every word's key with its place.

    The comma that closes a relative clause is not written before other punctuation; the comma that opened it, whose
    key is one less, then stands for both.
    """
    texts: list[str] = []
    places: list[tuple[int, int]] = []
    commas: dict[int, int] = {}
    for index, (text, key) in enumerate(words):
        if text == "," and words[index + 1].text in ",.":
            places.append((key, commas[key - 1]))
            continue
        if text == ",":
            commas[key] = len(texts)
        places.append((key, len(texts)))
        texts.append(text)
    return texts, places
