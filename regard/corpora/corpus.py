"""What a generated data set is: pairs with their true word alignment, in named splits, and how they become files."""

import filecmp
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.errors import UserError, naming


class Pair(NamedTuple):
    """Two sentences of words parted by single blanks, and the 0-based links (source word, target word) between them.

    A corpus whose pairs have no word alignment has no links at all.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


Splits = dict[str, list[Pair]]
Box = tuple[int, int, int, int]  # left, top, and the first column and row outside, in pixels


class Rendering(NamedTuple):
    """How sources are seen: each as a picture in which its words have boxes."""

    picture: Callable[[str], npt.NDArray[np.uint8]]
    boxes: Callable[[str], list[Box]]


@dataclass(frozen=True)
class Corpus:
    """A data set made by a program. The same seed and sizes give the same pairs on every machine."""

    name: str
    about: str
    source_suffix: str
    target_suffix: str
    sizes: Mapping[str, int]  # pairs in each split, unless asked otherwise
    generate: Callable[[int, Mapping[str, int]], Splits]
    target_column: str = "target"  # `tags` where it has a word for each word of the source
    joint: str | None = " [SEP] "  # what stands between source and target where both are one text; None: the source is the text
    rendering: Rendering | None = None  # where models read pictures of the sources


def generate(corpus: Corpus, seed: int = 1, size: int | None = None) -> Splits:
    """All splits; `size` is the number of training pairs and changes no other split."""
    if size is not None and size < 1:
        raise UserError(f"a corpus has at least 1 training pair (given: {size})")
    sizes = dict(corpus.sizes) if size is None else {**corpus.sizes, "train": size}
    return corpus.generate(seed, sizes)


def draw_splits(
    name: str, candidates: Mapping[str, Callable[[str], Iterator[Pair]]], seed: int, sizes: Mapping[str, int]
) -> Splits:
    """`sizes` pairs from the candidates of each split. Training pairs, which stand first, are drawn last and avoid all
    others, so that their number changes nothing else."""
    for split in sizes.keys() - candidates.keys():
        raise UserError(f"the {name} corpus has no split {split!r}; choose from {', '.join(candidates)}")
    taken: set[str] = set()
    kept = [split for split in candidates if split in sizes]
    drawn = {split: draw(candidates[split](f"{name} {seed} {split}"), sizes[split], taken) for split in reversed(kept)}
    return {split: drawn[split] for split in kept}


def draw(candidates: Iterator[Pair], size: int, taken: set[str]) -> list[Pair]:
    """`size` pairs with sources that are not `taken` yet; they are from now on."""
    pairs: list[Pair] = []
    while len(pairs) < size:
        pair = next(candidates)
        if pair.source not in taken:
            taken.add(pair.source)
            pairs.append(pair)
    return pairs


def write(
    corpus: Corpus, directory: Path, seed: int = 1, size: int | None = None, replace: bool = False, joint: bool = False
) -> dict[str, dict[str, Path]]:
    """Write `SPLIT.SUFFIX` for both sides and, where there are links, `SPLIT.align` (Pharaoh `i-j`); `joint`: both sides as one
    text, `SPLIT.joint`. The paths by split and part. Files with another text are replaced only where `replace` says that they
    are ours."""
    splits = generate(corpus, seed, size)
    directory.mkdir(parents=True, exist_ok=True)
    parts_of = joint_text if joint else split_texts
    texts = {split: parts_of(corpus, directory, split, pairs) for split, pairs in splits.items()}
    for path, text in (file for files in texts.values() for file in files.values()):
        if not replace and path.exists() and path.read_bytes() != text.encode():
            raise UserError(f"{path}: a file with another text stands there; move it, or take another --out")
    for path, text in (file for files in texts.values() for file in files.values()):
        if not path.exists() or path.read_bytes() != text.encode():  # a trainer may be reading it
            write_text(path, text)
    written = {split: {part: path for part, (path, _) in files.items()} for split, files in texts.items()}
    if corpus.rendering is not None:
        for split, pairs in splits.items():
            path = directory / f"{split}.{corpus.source_suffix}"
            write_pictures(path, corpus.rendering, [pair.source for pair in pairs], replace)
            written[split]["source"] = path
    return written


def split_texts(corpus: Corpus, directory: Path, split: str, pairs: list[Pair]) -> dict[str, tuple[Path, str]]:
    parts = {corpus.target_column: (corpus.target_suffix, [pair.target for pair in pairs])}
    if corpus.rendering is not None:
        parts["boxes"] = ("boxes", [word_boxes(pair, corpus.rendering) for pair in pairs])
        return {part: (directory / f"{split}.{suffix}", whole(lines)) for part, (suffix, lines) in parts.items()}
    parts = {"source": (corpus.source_suffix, [pair.source for pair in pairs]), **parts}
    if any(pair.alignment for pair in pairs):
        parts["alignment"] = ("align", [pharaoh(pair) for pair in pairs])
    return {part: (directory / f"{split}.{suffix}", whole(lines)) for part, (suffix, lines) in parts.items()}


def joint_text(corpus: Corpus, directory: Path, split: str, pairs: list[Pair]) -> dict[str, tuple[Path, str]]:
    """For a language model: a pair is one text, which it continues after what stands between source and target."""
    lines = [pair.source if corpus.joint is None else f"{pair.source}{corpus.joint}{pair.target}" for pair in pairs]
    return {"target": (directory / f"{split}.joint", whole(lines))}


def pharaoh(pair: Pair) -> str:
    return " ".join(f"{source}-{target}" for source, target in pair.alignment)


def word_boxes(pair: Pair, rendering: Rendering) -> str:
    """`2:3,4,14,15`: what the third word names is in this box."""
    found = rendering.boxes(pair.source)
    return " ".join(f"{word}:{','.join(map(str, found[source]))}" for source, word in pair.alignment)


def write_pictures(path: Path, rendering: Rendering, sources: list[str], replace: bool) -> None:
    """One array of them all, written row by row."""
    partial, first = path.with_name(path.name + ".partial"), rendering.picture(sources[0])
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(sources), *first.shape)}
    with naming(path), partial.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
        for source in sources:
            file.write(rendering.picture(source).tobytes())
    same = path.exists() and filecmp.cmp(path, partial, shallow=False)
    if path.exists() and not same and not replace:
        partial.unlink()
        raise UserError(f"{path}: a file with other pictures stands there; move it, or take another --out")
    partial.unlink() if same else partial.replace(path)  # a trainer may be reading it


def whole(lines: Iterable[str]) -> str:
    return "".join(line + "\n" for line in lines)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    write_text(path, whole(lines))


def write_text(path: Path, text: str) -> None:
    """Under another name first, so that a half-written file never bears the right one."""
    partial = path.with_name(path.name + ".partial")
    with naming(path):
        partial.write_text(text, encoding="utf-8", newline="\n")
        partial.replace(path)
