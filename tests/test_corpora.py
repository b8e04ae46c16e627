"""The generated data sets: one translation a sentence, alignments that are true, splits that do not mix."""

import dataclasses
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import jaxtyping
import pytest

from regard.corpora import CORPORA, Corpus, Pair, generate, rows, write
from regard.corpora.corpus import Splits
from regard.corpora.latin_grammar import Grammar, align
from regard.corpora.latin_inflection import (
    CASES,
    NUMBERS,
    Case,
    Number,
    add_ed,
    add_ing,
    add_s,
    conjugate,
    decline_adjective,
    decline_noun,
)
from regard.corpora.latin_phrases import Frame, Phrase
from regard.corpora.latin_words import (
    ADVERBS,
    COPULA,
    HELD_OUT_NAMES,
    PREPOSITIONS,
    SEEN_NAMES,
    SUBORDINATORS,
    Lexicon,
    Verb,
    entries,
    lexicon,
)
from regard.errors import UserError

LATIN = CORPORA["latin"]


@pytest.fixture(scope="module", autouse=True)
def unchecked() -> Iterator[None]:
    """Checking the types of every call takes minutes here; `test_types_hold` does it for a few sentences."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_types_hold() -> None:
    jaxtyping.config.update("jaxtyping_disable", False)
    grammar = Grammar(lexicon(SEEN_NAMES), "types")
    assert len({grammar.sentence(3) for _ in range(100)}) == 100
    jaxtyping.config.update("jaxtyping_disable", True)


@pytest.fixture(scope="module", params=CORPORA)
def corpus(request: pytest.FixtureRequest) -> Corpus:
    return CORPORA[request.param]


@pytest.fixture(scope="module")
def splits(corpus: Corpus) -> Splits:
    return generate(corpus, seed=1)


@pytest.fixture(scope="module")
def latin() -> Splits:
    return generate(LATIN, seed=1)


def forms(text: str) -> list[str]:
    return text.split()


# Paradigms typed from a school grammar: nominative genitive dative accusative ablative, singular then plural.
NOUNS = {
    ("servus", "servi", "m"): "servus servi servo servum servo servi servorum servis servos servis",
    ("puella", "puellae", "f"): "puella puellae puellae puellam puella puellae puellarum puellis puellas puellis",
    ("bellum", "belli", "n"): "bellum belli bello bellum bello bella bellorum bellis bella bellis",
    ("puer", "pueri", "m"): "puer pueri puero puerum puero pueri puerorum pueris pueros pueris",
    ("ager", "agri", "m"): "ager agri agro agrum agro agri agrorum agris agros agris",
    ("rex", "regis", "m"): "rex regis regi regem rege reges regum regibus reges regibus",
    ("flumen", "fluminis", "n"): ("flumen fluminis flumini flumen flumine flumina fluminum fluminibus flumina fluminibus"),
}


@pytest.mark.parametrize("entry", NOUNS)
def test_nouns_decline_as_in_the_grammar_book(entry: tuple[str, str, str]) -> None:
    declined = decline_noun(*entry)
    assert [declined[case, number] for number in NUMBERS for case in CASES] == NOUNS[entry].split()


def test_i_stems_differ_in_the_genitive_plural() -> None:
    assert decline_noun("urbs", "urbis", "f", i_stem=True)["genitive", "plural"] == "urbium"


ADJECTIVES = {
    ("bonus", "bona"): "bonus bona bonum bono bonae bono bonos bonas bona",
    ("pulcher", "pulchra"): "pulcher pulchra pulchrum pulchro pulchrae pulchro pulchros pulchras pulchra",
    ("fortis", "fortis"): "fortis fortis forte forti forti forti fortes fortes fortia",
    ("ingens", "ingentis"): "ingens ingens ingens ingenti ingenti ingenti ingentes ingentes ingentia",
}
SHOWN: tuple[tuple[Case, Number], ...] = (("nominative", "singular"), ("dative", "singular"), ("accusative", "plural"))


@pytest.mark.parametrize("entry", ADJECTIVES)
def test_adjectives_decline_as_in_the_grammar_book(entry: tuple[str, str]) -> None:
    declined = decline_adjective(*entry)
    assert [declined[gender, *slot] for slot in SHOWN for gender in ("m", "f", "n")] == ADJECTIVES[entry].split()


VERBS = {
    ("porto", "portare", "portavi"): "portat portant portabat portabant portavit portaverunt",
    ("video", "videre", "vidi"): "videt vident videbat videbant vidit viderunt",
    ("mitto", "mittere", "misi"): "mittit mittunt mittebat mittebant misit miserunt",
    ("capio", "capere", "cepi"): "capit capiunt capiebat capiebant cepit ceperunt",
    ("audio", "audire", "audivi"): "audit audiunt audiebat audiebant audivit audiverunt",
    ("do", "dare", "dedi"): "dat dant dabat dabant dedit dederunt",
    ("venio", "venire", "-"): "venit veniunt veniebat veniebant",
}


@pytest.mark.parametrize("entry", VERBS)
def test_verbs_conjugate_as_in_the_grammar_book(entry: tuple[str, str, str]) -> None:
    assert list(conjugate(*entry).values()) == VERBS[entry].split()


def test_english_endings() -> None:
    assert [add_s(word) for word in ("slave", "city", "boy", "teach", "toga")] == forms("slaves cities boys teaches togas")
    assert [add_ing(word) for word in ("give", "see", "run", "carry", "visit")] == forms(
        "giving seeing running carrying visiting"
    )
    assert [add_ed(word) for word in ("love", "free", "carry", "stay", "greet", "visit")] == forms(
        "loved freed carried stayed greeted visited"
    )


def test_no_form_belongs_to_two_words() -> None:
    """Coincidence is for the grammar to deal with inside a word; between words there must be none."""
    words = lexicon(SEEN_NAMES + ";" + HELD_OUT_NAMES)
    paradigms = [set(word.forms.values()) for word in (*words.nouns, *words.names, *words.adjectives, *words.verbs)]
    paradigms += [{latin} for latin, _ in ADVERBS] + [{joiner.latin} for joiner in SUBORDINATORS]
    paradigms += [{latin} for latin in {preposition.latin for preposition in PREPOSITIONS}]
    paradigms += [set(COPULA.forms.values()), {"non"}, {"et"}, {"sed"}, set(forms("qui quae quem quam quos quas"))]
    everything = [form for paradigm in paradigms for form in paradigm]
    assert len(everything) == len(set(everything))


def test_no_verb_has_one_form_for_two_tenses() -> None:
    for verb in lexicon(SEEN_NAMES).verbs:
        assert len(set(verb.forms.values())) == len(verb.forms)


def translations(pairs: list[Pair]) -> dict[str, set[tuple[str, tuple[tuple[int, int], ...]]]]:
    found: dict[str, set[tuple[str, tuple[tuple[int, int], ...]]]] = {}
    for pair in pairs:
        found.setdefault(pair.source, set()).add((pair.target, pair.alignment))
    return found


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(5), marks=pytest.mark.slow)], ids=len)
@pytest.mark.parametrize("names", [SEEN_NAMES, HELD_OUT_NAMES])
def test_a_sentence_has_one_translation(names: str, seeds: range) -> None:
    grammars = [Grammar(lexicon(names), f"test {seed}") for seed in seeds]
    pairs = [grammar.sentence(grammar.pick((1, 1, 2))) for grammar in grammars for _ in range(10_000)]
    assert {source: found for source, found in translations(pairs).items() if len(found) > 1} == {}


def few_words() -> Lexicon:
    kept = forms("servus puella rex aquila donum hasta templum mensa via")
    words = lexicon(SEEN_NAMES)
    return dataclasses.replace(
        words,
        nouns=tuple(noun for noun in words.nouns if noun.forms["nominative", "singular"] in kept),
        names=tuple(name for name in words.names if name.english["singular"] in ("Grumio", "Metella")),
        adjectives=tuple(adjective for adjective in words.adjectives if adjective.english in ("good", "huge")),
        verbs=tuple({verb.use: verb for verb in words.verbs if ("perfect", "singular") in verb.forms}.values()),
        adverbs=ADVERBS[:1],
    )


class Narrow(Grammar):
    """So few choices that the same sentence comes again and again: any two readings of it would meet."""

    def chance(self, probability: float) -> bool:
        return super().chance(min(2 * probability, 0.4))

    def verb(self, verbs: Sequence[Verb], frame: Frame) -> list[Phrase]:
        return [self.render(verbs[0].forms["present", frame.number], verbs[0].base)]

    def perhaps_place(self, frame: Frame, probability: float) -> list[Phrase]:
        return super().perhaps_place(frame, 0.1 if frame.act == "object" else 0.5)

    def said(self, act: str) -> Pair:
        noun, stop = self.noun(self.pick(("name", "person", "person"))), self.word(".")
        if self.random() < 0.1:
            clause = self.two_subjects(Frame(act, "plural", "present"))
        else:
            clause = self.one_subject(noun, Frame(act, self.number(noun), "present"))
        return align([*clause.latin, stop], [*clause.english, stop])


@pytest.mark.parametrize("number", [15_000, pytest.param(60_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("act", ["rest", "motion", "object", "give", "quality", "location"])
def test_a_sentence_of_few_words_has_one_translation(act: str, number: int) -> None:
    grammar = Narrow(few_words(), "few words")
    pairs = [grammar.said(act) for _ in range(number)]
    found = translations([pair for pair in pairs if len(pair.source.split()) <= 7])
    assert {source: readings for source, readings in found.items() if len(readings) > 1} == {}


def test_every_word_is_aligned(latin: Splits) -> None:
    for pair in (pair for pairs in latin.values() for pair in pairs):
        sources, targets = zip(*pair.alignment, strict=True)
        assert set(sources) == set(range(len(pair.source.split())))
        assert set(targets) == set(range(len(pair.target.split())))
        assert list(pair.alignment) == sorted(set(pair.alignment))


def test_words_are_parted_by_single_blanks(splits: Splits) -> None:
    for pair in (pair for pairs in splits.values() for pair in pairs):
        for text in (pair.source, pair.target):
            assert text == " ".join(text.split()) != ""


def test_sentences_end_and_have_no_stray_commas(latin: Splits) -> None:
    for pair in (pair for pairs in latin.values() for pair in pairs):
        for text in (pair.source, pair.target):
            assert text.endswith(" .")
            assert not any(twice in text for twice in (", ,", ", ."))


def meanings(words: Lexicon) -> dict[str, set[str]]:
    """From a dictionary's point of view: which English words may render a Latin form."""
    table = {",": {","}, ".": {"."}, "et": {"and"}, "sed": {"but"}, "non": {"not"}}
    table |= {latin: {english} for latin, english in ADVERBS}
    table |= {form: {"is", "are", "was", "were"} for form in COPULA.forms.values()}
    for noun in (*words.nouns, *words.names):
        table |= {form: {"the", "a", "an", "of", "to", *noun.english.values()} for form in noun.forms.values()}
    for adjective in words.adjectives:
        table |= {form: {adjective.english} for form in adjective.forms.values()}
    for verb in words.verbs:
        english = {"does", "do", "did", "was", "were", verb.base, verb.present, verb.participle, verb.past}
        table |= dict.fromkeys(verb.forms.values(), english)
    for preposition in PREPOSITIONS:
        table.setdefault(preposition.latin, set()).update(preposition.english.split())
    for pronoun in forms("qui quae quod quem quam quos quas"):
        table[pronoun] = {"who", "whom", "which"}
    for joiner in SUBORDINATORS:
        table.setdefault(joiner.latin, set()).add(joiner.english)
    return table


