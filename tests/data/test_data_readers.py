"""Readers: every row is used or reported, and the report names file, line and problem."""

import gzip
import json
import sys
import unicodedata
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import lines
from regard.data.readers import READERS, BadRows, Fault, Rows, read_rows
from regard.data.rows import SEEN
from regard.errors import DataError
from regard.recipe import Pairs


class Merged(NamedTuple):
    """All blocks of pairs as one."""

    sources: list[str]
    targets: list[str]
    lines: list[int]
    faults: list[Fault]


def joined(files: Pairs) -> Rows:
    blocks = list(read_rows(files))
    assert all(list(block.columns) == list(files.named) for block in blocks)
    columns = {name: [text for block in blocks for text in block.columns[name]] for name in files.named}
    return Rows(columns, *([item for block in blocks for item in block[part]] for part in (1, 2)))


def merged(pairs: Pairs) -> Merged:
    rows = joined(pairs)
    return Merged(*rows.columns.values(), rows.lines, rows.faults)


def parallel(folder: Path, source: bytes, target: bytes) -> Pairs:
    (folder / "a").write_bytes(source)
    (folder / "b").write_bytes(target)
    return Pairs(source=folder / "a", target=folder / "b")


def single(folder: Path, name: str, content: bytes, **columns: int | str) -> Pairs:
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Pairs(pairs=folder / name, **columns)


PLAIN = [
    (b"x\ny\n", ["x", "y"]),
    (b"x\ny", ["x", "y"]),
    (b"x\r\ny\r\n", ["x", "y"]),
    (b"x\r\ny\n", ["x", "y"]),
    (b"\xef\xbb\xbfx\ny\n", ["x", "y"]),
    (b"x\xef\xbb\xbf\n\xef\xbb\xbfy\n", ["x\ufeff", "\ufeffy"]),  # only at the start is it a mark
    ("x\u2028z\n\u0085y\x0b\x0c\x1cw\n".encode(), ["x\u2028z", "\u0085y\x0b\x0c\x1cw"]),
    (b"x\rz\ny\r\r\n", ["x\rz", "y\r"]),
    (b" x \n\ty\n", [" x ", "\ty"]),
]


@pytest.mark.parametrize(("content", "texts"), PLAIN)
@pytest.mark.parametrize("block", [1 << 20, 4])
def test_lines_are_cut_at_line_feeds_only(tmp_path, monkeypatch, content, texts, block):
    monkeypatch.setattr(lines, "BLOCK", block)
    assert merged(parallel(tmp_path, content, b"1\n2\n")) == (texts, ["1", "2"], [1, 2], [])


def test_gz_files(tmp_path):
    pairs = Pairs(source=tmp_path / "a.gz", target=tmp_path / "b")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x\ny\n"))
    (tmp_path / "b").write_bytes(b"1\n2\n")
    assert merged(pairs)[:2] == (["x", "y"], ["1", "2"])


PARALLEL_FAULTS = [
    (b"x\nb\xffd\nz\n", b"1\n2\n3\n", ("a", 2, "not UTF-8: byte 0xff at byte 2 of the line" + lines.CONVERT)),
    (b"x\ny\nz\n", "1\nä\n3\n".encode("latin-1"), ("b", 2, "not UTF-8: byte 0xe4 at byte 1 of the line" + lines.CONVERT)),
    (b"x\nb\xff\nz\n", b"1\n\xff\n3\n", ("a", 2, "not UTF-8: byte 0xff at byte 2 of the line" + lines.CONVERT)),
    (b"x\ny\0\nz\n", b"1\n2\n3\n", ("a", 2, "a NUL character in the source, at column 2")),
    (b"x\ny\nz\n", b"1\n\0\n3\n", ("b", 2, "a NUL character in the target, at column 1")),
    (b"x\n\nz\n", b"1\n2\n3\n", ("a", 2, "the source is empty")),
    (b"x\ny\nz\n", b"1\n \t\r\n3\n", ("b", 2, "the target is empty")),
]


