"""Lines that come in: from a file or a pipe in blocks, from a person one by one."""

import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import typer

from regard.errors import UserError

BLOCK = 1024  # lines that are sorted by length and answered together
BYTES = 1 << 22  # or as many as are so long together
NAMED = 5  # lines that are not UTF-8: so many are named, and the others counted


class Block(NamedTuple):
    """Lines that follow each other; a bad one is empty, and named in `problems` by its index."""

    texts: list[str]
    problems: Mapping[int, str] = {}
    size: int = 0  # bytes


class Incoming(NamedTuple):
    """Where lines come from."""

    blocks: Iterator[Block]
    where: str  # what comes before the number of a line: `<stdin>:`
    size: int | None = None  # bytes of all, where that is known
    at_once: bool = False  # each line is answered before the next is read


def incoming(unbuffered: bool) -> Iterator[list[str]]:
    """The texts alone of what standard input holds."""
    return (block.texts for block in standard_input(unbuffered).blocks)


def standard_input(unbuffered: bool = False) -> Incoming:
    """Somebody at a terminal gets a prompt, and each line is answered at once."""
    if sys.stdin is None or sys.stdout is None:
        raise UserError(f"standard {'input' if sys.stdin is None else 'output'} is closed: lines come in and go out there")
    if sys.stdin.isatty():
        return Incoming(in_blocks(typed(), 1), "<stdin>:", at_once=True)
    return Incoming(in_blocks(sys.stdin.buffer, 1 if unbuffered else BLOCK), "<stdin>:", size_of(sys.stdin), unbuffered)


def lines_of(path: Path, unbuffered: bool = False) -> Incoming:
    """Of a file, whatever it is called; .gz too."""
    from regard.data.lines import open_binary, reading, require_file

    def read() -> Iterator[Block]:
        with reading(path), open_binary(path) as file, io.BufferedReader(file) as lines:
            yield from in_blocks(lines, 1 if unbuffered else BLOCK, f"{path}:")

    with reading(path):
        require_file(path)
    return Incoming(read(), f"{path}:", path.stat().st_size if path.suffix != ".gz" else None, unbuffered)


def size_of(stream: Any) -> int | None:
    """Of a file that was redirected here; a pipe has none."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):  # io.UnsupportedOperation is both
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def typed() -> Iterator[bytes]:
    """The prompt goes to standard error: outputs may be redirected to a file."""
    typer.echo("type a line and press Enter; Ctrl-D ends", err=True)
    while True:
        typer.echo("> ", nl=False, err=True)
        line = sys.stdin.buffer.readline()
        if not line:
            typer.echo("", err=True)
            return
        yield line


def blocks(stream: Iterable[bytes], size: int) -> Iterator[list[str]]:
    return (block.texts for block in in_blocks(stream, size))


def in_blocks(stream: Iterable[bytes], size: int, where: str = "<stdin>:") -> Iterator[Block]:
    """Lines end at \\n and nowhere else; bytes that are no UTF-8 become U+FFFD, which is said, so that no line is lost."""
    from regard.data.lines import BYTE_ORDER_MARK

    texts, problems, filled, odd = list[str](), dict[int, str](), 0, NotUTF8(where)
    for number, raw in enumerate(whole(stream), start=1):
        filled += 0 if raw is None else len(raw)
        if raw is None:
            problems[len(texts)] = too_long()
        raw = (raw or b"").removeprefix(BYTE_ORDER_MARK if number == 1 else b"").rstrip(b"\n")
        texts.append(odd.decoded(raw, number).rstrip("\r"))
        if len(texts) == size or filled >= BYTES:
            yield Block(texts, problems, filled)
            texts, problems, filled = [], {}, 0
    if texts:
        yield Block(texts, problems, filled)
    odd.count()


def whole(stream: Iterable[bytes]) -> Iterator[bytes | None]:
    """Its lines; None for one that is longer than any text, of which no more than a piece is kept in memory."""
    from regard.data.lines import LONGEST

    if not hasattr(stream, "readline"):
        yield from stream
        return
    while piece := stream.readline(LONGEST):
        if len(piece) < LONGEST or piece.endswith(b"\n"):
            yield piece
            continue
        while (piece := stream.readline(LONGEST)) and not piece.endswith(b"\n"):
            pass
        yield None


def too_long() -> str:
    from regard.data.lines import LONGEST

    return f"longer than {LONGEST >> 20} MB; is this a text file?"


class NotUTF8:
    """Says which lines are not."""

    def __init__(self, where: str) -> None:
        self.where, self.number = where, 0

    def decoded(self, raw: bytes, number: int) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            self.number += 1
            if self.number <= NAMED:
                byte = f"byte {raw[error.start]:#04x} at byte {error.start + 1} of the line"
                typer.echo(f"warning: {self.where}{number}: not UTF-8: {byte} is read as U+FFFD", err=True)
            return raw.decode(errors="replace")

    def count(self) -> None:
        if self.number > NAMED:
            typer.echo(f"warning: {self.number - NAMED:,} more lines are not UTF-8", err=True)