def test_linked_words_mean_the_same(latin: Splits) -> None:
    table = meanings(lexicon(SEEN_NAMES + ";" + HELD_OUT_NAMES))
    for pair in (pair for pairs in latin.values() for pair in pairs):
        source, target = pair.source.split(), pair.target.split()
        assert all(target[j] in table[source[i]] for i, j in pair.alignment), pair


def test_articles_link_to_the_noun_of_their_phrase(latin: Splits) -> None:
    """`the good slave`: the word that `the` comes from is the one that `slave` comes from."""
    nouns = {text for noun in lexicon(SEEN_NAMES).nouns for text in noun.english.values()}
    for pair in latin["test"]:
        target, origin = pair.target.split(), {j: i for i, j in pair.alignment}
        for j in (j for j, word in enumerate(target) if word in ("the", "a", "an")):
            head = next(k for k in range(j + 1, len(target)) if target[k] in nouns)
            assert origin[j] == origin[head], pair


def test_verbs_agree_with_their_subjects(latin: Splits) -> None:
    """A sentence that begins `the NOUN is` or `are` has the noun in that number."""
    numbers = {text: number for noun in lexicon(SEEN_NAMES).nouns for number, text in noun.english.items()}
    seen = 0
    for words in (pair.target.split() for pair in latin["train"]):
        if words[0] == "the" and words[1] in numbers and words[2] in ("is", "are", "was", "were", "does", "do"):
            assert (words[2] in ("are", "were", "do")) == (numbers[words[1]] == "plural")
            seen += 1
    assert seen > 100