@pytest.mark.parametrize("block", [1 << 20, 3])
@pytest.mark.parametrize(("source", "target", "fault"), PARALLEL_FAULTS)
def test_faults_of_parallel_files(tmp_path, monkeypatch, source, target, fault, block):
    monkeypatch.setattr(lines, "BLOCK", block)
    rows = merged(parallel(tmp_path, source, target))
    assert rows == (["x", "z"], ["1", "3"], [1, 3], [Fault(tmp_path / fault[0], *fault[1:])])


@pytest.mark.parametrize("block", [1 << 20, 3])
def test_every_unmatched_line_is_a_fault(tmp_path, monkeypatch, block):
    monkeypatch.setattr(lines, "BLOCK", block)
    rows = merged(parallel(tmp_path, b"x\ny\nz\n", b"1\n"))
    problem = f"no line to go with it: {tmp_path / 'b'} has only 1 lines"
    assert rows.faults == [Fault(tmp_path / "a", 2, problem, alone=False), Fault(tmp_path / "a", 3, problem, alone=False)]
    rows = merged(parallel(tmp_path, b"x\ny\n", b"1\n2\n \n3\n"))
    problem = f"no line to go with it: {tmp_path / 'a'} has only 2 lines"
    assert rows.faults == [Fault(tmp_path / "b", 3, problem, alone=True), Fault(tmp_path / "b", 4, problem, alone=False)]
    rows = merged(parallel(tmp_path, b"", b"1\n2\n"))
    assert [(fault.file.name, fault.line) for fault in rows.faults] == [("b", 1), ("b", 2)]


TSV_FAULTS = [
    (b"only", "a column is missing: 1 instead of 2 (columns are separated by tabs)"),
    (b"one\ttwo\tthree", "a column too many: 3 instead of 2 (columns are separated by tabs)"),
    (b"one\t\xfftwo", "not UTF-8: byte 0xff at byte 5 of the line" + lines.CONVERT),
    (b"one\t", "the target is empty"),
    (b" \ttwo", "the source is empty"),
    (b"", "a column is missing: 1 instead of 2 (columns are separated by tabs)"),
    (b"one\tt\0o", "a NUL character in the target, at column 2"),
]


@pytest.mark.parametrize(("line", "problem"), TSV_FAULTS)
@pytest.mark.parametrize("name", ["p.tsv", "p.tsv.gz"])
def test_faults_of_tsv(tmp_path, line, problem, name):
    rows = merged(single(tmp_path, name, b"a\tb\n" + line + b"\nc\td\n"))
    assert rows == (["a", "c"], ["b", "d"], [1, 3], [Fault(tmp_path / name, 2, problem)])


def test_a_tsv_whose_first_row_is_short(tmp_path):
    rows = merged(single(tmp_path, "p.tsv", b"only\na\tb\n"))
    assert (rows.lines, [fault.line for fault in rows.faults]) == ([2], [1])
    rows = merged(single(tmp_path, "p.tsv", b"only\nonly\n"))
    assert (rows.lines, [fault.line for fault in rows.faults]) == ([], [1, 2])


def test_tsv_columns_by_name_and_number(tmp_path):
    content = b"id\tde\ten\r\n1\tja\tyes\r\n2\tnein\tno"
    for columns in {"source_column": "de", "target_column": "en"}, {"source_column": 1, "target_column": "en"}:
        rows = merged(single(tmp_path, "p.tsv", content, **columns))
        assert rows == (["ja", "nein"], ["yes", "no"], [2, 3], [])
    rows = merged(single(tmp_path, "p.tsv", content, source_column=2, target_column=0))
    assert rows == (["yes", "no"], ["1", "2"], [2, 3], [])
    with pytest.raises(DataError, match=r"p\.tsv:1: no column 'fr' in the header; it has 'id', 'de', 'en'"):
        merged(single(tmp_path, "p.tsv", content, source_column="fr"))
    with pytest.raises(DataError, match="counted from 0"):
        merged(single(tmp_path, "p.tsv", content, source_column=-1))


