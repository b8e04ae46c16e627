"""Latin and English: sentences like `Caecilius est in horto .` and `Caecilius is in the garden .`, with their truth."""

from collections.abc import Iterator, Mapping

from regard.corpora.corpus import Corpus, Pair, Splits
from regard.corpora.latin_grammar import Grammar
from regard.corpora.latin_words import HELD_OUT_NAMES, SEEN_NAMES, lexicon
from regard.errors import UserError

LONGEST_TRAINED = 14  # Latin words, punctuation included
LONGEST = 30
SIZES = {"train": 12000, "valid": 500, "test": 500, "test-long": 300, "test-names": 300}


def generate(seed: int, sizes: Mapping[str, int]) -> Splits:
    """Training pairs are drawn last and avoid all others, so that their number changes nothing else."""
    for split in sizes.keys() - SIZES.keys():
        raise UserError(f"the latin corpus has no split {split!r}; choose from {', '.join(SIZES)}")
    taken: set[str] = set()
    drawn = {split: draw(split, seed, sizes[split], taken) for split in reversed(SIZES) if split in sizes}
    return {split: drawn[split] for split in SIZES if split in drawn}


def draw(split: str, seed: int, size: int, taken: set[str]) -> list[Pair]:
    """`size` pairs with sources that are not `taken` yet; they are from now on."""
    pairs: list[Pair] = []
    candidates = CANDIDATES.get(split, plain)(f"latin {seed} {split}")
    while len(pairs) < size:
        pair = next(candidates)
        if pair.source not in taken:
            taken.add(pair.source)
            pairs.append(pair)
    return pairs


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


CANDIDATES = {"test-long": long, "test-names": with_new_names}

LATIN = Corpus(
    name="latin",
    about="Latin with its English: free word order, five cases, agreement, subordinate clauses; exact word alignments",
    source_suffix="la",
    target_suffix="en",
    sizes=SIZES,
    generate=generate,
)