def test_generation_is_repeatable(corpus: Corpus, splits: Splits) -> None:
    again, other = generate(corpus, seed=1, size=300), generate(corpus, seed=2, size=300)
    assert again == {**splits, "train": splits["train"][:300]}
    assert all(other[split] != again[split] for split in splits)


def test_golden_pair() -> None:
    """Seed 1 must mean the same for ever: made by `generate(CORPORA["latin"], 1, 1)["train"][0]`."""
    assert generate(LATIN, seed=1, size=1)["train"][0] == GOLDEN


def test_splits_have_their_sizes(corpus: Corpus, splits: Splits) -> None:
    assert {split: len(pairs) for split, pairs in splits.items()} == corpus.sizes


def test_no_source_occurs_twice(splits: Splits) -> None:
    sources = [pair.source for pairs in splits.values() for pair in pairs]
    assert len(sources) == len(set(sources))


def test_the_training_size_changes_nothing_else(corpus: Corpus, splits: Splits) -> None:
    small = generate(corpus, seed=1, size=50)
    assert small["train"] == splits["train"][:50]
    assert all(small[split] == splits[split] for split in splits if split != "train")


def lengths(pairs: list[Pair]) -> list[int]:
    return [len(pair.source.split()) for pair in pairs]


def test_long_sentences_are_longer_than_all_others(latin: Splits) -> None:
    longest = max(max(lengths(pairs)) for split, pairs in latin.items() if split != "test-long")
    assert min(lengths(latin["test-long"])) > longest
    assert max(lengths(latin["test-long"])) <= 30