JSONL_FAULTS = [
    (b"{", "not JSON: Expecting property name enclosed in double quotes at column 2"),
    (b"", "not JSON: Expecting value at column 1"),
    (b'["a", "b"]', "a JSON object is needed, not an array"),
    (b"null", "a JSON object is needed, not null"),
    (b'{"source": "a"}', "no key 'target'; the row has 'source'"),
    (b'{"source": 1, "target": "b"}', "'source' must be text, not a number"),
    (b'{"source": "a", "target": null}', "'target' must be text, not null"),
    (b'{"source": true, "target": "a"}', "'source' must be text, not a truth value"),
    (b'{"source": "a", "target": 0.5}', "'target' must be text, not a number"),
    (b'{"source": "a", "target": " "}', "the target is empty"),
    (b'{"source": "a\\u0000", "target": "b"}', "a NUL character in the source, at column 2"),
    (b'{"source": "a", "target": "\\ud800"}', "'target' holds half of a surrogate pair, which is not text"),
    (b'{"source": "\xff", "target": "b"}', "not UTF-8: byte 0xff at byte 13 of the line" + lines.CONVERT),
    (b"[" * 100_000, "not JSON that can be read: too deep, or a number too long"),
    (b'{"source": 1' + b"0" * 5000 + b"}", "not JSON that can be read: too deep, or a number too long"),
]


@pytest.mark.parametrize(("line", "problem"), JSONL_FAULTS)
def test_faults_of_jsonl(tmp_path, line, problem):
    good = [json.dumps({"source": letter, "target": letter.upper()}).encode() for letter in "ac"]
    rows = merged(single(tmp_path, "p.jsonl", good[0] + b"\n" + line + b"\n" + good[1] + b"\n"))
    assert rows == (["a", "c"], ["A", "C"], [1, 3], [Fault(tmp_path / "p.jsonl", 2, problem)])


def test_jsonl_keys(tmp_path):
    content = '{"de": "ja\\nja", "en": "ü"}\n'.encode()
    rows = merged(single(tmp_path, "p.jsonl.gz", content, source_column="de", target_column="en"))
    assert rows == (["ja\nja"], ["ü"], [1], [])
    with pytest.raises(DataError, match="give its key"):
        merged(single(tmp_path, "p.jsonl", content, source_column=2))


def test_a_column_without_others(tmp_path):
    (tmp_path / "a").write_bytes(b"x\n\nz\n")
    rows = joined(Pairs(target=tmp_path / "a"))
    assert rows == ({"target": ["x", "z"]}, [1, 3], [Fault(tmp_path / "a", 2, "the target is empty")])


def three(folder: Path, *contents: bytes) -> Pairs:
    for name, content in zip(("a", "b", "c"), contents, strict=True):
        (folder / name).write_bytes(content)
    return Pairs(source=folder / "a", target=folder / "b", columns={"label": str(folder / "c")})


@pytest.mark.parametrize("block", [1 << 20, 3])
def test_three_parallel_files(tmp_path, monkeypatch, block):
    monkeypatch.setattr(lines, "BLOCK", block)
    rows = joined(three(tmp_path, b"x\nlonger\nz\nw\n", b"1\n2\n3\n4\n", b"p\nq\n\n\xff\n"))
    assert rows.columns == {"source": ["x", "longer"], "target": ["1", "2"], "label": ["p", "q"]}
    told = [
        Fault(tmp_path / "c", 3, "the label is empty"),
        Fault(tmp_path / "c", 4, "not UTF-8: byte 0xff at byte 1 of the line" + lines.CONVERT),
    ]
    assert (rows.lines, rows.faults) == ([1, 2], told)


