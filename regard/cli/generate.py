"""`regard generate`"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.decoding.hypothesis import Hypothesis
    from regard.decoding.trained import Trained

BLOCK = 1024  # lines that are sorted by length and decoded together


def generate(
    run: Annotated[Path, typer.Argument(help="A run or a model directory.")],
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(min=0.0, help="Rank by log p / length ** penalty.")] = None,
    n_best: Annotated[int | None, typer.Option(min=1, help="Print the best N as `line ||| text ||| score`.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print `score<TAB>text`.")] = False,
    alignments: Annotated[Path | None, typer.Option(help="Also write word alignments (Pharaoh i-j) to this file.")] = None,
    unbuffered: Annotated[bool, typer.Option("--unbuffered", help="Answer each line at once.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Read lines from standard input, write one line for each to standard output, in order."""
    from regard.decoding.trained import load

    trained = load(run, device)
    beam = max(beam or trained.decoding.beam, n_best or 1)
    links = alignments.open("w", encoding="utf-8") if alignments else None
    number = 0
    for lines in blocks(sys.stdin.buffer, 1 if unbuffered else BLOCK):
        found = trained.search(lines, beam=beam, length_penalty=length_penalty)
        for hypotheses in found:
            write(sys.stdout, number, hypotheses, n_best, scores)
            number += 1
        sys.stdout.flush()
        if links is not None:
            write_links(links, trained, lines, found)
    if links is not None:
        links.close()


def blocks(stream: IO[bytes], size: int) -> Iterator[list[str]]:
    """Lines end at \\n and nowhere else; bytes that are no UTF-8 become U+FFFD, so that no line is lost."""
    block: list[str] = []
    for raw in stream:
        block.append(raw.rstrip(b"\n").decode("utf-8", errors="replace").rstrip("\r"))
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


def write(out: IO[str], number: int, hypotheses: Sequence["Hypothesis"], n_best: int | None, scores: bool) -> None:
    if n_best is not None:
        for one in hypotheses[:n_best] or []:
            out.write(f"{number} ||| {one_line(one.text)} ||| {one.score:.6f}\n")
        return
    text, score = (one_line(hypotheses[0].text), hypotheses[0].score) if hypotheses else ("", 0.0)
    out.write(f"{score:.6f}\t{text}\n" if scores else f"{text}\n")


def one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ").encode("utf-8", errors="replace").decode("utf-8")


def write_links(out: IO[str], trained: "Trained", lines: list[str], found: Sequence[Sequence["Hypothesis"]]) -> None:
    from regard.data.links import format_links

    pairs = [(line, hypotheses[0].text if hypotheses else "") for line, hypotheses in zip(lines, found, strict=True)]
    for alignment in trained.align(pairs):
        out.write(format_links(alignment.links) + "\n")