def names_in(pair: Pair) -> set[str]:
    return {word for word in pair.target.split() if word[0].isupper()}


def test_new_names_are_new(latin: Splits) -> None:
    held_out = {entry[0] for entry in entries(HELD_OUT_NAMES)}
    assert all(names_in(pair) and names_in(pair) <= held_out for pair in latin["test-names"])
    for split in latin.keys() - {"test-names"}:
        assert not any(names_in(pair) & held_out for pair in latin[split])
    trained = {word for pair in latin["train"] for word in pair.source.split()}
    assert not any(word in trained for pair in latin["test-names"] for word in pair.source.split() if word[0].isupper())


def test_the_grammar_shows_what_it_promises(latin: Splits) -> None:
    """Each construction, by a word that only it brings."""
    source = {word for pair in latin["test"] for word in pair.source.split()}
    assert source >= set(forms("non et sed qui quae quod quem dum quamquam ubi si postquam in ad cum sub ex per est sunt"))
    target = {word for pair in latin["test"] for word in pair.target.split()}
    assert target >= set(forms("does did was were are who whom which of to out an because while"))


def test_word_order_is_free() -> None:
    """Several Latin orders for one English sentence, verb last or not."""
    grammar = Grammar(few_words(), "orders")
    orders: dict[str, set[str]] = {}
    for pair in (grammar.sentence(1) for _ in range(20_000)):
        orders.setdefault(pair.target, set()).add(pair.source)
    assert max(len(sources) for sources in orders.values()) >= 6


def test_written_files_hold_the_pairs(corpus: Corpus, tmp_path: Path) -> None:
    written = generate(corpus, seed=3, size=40)
    paths = write(corpus, tmp_path / "new" / "folder", seed=3, size=40)
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {
        path.name for parts in paths.values() for path in parts.values()
    }
    for split, parts in paths.items() if corpus.rendering is None else ():  # tests/test_scenes.py reads pictures
        assert parts["source"].name == f"{split}.{corpus.source_suffix}"
        columns = {part: path.read_text(encoding="utf-8").splitlines() for part, path in parts.items()}
        links = columns.get("alignment", [""] * len(written[split]))
        read = [
            Pair(*row[:2], parse(row[2])) for row in zip(columns["source"], columns[corpus.target_column], links, strict=True)
        ]
        assert read == written[split]