@pytest.mark.parametrize("block", [1 << 20, 3])
def test_a_row_that_some_files_lack_is_one_fault(tmp_path, monkeypatch, block):
    monkeypatch.setattr(lines, "BLOCK", block)
    rows = joined(three(tmp_path, b"x\n" * 2, b"1\n" * 5, b"p\n" * 7))
    problem = f"no line to go with it: {tmp_path / 'a'} has only 2 lines"
    where = [("b", 3), ("b", 4), ("b", 5), ("c", 6), ("c", 7)]
    assert (rows.lines, rows.faults) == ([1, 2], [Fault(tmp_path / name, line, problem, alone=False) for name, line in where])


def test_further_columns_of_tables(tmp_path):
    tsv = b"text\tlabel\tid\na b\tx\t1\nc\t\t2\n"
    rows = joined(single(tmp_path, "p.tsv", tsv, columns={"source": "text", "label": "label"}))
    assert rows == ({"source": ["a b"], "label": ["x"]}, [2], [Fault(tmp_path / "p.tsv", 3, "the label is empty")])
    rows = joined(single(tmp_path, "p.tsv", b"0\t1\t2\t3\n", source_column=3, columns={"target": 1, "tags": 0}))
    assert rows.columns == {"source": ["3"], "target": ["1"], "tags": ["0"]}
    jsonl = b'{"source": "a", "topic": "x"}\n{"source": "b"}\n'
    rows = joined(single(tmp_path, "p.jsonl", jsonl, source_column=0, columns={"label": "topic"}))
    assert rows.columns == {"source": ["a"], "label": ["x"]}
    assert [fault.problem for fault in rows.faults] == ["no key 'topic'; the row has 'source'"]
    with pytest.raises(DataError, match=r"column 1 of a JSONL file; give its key, for example columns\.label=text"):
        joined(single(tmp_path, "p.jsonl", jsonl, columns={"source": "source", "label": 1}))


def test_str_of_a_fault():
    assert str(Fault(Path("x/y.tsv"), 3, "odd")) == "x/y.tsv:3: odd"


@pytest.mark.parametrize("kind", READERS)
def test_files_that_are_not_there(tmp_path, kind):
    with pytest.raises(DataError, match=f"p{kind}: cannot be read: No such file"):
        merged(Pairs(pairs=tmp_path / f"p{kind}"))
    (tmp_path / f"p{kind}").mkdir()
    with pytest.raises(DataError, match=f"p{kind}: a directory; name a file of text"):
        merged(Pairs(pairs=tmp_path / f"p{kind}"))


@pytest.mark.parametrize("kind", [kind for kind in READERS if kind != ".parquet"])
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_a_file_without_rows(tmp_path, kind, content):
    with pytest.raises(DataError, match=f"p{kind}: no rows"):
        merged(single(tmp_path, f"p{kind}", content))


def test_a_header_alone_is_no_row(tmp_path):
    for name, content in ("p.tsv", b"a\tb\n"), ("p.tsv", b""), ("p.csv", b"a,b\n"), ("p.csv", b""):
        with pytest.raises(DataError, match="no rows"):
            merged(single(tmp_path, name, content, source_column="a", target_column="b"))


def test_parallel_files_without_rows(tmp_path):
    with pytest.raises(DataError, match=r"a and .*b: no rows"):
        merged(parallel(tmp_path, b"", b""))


def test_broken_gz_files(tmp_path):
    whole = gzip.compress(b"a\tb\n" * 1000)
    for content in whole[:-9], whole[:30], whole[:20] + b"\xff\xff" + whole[22:], b"a\tb\n", whole[:-4] + b"\1\1\1\1":
        (tmp_path / "p.tsv.gz").write_bytes(content)
        with pytest.raises(DataError, match=r"p\.tsv\.gz: a broken \.gz file"):
            merged(Pairs(pairs=tmp_path / "p.tsv.gz"))


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "BLOCK", 4)
    monkeypatch.setattr(lines, "LONGEST", 10)
    for before, line in ((b"", 1), (b"a\nb\n", 3)):
        with pytest.raises(DataError, match=f"a:{line}: a line is longer"):
            merged(parallel(tmp_path, before + b"x" * 20, b"y\n" * line))


