"""Text files as blocks of numbered lines: UTF-8, cut at line feeds only, in constant memory."""

import bz2
import gzip
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from regard.errors import DataError

BLOCK = 1 << 20  # bytes read at once
LONGEST = 1 << 26  # bytes of one line; a longer one is no text
SPECIAL = {
    stat.S_IFIFO: "a pipe, which can be read only once: write it to a file, or give it to --source, --target or --pairs",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
CONVERT = " (if the file is Latin-1: iconv -f LATIN1 -t UTF-8 FILE > NEW)"
UTF16 = (b"\xff\xfe", b"\xfe\xff")  # followed by letters of two bytes
CONTROLS = bytes(range(1, 9)) + bytes(range(14, 27)) + bytes(range(28, 32))  # what text has hardly any of; ESC colours it
MANY = 16  # of them, or of NUL, from which on a file may be no text
Opened = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile | FileIO


class Packing(NamedTuple):
    """A program that packs files, how what it packed begins, and what reads it."""

    program: str
    begins: bytes
    unpack: Callable[[Path], Opened]


PACKED = {
    ".gz": Packing("gzip", b"\x1f\x8b", gzip.GzipFile),
    ".bz2": Packing("bzip2", b"BZh9", bz2.BZ2File),
    ".xz": Packing("xz", b"\xfd7zXZ", lzma.LZMAFile),
}
# what a file is that begins so, and what to do
NO_TEXT = {
    b"PK\x03\x04": "a zip file, as spreadsheets are too: unpack it, or save it as CSV",
    b"%PDF": "a PDF file: copy its text into a table, source and target separated by a tab",
    **{one.begins: f"packed with {one.program}: give it a name that ends in {end}" for end, one in PACKED.items()},
    b"\x28\xb5\x2f\xfd": "packed with zstd: unpack it (zstd -d)",
    **dict.fromkeys(UTF16, "text in UTF-16: iconv -f UTF-16 -t UTF-8 FILE > NEW"),
}


class Lines(NamedTuple):
    """Lines that follow each other in a file, and what is wrong with some of them."""

    first: int  # the number of the first line, from 1
    texts: list[str]  # a bad line is ""
    problems: dict[int, str]  # line number -> what is wrong with it

    def cut(self, count: int) -> tuple["Lines", "Lines"]:
        """The first `count` lines, and the rest."""
        head, tail = self.texts[:count], self.texts[count:]
        return Lines(self.first, head, self.problems), Lines(self.first + count, tail, self.problems)


def read_lines(path: Path) -> Iterator[Lines]:
    """The file's lines in blocks of about a megabyte."""
    first = 1
    for block in whole_lines(path):
        lines = decode(block, first)
        first += len(lines.texts)
        yield lines


def whole_lines(path: Path) -> Iterator[bytes]:
    """Blocks of bytes that end where lines end, without their last line feed."""
    rest, line = b"", 1
    for number, block in enumerate(read_blocks(path)):
        if number == 0:
            refuse_no_text(path, block)
            refuse_bytes(path, block)
            block = block.removeprefix(BYTE_ORDER_MARK)
        head, feed, tail = block.rpartition(b"\n")
        if feed:
            yield rest + head
            line += block.count(b"\n")
            rest = tail
        else:
            rest += tail
        if len(rest) > LONGEST:
            refuse_lone_returns(path, line, rest)
            raise DataError(f"{path}:{line}: a line is longer than {LONGEST >> 20} MB; is this a text file?")
    if rest:
        refuse_lone_returns(path, line, rest)
        yield rest


def refuse_no_text(path: Path, first: bytes) -> None:
    for start, what in NO_TEXT.items():
        if first.startswith(start) and (start not in UTF16 or b"\0" in first[:200]):
            raise DataError(f"{path}: {what}")


def refuse_bytes(path: Path, first: bytes) -> None:
    """Text has letters of one byte, and few signs that nobody sees: programs and packed files have them at every place."""
    empty, unseen = first.count(b"\0"), len(first) - len(first.translate(None, CONTROLS))
    if empty > max(MANY, len(first) // 5):
        raise DataError(f"{path}: NUL in every few bytes; if it is text in UTF-16: iconv -f UTF-16LE -t UTF-8 FILE > NEW")
    if empty + unseen > max(MANY, len(first) // 20):
        raise DataError(f"{path}: not text: {empty + unseen:,} of the first {len(first):,} bytes are control characters")


def refuse_lone_returns(path: Path, line: int, rest: bytes) -> None:
    """A file with no line feed at all but with carriage returns between its lines, as old Macs wrote them."""
    if line == 1 and b"\r" in rest[:-1]:
        raise DataError(
            f"{path}: the file has carriage returns instead of line feeds, so it is all one line; "
            f"convert it with tr '\\r' '\\n' < {path.name} > NEW"
        )


def require_file(path: Path) -> None:
    """Whatever is read here is read several times."""
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise DataError(f"{path}: {SPECIAL.get(kind, 'not a file')}; name a file of text")


def read_blocks(path: Path) -> Iterator[bytes]:
    with reading(path):
        require_file(path)
        with open_binary(path) as file:
            while block := file.read(BLOCK):
                yield block


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What goes wrong inside is told as a DataError."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: a broken {path.suffix} file: {error}") from None
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else f"a broken {path.suffix} file: {error}"
        raise DataError(f"{path}: cannot be read: {problem}") from None


def open_binary(path: Path) -> Opened:
    return PACKED[path.suffix].unpack(path) if path.suffix in PACKED else path.open("rb", buffering=0)


def without_packing(name: str) -> str:
    """A file's name without the ending that says how it is packed."""
    path = Path(name)
    return path.stem if path.suffix in PACKED else name


def decode(block: bytes, first: int) -> Lines:
    """The whole block at once; line by line only when some line is not UTF-8."""
    try:
        texts, problems = block.decode().split("\n"), dict[int, str]()
    except UnicodeDecodeError:
        texts, problems = decode_each(block.split(b"\n"), first)
    if b"\r" in block:
        texts = [text.removesuffix("\r") for text in texts]
    return Lines(first, texts, problems)


def decode_each(lines: list[bytes], first: int) -> tuple[list[str], dict[int, str]]:
    texts, problems = [], {}
    for number, line in enumerate(lines, start=first):
        try:
            texts.append(line.decode())
        except UnicodeDecodeError as error:
            texts.append("")
            problems[number] = f"not UTF-8: byte {line[error.start]:#04x} at byte {error.start + 1} of the line{CONVERT}"
    return texts, problems