def test_only_what_is_aligned_has_a_file_of_alignments(tmp_path: Path) -> None:
    for name, parts in (("latin", {"source", "target", "alignment"}), ("arithmetic", {"source", "target"})):
        assert {frozenset(paths) for paths in write(CORPORA[name], tmp_path, size=3).values()} == {frozenset(parts)}


def parse(links: str) -> tuple[tuple[int, int], ...]:
    return tuple((int(source), int(target)) for source, _, target in (link.partition("-") for link in links.split()))


def test_wrong_sizes_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 1"):
        write(corpus, tmp_path, seed=1, size=0)
    with pytest.raises(UserError, match="at least 1"):
        rows(corpus, size=-5)


def test_rows_are_drawn_when_they_are_asked_for(corpus: Corpus, splits: Splits) -> None:
    """A billion of them cost nothing before; the first ones are those of a small corpus."""
    drawn = rows(corpus, seed=1, size=10**9)
    assert list(islice(drawn["train"], 30)) == splits["train"][:30]
    assert list(drawn["test"]) == splits["test"]


def memory_of(path: Path, size: int) -> int:
    """The most bytes that were held while a corpus was written."""
    tracemalloc.start()
    write(CORPORA["copy"], path, size=size)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_memory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.corpora.corpus.REMEMBERED", 500)
    memory_of(tmp_path / "first", 10)
    small, large = memory_of(tmp_path / "small", 1000), memory_of(tmp_path / "large", 8000)
    assert large < 1.1 * small
    assert len((tmp_path / "large" / "train.letters").read_text().splitlines()) == 8000


def few(seed: str) -> Iterator[Pair]:
    """Twelve different rows, in an order of their own."""
    random = Random(seed)
    while True:
        yield Pair(str(int(random.random() * 12)), "x", ())


FEW = Corpus("few", "", "a", "b", {"train": 5, "valid": 2, "test": 3}, few)


def test_rows_without_end_of_a_corpus_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven are left for training: each round has all of them once, and none of the held-out ones ever comes."""
    monkeypatch.setattr("regard.corpora.corpus.PATIENCE", 300)
    drawn = generate(FEW, size=28)
    held = {pair.source for split in ("valid", "test") for pair in drawn[split]}
    sources = [pair.source for pair in drawn["train"]]
    assert len(held) == 5
    for begin in range(0, 28, 7):
        assert set(sources[begin : begin + 7]) == set(map(str, range(12))) - held


def test_what_is_remembered_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for four sources, four rows in a row differ; the fifth may be the first again."""
    monkeypatch.setattr("regard.corpora.corpus.REMEMBERED", 4)
    sources = [pair.source for pair in generate(FEW, size=400)["train"]]
    rounds = [sources[begin : begin + 4] for begin in range(0, 400, 4)]
    assert all(len(set(one)) == 4 for one in rounds)
    assert any(set(one) & set(other) for one, other in pairwise(rounds))


def test_a_corpus_without_other_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.corpora.corpus.PATIENCE", 300)
    with pytest.raises(UserError, match="the few corpus has no rows but those of its other splits"):
        generate(dataclasses.replace(FEW, sizes={"train": 1, "valid": 12}))


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    """Where rows end in an error, and where a file of somebody else's stands in the way, nothing changes."""

    def broken(seed: str) -> Iterator[Pair]:
        yield from islice(few(seed), 20)
        raise OSError(28, "No space left on device")

    (tmp_path / "train.b").write_text("mine\n")
    with pytest.raises(UserError, match=r"train\.b: a file with another text stands there"):
        write(FEW, tmp_path)
    with pytest.raises(OSError, match="No space left"):
        write(dataclasses.replace(FEW, draw=broken, sizes={"train": 50}), tmp_path, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["train.b"]
    assert (tmp_path / "train.b").read_text() == "mine\n"


GOLDEN = Pair(
    "risit Cassius , quamquam sine Quinto amici mox donum clarum paraverunt .",
    "Cassius laughed , although the friends soon prepared the famous gift without Quintus .",
    parse("0-1 1-0 2-2 3-3 4-11 5-12 6-4 6-5 7-6 8-8 8-10 9-9 10-7 11-13"),
)