@pytest.mark.parametrize("block", [1 << 20, 4])
def test_carriage_returns_instead_of_line_feeds_are_named(tmp_path, monkeypatch, block):
    monkeypatch.setattr(lines, "BLOCK", block)
    monkeypatch.setattr(lines, "LONGEST", 10)
    for content in b"x\ry\rz", b"x\ry\r", b"x" * 5 + b"\r" + b"y" * 20:
        with pytest.raises(DataError, match=r"a: the file has carriage returns instead of line feeds.*tr '\\r' '\\n' < a"):
            merged(parallel(tmp_path, content, b"1\n2\n3\n"))
    assert merged(parallel(tmp_path, b"x\r", b"1\r\n"))[:2] == (["x"], ["1"])


@pytest.mark.parametrize("blank", ["", " ", "\u200b", " \u200b\u2060 ", "\ufeff\u200e", "\u00ad", "\U000e0061"])
def test_a_row_in_which_nothing_can_be_seen_is_empty(tmp_path, blank):
    good = "\u200ba"  # one visible letter is enough
    rows = merged(parallel(tmp_path, f"x\n{blank}\n{good}\n".encode(), b"1\n2\n3\n"))
    assert (rows.sources, rows.lines) == (["x", good], [1, 3])
    assert [fault.problem for fault in rows.faults] == ["the source is empty"]


def test_format_characters_are_those_of_unicode():
    unseen = {chr(code) for code in range(sys.maxunicode + 1) if SEEN.search(chr(code)) is None}
    assert unseen >= {letter for letter in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(letter) == "Cf"}
    assert not {letter for letter in unseen if unicodedata.category(letter)[0] in "LNPSM"}


def faults(number: int) -> list[Fault]:
    return [Fault(Path("f"), line, "odd") for line in range(1, number + 1)]


def test_stop_names_the_first_faults_and_the_fix():
    BadRows("stop").add([])
    with pytest.raises(DataError) as stopped:
        BadRows("stop").add(faults(7))
    told = [*(f"f:{line}: odd" for line in range(1, 6)), "... and 2 more up to line 7"]
    assert str(stopped.value).split("\n") == [*told, "mend the file or set data.on_bad_row=skip"]


def test_skip_counts_and_reports(tmp_path):
    (tmp_path / "report").write_text("of another time\n")
    bad = BadRows("skip", tmp_path / "report")
    bad.add(faults(15))
    bad.add(faults(15))
    assert bad.count == 30
    assert bad.first == (faults(15) + faults(15))[:20]
    assert (tmp_path / "report").read_text().split("\n") == [*map(str, faults(15) + faults(15)), ""]


LINE = st.one_of(
    st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=8).map(str.encode),
    st.binary(max_size=4).map(lambda line: line.replace(b"\n", b"")),
)


@settings(max_examples=300, deadline=None)
@given(sides=st.tuples(st.lists(LINE, max_size=20), st.lists(LINE, max_size=20)), block=st.sampled_from([1, 5, 64]))
def test_every_row_is_used_or_reported(tmp_path_factory, sides, block):
    folder = tmp_path_factory.mktemp("rows")
    source, target = (b"".join(line + b"\n" for line in side) for side in sides)
    count = max(len(side) for side in sides)
    if count == 0 or any(side and side[0].startswith((b"\xef\xbb\xbf", *lines.NO_TEXT)) for side in sides):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", block)
        rows = merged(parallel(folder, source, target))
    assert sorted([*rows.lines, *(fault.line for fault in rows.faults)]) == list(range(1, count + 1))
    for line, text, other in zip(rows.lines, rows.sources, rows.targets, strict=True):
        assert text.encode() == sides[0][line - 1].removesuffix(b"\r")
        assert other.encode() == sides[1][line - 1].removesuffix(b"\r")
