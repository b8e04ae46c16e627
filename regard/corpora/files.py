"""A generated data set as files, written row by row."""

import filecmp
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.corpora.corpus import Corpus, Pair, Rendering, rows
from regard.errors import UserError, naming


class Part(NamedTuple):
    """One file of a split."""

    path: Path
    content: Callable[[Pair], str | bytes]  # of a row: its line, or its bytes
    header: bytes = b""
    optional: bool = False  # left out where no row has anything to say in it

    @property
    def partial(self) -> Path:
        return self.path.with_name(self.path.name + ".partial")

    def of_row(self, pair: Pair) -> bytes:
        content = self.content(pair)
        return content if isinstance(content, bytes) else f"{content}\n".encode()


def write(
    corpus: Corpus, directory: Path, seed: int = 1, size: int | None = None, replace: bool = False, joint: bool = False
) -> dict[str, dict[str, Path]]:
    """Write `SPLIT.SUFFIX` for both sides and, where there are links, `SPLIT.align` (Pharaoh `i-j`); `joint`: both sides as one
    text, `SPLIT.joint`. The paths by split and part. Files with other content are replaced only where `replace` says that they
    are ours."""
    drawn, sizes = rows(corpus, seed, size), {**corpus.sizes, **({} if size is None else {"train": size})}
    directory.mkdir(parents=True, exist_ok=True)
    written: dict[str, dict[str, Part]] = {}
    try:
        for split, pairs in drawn.items():
            written[split] = parts_of(corpus, directory / split, sizes[split], joint)
            with naming(directory):
                written[split] = write_partial(written[split], pairs)
        parts = [part for files in written.values() for part in files.values()]
        refuse_others(parts if not replace else [])
        for part in parts:
            if not same(part):  # a trainer may be reading it
                part.partial.replace(part.path)
    finally:  # half-written files never bear the right name, and none is left
        for part in (part for files in written.values() for part in files.values()):
            part.partial.unlink(missing_ok=True)
    return {split: {name: part.path for name, part in files.items()} for split, files in written.items()}


def parts_of(corpus: Corpus, stem: Path, size: int, joint: bool) -> dict[str, Part]:
    def part(suffix: str, content: Callable[[Pair], str | bytes], header: bytes = b"", optional: bool = False) -> Part:
        return Part(stem.with_name(f"{stem.name}.{suffix}"), content, header, optional)

    if joint:  # for a language model: a row is one text
        return {"target": part("joint", lambda pair: joined(pair, corpus.joint))}
    target = {corpus.target_column: part(corpus.target_suffix, lambda pair: pair.target)}
    if (seen := corpus.rendering) is not None:
        pixels = part(corpus.source_suffix, lambda pair: seen.picture(pair.source).tobytes(), array_header(size, seen))
        return {**target, "boxes": part("boxes", lambda pair: word_boxes(pair, seen)), "source": pixels}
    source = {"source": part(corpus.source_suffix, lambda pair: pair.source)}
    return {**source, **target, "alignment": part("align", pharaoh, optional=True)}


def write_partial(parts: dict[str, Part], pairs: Iterator[Pair]) -> dict[str, Part]:
    """All parts of a split in one pass over its rows; those that are needed."""
    said = dict.fromkeys(parts, False)
    with ExitStack() as held:
        files = {name: held.enter_context(part.partial.open("wb")) for name, part in parts.items()}
        for name, part in parts.items():
            files[name].write(part.header)
        for pair in pairs:
            for name, part in parts.items():
                content = part.of_row(pair)
                said[name] = said[name] or content != b"\n"
                files[name].write(content)
    for name, part in parts.items():
        if part.optional and not said[name]:
            part.partial.unlink()
    return {name: part for name, part in parts.items() if said[name] or not part.optional}


def same(part: Part) -> bool:
    return part.path.exists() and filecmp.cmp(part.path, part.partial, shallow=False)


def refuse_others(parts: Iterable[Part]) -> None:
    for part in parts:
        if part.path.exists() and not same(part):
            what = "other pictures" if part.header else "another text"
            raise UserError(f"{part.path}: a file with {what} stands there; move it, or take another --out")


def joined(pair: Pair, between: str | None) -> str:
    return pair.source if between is None else f"{pair.source}{between}{pair.target}"


def pharaoh(pair: Pair) -> str:
    return " ".join(f"{source}-{target}" for source, target in pair.alignment)


def word_boxes(pair: Pair, rendering: Rendering) -> str:
    """`2:3,4,14,15`: what the third word names is in this box."""
    found = rendering.boxes(pair.source)
    return " ".join(f"{word}:{','.join(map(str, found[source]))}" for source, word in pair.alignment)


def array_header(size: int, rendering: Rendering) -> bytes:
    """Of a `.npy` file of all pictures of a split."""
    file = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (size, *rendering.shape)}
    np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
    return file.getvalue()


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Under another name first, so that a half-written file never bears the right one."""
    partial = path.with_name(path.name + ".partial")
    with naming(path):
        partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
        partial.replace(path)
