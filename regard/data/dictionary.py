"""A dictionary learned from word alignments: each source word and the target word that it was linked to most often."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from regard.data.lines import read_lines
from regard.data.links import Link
from regard.errors import DataError

LinkedWord = tuple[str, int]  # a target word, and how often it was linked


def learn_dictionary(pairs: Iterable[tuple[str, str]], links: Iterable[AbstractSet[Link]]) -> dict[str, LinkedWord]:
    """Of links between words as spaces cut them; of words that were linked equally often the first in the alphabet."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (source, target), found in zip(pairs, links, strict=True):
        for word, beside in ((source.split()[at], target.split()[to]) for at, to in found):
            counts[word][beside] += 1
    return {word: min(found.items(), key=lambda one: (-one[1], one[0])) for word, found in sorted(counts.items())}


def write_dictionary(path: Path, words: dict[str, LinkedWord]) -> None:
    """A line each: source word, target word, count, with tabs between them."""
    path.write_text("".join(f"{word}\t{target}\t{count}\n" for word, (target, count) in words.items()), encoding="utf-8")


def read_dictionary(path: Path) -> dict[str, str]:
    """Of such lines, the counts of which may be missing: source word -> target word."""
    found: dict[str, str] = {}
    for block in read_lines(path):
        for number, line in enumerate(block.texts, start=block.first):
            parts: Sequence[str] = line.split("\t")
            if number in block.problems or len(parts) < 2 or not (parts[0].strip() and parts[1].strip()):
                problem = block.problems.get(number, "a line has a source word, a tab and a target word")
                raise DataError(f"{path}:{number}: {problem}; `regard align --dictionary` writes such files")
            found.setdefault(parts[0], parts[1])
    return found
