"""What a generated data set is: pairs with their true word alignment, in named splits, and how they become files."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regard.errors import UserError


class Pair(NamedTuple):
    """Two sentences of words parted by single blanks, and the 0-based links (source word, target word) between them."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


Splits = dict[str, list[Pair]]


@dataclass(frozen=True)
class Corpus:
    """A data set made by a program. The same seed and sizes give the same pairs on every machine."""

    name: str
    about: str
    source_suffix: str
    target_suffix: str
    sizes: Mapping[str, int]  # pairs in each split, unless asked otherwise
    generate: Callable[[int, Mapping[str, int]], Splits]


def generate(corpus: Corpus, seed: int = 1, size: int | None = None) -> Splits:
    """All splits; `size` is the number of training pairs and changes no other split."""
    if size is not None and size < 1:
        raise UserError(f"a corpus has at least 1 training pair (given: {size})")
    sizes = dict(corpus.sizes) if size is None else {**corpus.sizes, "train": size}
    return corpus.generate(seed, sizes)


def write(corpus: Corpus, directory: Path, seed: int = 1, size: int | None = None) -> dict[str, dict[str, Path]]:
    """Write `SPLIT.SUFFIX` for both sides and `SPLIT.align` (Pharaoh `i-j`); the paths by split and part."""
    splits = generate(corpus, seed, size)
    directory.mkdir(parents=True, exist_ok=True)
    return {split: write_split(corpus, directory, split, pairs) for split, pairs in splits.items()}


def write_split(corpus: Corpus, directory: Path, split: str, pairs: list[Pair]) -> dict[str, Path]:
    paths = {
        "source": directory / f"{split}.{corpus.source_suffix}",
        "target": directory / f"{split}.{corpus.target_suffix}",
        "alignment": directory / f"{split}.align",
    }
    write_lines(paths["source"], (pair.source for pair in pairs))
    write_lines(paths["target"], (pair.target for pair in pairs))
    write_lines(paths["alignment"], (pharaoh(pair) for pair in pairs))
    return paths


def pharaoh(pair: Pair) -> str:
    return " ".join(f"{source}-{target}" for source, target in pair.alignment)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Under another name first, so that a half-written file never bears the right one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    partial.replace(path)
