"""Latin and English: sentences like `Caecilius est in horto .` and `Caecilius is in the garden .`, with their truth."""

from collections.abc import Iterator

from regard.corpora.corpus import Corpus, Pair
from regard.corpora.latin_grammar import Grammar
from regard.corpora.latin_words import HELD_OUT_NAMES, SEEN_NAMES, lexicon

LONGEST_TRAINED = 14  # Latin words, punctuation included
LONGEST = 30


def plain(seed: str, names: str = SEEN_NAMES) -> Iterator[Pair]:
    """Sentences of one or two clauses, as long as those trained on."""
    grammar = Grammar(lexicon(names), seed)
    while True:
        pair = grammar.sentence(grammar.pick((1, 1, 2, 2)))
        if len(pair.source.split()) <= LONGEST_TRAINED:
            yield pair


def long(seed: str) -> Iterator[Pair]:
    """Sentences longer than any trained on."""
    grammar = Grammar(lexicon(SEEN_NAMES), seed)
    while True:
        pair = grammar.sentence(grammar.pick((2, 3, 4)))
        if LONGEST_TRAINED < len(pair.source.split()) <= LONGEST:
            yield pair


def with_new_names(seed: str) -> Iterator[Pair]:
    """Sentences with a name, and all names never trained on."""
    return (pair for pair in plain(seed, HELD_OUT_NAMES) if any(word[0].isupper() for word in pair.target.split()))


LATIN = Corpus(
    name="latin",
    about="Latin with its English: free word order, five cases, agreement, subordinate clauses; exact word alignments",
    source_suffix="la",
    target_suffix="en",
    sizes={"train": 12000, "valid": 500, "test": 500, "test-long": 300, "test-names": 300},
    draw=plain,
    own={"test-long": long, "test-names": with_new_names},
)
