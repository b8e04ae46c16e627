"""Lines that come in: from a file or a pipe in blocks, from a person one by one."""

import sys
from collections.abc import Iterable, Iterator

import typer

from regard.errors import UserError

BLOCK = 1024  # lines that are sorted by length and answered together


def incoming(unbuffered: bool) -> Iterator[list[str]]:
    """What standard input holds. Somebody at a terminal gets a prompt, and each line is answered at once."""
    if sys.stdin is None or sys.stdout is None:
        raise UserError(f"standard {'input' if sys.stdin is None else 'output'} is closed: lines come in and go out there")
    if not sys.stdin.isatty():
        return blocks(sys.stdin.buffer, 1 if unbuffered else BLOCK)
    return blocks(typed(), 1)


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
    """Lines end at \\n and nowhere else; bytes that are no UTF-8 become U+FFFD, so that no line is lost."""
    from regard.data.lines import BYTE_ORDER_MARK

    block: list[str] = []
    for number, raw in enumerate(stream):
        raw = raw.removeprefix(BYTE_ORDER_MARK) if number == 0 else raw
        block.append(raw.rstrip(b"\n").decode("utf-8", errors="replace").rstrip("\r"))
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block
