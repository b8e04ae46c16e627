"""`regard generate` is a filter: a line in, a line out, in order, whatever the line holds."""

import io
import os
import pty
import re
import signal
import sys

import pytest
from calling import regard, start
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from regard.cli.asking import BLOCK, blocks
from regard.cli.outputs import Form
from regard.decoding.generator import TrainedGenerator
from regard.decoding.hypothesis import Hypothesis

PLAIN = [b"amicus bellum canis", b"liber", b"insula hortus domus domus", "fīnis equus".encode()]
ODD = {
    "empty": b"",
    "blank": b" \t ",
    "long": b"amicus " * 1428,
    "one long word": b"x" * 10_000,
    "line separator": "amicus\u2028bellum\u0085canis\x0b\x0cdomus".encode(),
    "combining": "a\u0301micus be\u0308\u0323llum".encode(),
    "right to left": "\u202eשלום عليكم amicus".encode(),
    "emoji": "👩‍👩‍👧 amicus 🏳️‍🌈".encode(),
    "NUL": b"amicus\0bellum \0",
    "no UTF-8": b"amicus \xff\xfe\xc3 bellum\xed\xa0\x80",
    "carriage returns": b"\ramicus\rbellum\r\r",
    "bars": b"amicus ||| bellum",
}


CUT = r"\S+ of \S+ outputs were cut at decoding\.\w+ before they ended; raise it"
NO_TEXT = r"<stdin>:\d+: not UTF-8: byte 0x\w\w at byte \d+ of the line is read as U\+FFFD|\S+ more lines are not UTF-8"


def filtered(run, lines, *words):
    result = regard("generate", run, *words, stdin=b"".join(line + b"\n" for line in lines))
    assert result.code == 0
    assert re.fullmatch(rf"(warning: ({CUT}|{NO_TEXT})\n)*", result.err)
    return result.lines


def test_it_translates(trained):
    assert filtered(trained, PLAIN) == [line.decode().upper() for line in PLAIN]


@pytest.mark.parametrize("name", ODD)
def test_an_odd_line_is_one_line_and_moves_no_other(trained, name):
    before, after = PLAIN[0], PLAIN[2]
    lines = filtered(trained, [before, ODD[name], after])
    assert len(lines) == 3
    assert [lines[0], lines[2]] == filtered(trained, [before, after])
    assert bool(lines[1]) == bool(ODD[name].strip())


def test_the_end_of_the_input(trained):
    assert regard("generate", trained) == (0, "", "")
    for ending in (b"", b"\n", b"\r\n"):
        assert regard("generate", trained, stdin=b"amicus" + ending).out == "AMICUS\n"
    assert regard("generate", trained, stdin=b"\n\n").out == "\n\n"
    assert regard("generate", trained, stdin=b"\xef\xbb\xbfamicus bellum\n").out == "AMICUS BELLUM\n"  # byte order mark


def test_blocks_batches_and_order_do_not_matter(trained):
    lines = [*PLAIN, *(line for name, line in ODD.items() if name != "long")]
    together = filtered(trained, lines)
    assert filtered(trained, lines, "--unbuffered") == together
    assert filtered(trained, lines[::-1])[::-1] == together
    many = PLAIN * (BLOCK // len(PLAIN) + 1)  # more than one block
    assert filtered(trained, many, "--beam", "1") == [line.decode().upper() for line in many]


@given(some.lists(some.binary(max_size=12) | some.text(max_size=12).map(lambda text: text.encode(errors="replace"))))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_as_many_lines_come_out_as_went_in(trained, lines):
    lines = [line.replace(b"\n", b"") for line in lines]
    out = filtered(trained, lines, "--beam", "2")
    assert len(out) == len(lines)
    assert out == filtered(trained, lines, "--beam", "2", "--unbuffered")


@given(some.binary(max_size=40), some.integers(1, 4))
def test_blocks_lose_nothing(raw, size):
    found = list(blocks(io.BytesIO(raw), size))
    assert all(len(block) == size for block in found[:-1])
    assert sum(map(len, found)) == raw.count(b"\n") + bool(raw and not raw.endswith(b"\n"))


def test_an_output_with_line_breaks_stays_one_line():
    found = [Hypothesis("a\nb\r\nc\ud800", [5], -1.0, -0.5)]
    assert Form().line(3, found) == "a b  c?\n"
    assert Form(scores=True).line(3, found) == "-0.500000\ta b  c?\n"
    assert Form(2).line(3, found) == "3 ||| a b  c? ||| -0.500000\n"
    assert Form(2).line(3, []) == "3 |||  ||| 0.000000\n"


def test_an_output_is_one_line_to_every_reader():
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    ends = {line[-1] for line in every.splitlines(keepends=True)[:-1]}
    assert len(ends) == 10
    for end in ends:
        assert Form().line(0, [Hypothesis(f"a{end}b", [5], -1.0, -0.5)]) == "a b\n"


def test_n_best_lists_are_in_the_format_of_moses_and_sorted(trained):
    lines = [*PLAIN, b"", b"canis"]
    rows = [row.split(" ||| ") for row in filtered(trained, lines, "--n-best", "4")]
    assert all(len(row) == 3 for row in rows)
    numbers = [int(row[0]) for row in rows]
    assert numbers == sorted(numbers)
    assert [numbers.count(number) for number in range(len(lines))] == [4, 4, 4, 4, 1, 4]
    scored = [row.split("\t") for row in filtered(trained, lines, "--scores")]
    for number, (score, text) in enumerate(scored):
        mine = [row for row in rows if int(row[0]) == number]
        assert mine[0][1:] == [text, score]
        assert [float(row[2]) for row in mine] == sorted((float(row[2]) for row in mine), reverse=True)
        assert len({row[1] for row in mine}) == len(mine)


def test_more_than_the_beam_widens_it(trained):
    assert len(filtered(trained, [b"amicus bellum"], "--n-best", "7", "--beam", "2")) == 7


def test_alignments_are_links_between_words_of_line_and_output(trained, tmp_path):
    lines = [*PLAIN, *ODD.values()]
    out = filtered(trained, lines, "--alignments", tmp_path / "links")
    links = (tmp_path / "links").read_text().split("\n")
    assert links.pop() == ""
    assert len(links) == len(lines)
    for line, text, row in zip(lines, out, links, strict=True):
        assert re.fullmatch(r"(\d+-\d+( \d+-\d+)*)?", row)
        found = [tuple(map(int, link.split("-"))) for link in row.split()]
        assert all(i < len(line.decode(errors="replace").split()) and j < len(text.split()) for i, j in found)
        assert sorted({j for _, j in found}) == list(range(len(text.split())))  # each word was looked for somewhere
    assert links[0] == "0-0 1-1 2-2"


def test_a_reader_that_goes_away_is_no_error(trained):
    with start("generate", trained, "--unbuffered") as process:
        process.stdin.write(b"amicus\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"AMICUS\n"
        process.stdout.close()
        _, err = process.communicate(b"amicus\n" * 3)
        assert err == b""
        assert process.returncode != 0


def test_interruption(trained):
    with start("generate", trained, "--unbuffered") as process:
        process.stdin.write(b"amicus\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"AMICUS\n"  # answered at once
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert b"Traceback" not in process.stderr.read()


def test_text_is_utf8_whatever_the_locale(trained, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with start("generate", trained) as process:
        assert process.communicate("fīnis\n".encode()) == ("FĪNIS\n".encode(), b"")


def test_outputs_that_were_cut_are_counted_once(trained, monkeypatch):
    """Two tokens and no more: every output of two words is cut before its end mark, and the key that did it is named."""
    given = TrainedGenerator.settings
    monkeypatch.setattr(TrainedGenerator, "settings", lambda self, **changes: given(self, **changes, max_length=2))
    monkeypatch.setattr("regard.cli.asking.BLOCK", 2)
    result = regard("generate", trained, stdin=b"liber\namicus bellum canis\n\ninsula hortus domus\n")
    assert (result.code, result.lines) == (0, ["LIBER", "AMICUS BELLUM", "", "INSULA HORTUS"])
    assert result.err == "warning: 2 of 4 outputs were cut at decoding.max_length before they ended; raise it\n"


def test_somebody_at_a_terminal_gets_a_prompt_and_an_answer_per_line(trained):
    ours, theirs = pty.openpty()
    process = start("generate", trained, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""

    def until(text):
        nonlocal shown
        while text not in shown:
            shown += os.read(ours, 1 << 16)

    try:
        until(b"type a line and press Enter; Ctrl-D ends\r\n> ")
        os.write(ours, b"amicus bellum\n")
        until(b"AMICUS BELLUM\r\n> ")  # before anything else is typed
        os.write(ours, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(ours)
