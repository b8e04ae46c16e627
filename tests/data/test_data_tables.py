"""CSV and Parquet: every row is used or reported with its place; what cannot be read is told as what it is."""

import csv
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import lines, parquet, tables
from regard.data.readers import Fault, Rows, read_rows
from regard.errors import DataError, UserError
from regard.recipe import Pairs


def joined(files: Pairs) -> Rows:
    blocks = list(read_rows(files))
    columns = {name: [text for block in blocks for text in block.columns[name]] for name in files.named}
    return Rows(columns, *([item for block in blocks for item in block[part]] for part in (1, 2)))


def table(folder: Path, content: bytes, **columns: Any) -> Pairs:
    (folder / "p.csv").write_bytes(content)
    return Pairs(pairs=folder / "p.csv", **columns)


def test_quotes_and_line_feeds_inside_them(tmp_path):
    content = b'\xef\xbb\xbf"a, b",c\r\n"say ""x""","two\r\nlines"\r\n"",w\r\n  p ," q"\r\n'
    rows = joined(table(tmp_path, content))
    assert rows.columns == {"source": ["a, b", 'say "x"', "  p "], "target": ["c", "two\nlines", " q"]}
    assert list(rows.lines) == [1, 2, 5]  # the second goes over two lines
    assert rows.faults == [Fault(tmp_path / "p.csv", 4, "the source is empty")]


def test_columns_by_name_and_number(tmp_path):
    content = b'id,"the text",label\n1,"a\nb",x\n2,c,y\n'
    rows = joined(table(tmp_path, content, columns={"source": "the text", "label": "label"}))
    assert rows == ({"source": ["a\nb", "c"], "label": ["x", "y"]}, [2, 4], [])
    rows = joined(table(tmp_path, content, source_column=2, target_column=0))
    assert rows.columns == {"source": ["label", "x", "y"], "target": ["id", "1", "2"]}
    with pytest.raises(DataError, match=r"p\.csv:1: no column 'fr' in the header; it has 'id', 'the text', 'label'"):
        joined(table(tmp_path, content, source_column="fr"))
    with pytest.raises(DataError, match="counted from 0"):
        joined(table(tmp_path, content, source_column=-1))
    with pytest.raises(DataError, match=r"p\.csv:1: not UTF-8: byte 0xff in column 0"):
        joined(table(tmp_path, b"\xff,b\n1,2\n", source_column="b"))


COMMAS = "(columns are separated by commas)"
CSV_FAULTS = [
    (b"only", 1, f"a column is missing: 1 instead of 2 {COMMAS}"),
    (b"", 1, f"a column is missing: 0 instead of 2 {COMMAS}"),
    (b"one,two,three", 1, f"a column too many: 3 instead of 2 {COMMAS}"),
    (b'"one\n",', 2, "the target is empty"),
    (b'\xe4,"one\ntwo"', 2, "not UTF-8: byte 0xe4 in column 0, counted from 0" + lines.CONVERT),
    (
        b'"a\xff\nb",c',
        2,
        "not UTF-8: byte 0xff in column 0, counted from 0" + lines.CONVERT,
    ),  # the quote before the byte counts
    (b"one,t\0o", 1, "a NUL character in the target, at column 2"),
    (b'"one"x,two', 1, "not CSV: ',' expected after '\"' (up to line 2; a quote inside quotes is written twice)"),
    (b'one,"two\n"x', 2, "not CSV: ',' expected after '\"' (up to line 3; a quote inside quotes is written twice)"),
]


@pytest.mark.parametrize("block", [1 << 20, 4])
@pytest.mark.parametrize(("row", "height", "problem"), CSV_FAULTS)
def test_faults_of_csv(tmp_path, monkeypatch, row, height, problem, block):
    monkeypatch.setattr(lines, "BLOCK", block)
    monkeypatch.setattr(tables, "BLOCK", block)
    rows = joined(table(tmp_path, b"a,b\n" + row + b"\nc,d\n"))
    assert rows.columns == {"source": ["a", "c"], "target": ["b", "d"]}
    assert (list(rows.lines), rows.faults) == ([1, 2 + height], [Fault(tmp_path / "p.csv", 2, problem)])


@pytest.mark.parametrize("end", [b'"never closed', b'"never, closed\n' + b"x,y\n" * 9, b'"' + b"x" * 40 + b'"'])
def test_a_quote_that_hides_the_rest_of_the_file_stops(tmp_path, monkeypatch, end):
    monkeypatch.setattr(tables, "FIELD", 30)
    told = r"p\.csv:2: the row that begins here has a quote that is never closed, or a field of more than 30 characters"
    with pytest.raises(DataError, match=told):
        joined(table(tmp_path, b"a,b\nc," + end))


FIELD = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.tuples(FIELD, FIELD, FIELD), min_size=1, max_size=12), block=st.sampled_from([1, 7, 1 << 20]))
def test_what_python_writes_is_read(tmp_path_factory, rows, block):
    """Every row is used or reported, at the line where it begins."""
    text, starts = io.StringIO(newline=""), list[int]()
    for row in rows:
        starts.append(text.getvalue().count("\n") + 1)
        csv.writer(text).writerow(row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", block)
        patch.setattr(tables, "BLOCK", block)
        files = table(tmp_path_factory.mktemp("csv"), text.getvalue().encode(), columns={"source": 0, "tags": 1, "label": 2})
        found = joined(files) if not rows[0][0].startswith("\ufeff") else Rows({}, [], [])
    assert sorted([*found.lines, *(fault.line for fault in found.faults)]) == starts[: len(found.lines) + len(found.faults)]
    assert all(fault.problem.endswith("is empty") for fault in found.faults)
    for line, *texts in zip(found.lines, *found.columns.values(), strict=True):
        assert tuple(texts) == rows[starts.index(line)]


WRONG_PARQUET = [
    (b"", "not a Parquet file: it does not begin with PAR1"),
    (b"a,b\n", "not a Parquet file: it does not begin with PAR1"),
    (b"PAR1", "a Parquet file that was cut short: it does not end with PAR1; copy it again"),
    (b"PAR1 and so on", "a Parquet file that was cut short: it does not end with PAR1; copy it again"),
]


@pytest.mark.parametrize(("content", "problem"), WRONG_PARQUET)
def test_what_is_no_parquet_file(tmp_path, content, problem):
    (tmp_path / "p.parquet").write_bytes(content)
    with pytest.raises(DataError, match=rf"p\.parquet: {problem}"):
        joined(Pairs(pairs=tmp_path / "p.parquet"))
    with pytest.raises(DataError, match=r"while it is packed; unpack it"):
        joined(Pairs(pairs=tmp_path / "p.parquet.gz"))


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "p.parquet").write_bytes(b"PAR1 and so on PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"Parquet files need pyarrow: pip install 'regard\[data\]'"):
        joined(Pairs(pairs=tmp_path / "p.parquet"))


@pytest.fixture
def arrow() -> ModuleType:
    pytest.importorskip("pyarrow.parquet")
    return pytest.importorskip("pyarrow")


def written(folder: Path, table: dict[str, Any], **given: Any) -> Pairs:
    import pyarrow
    from pyarrow.parquet import write_table

    write_table(pyarrow.table(table), folder / "p.parquet", row_group_size=3)
    return Pairs(pairs=folder / "p.parquet", **given)


@pytest.mark.parametrize("batch", [1, 2, 1 << 13])
def test_rows_of_parquet(tmp_path, monkeypatch, arrow, batch):
    monkeypatch.setattr(parquet, "ROWS", batch)
    texts, labels = ["a", None, "b\nc", "ü", ""], ["x", "y", "x", None, "y"]
    kinds = [arrow.array(labels), arrow.array(labels, arrow.large_string()), arrow.array(labels).dictionary_encode()]
    told = {2: "the source is null", 4: "the label is null", 5: "the source is empty"}
    for kind in kinds:
        files = written(tmp_path, {"id": range(5), "text": texts, "label": kind}, source_column=1, columns={"label": "label"})
        rows = joined(files)
        assert rows.columns == {"source": ["a", "b\nc"], "label": ["x", "x"]}
        assert list(rows.lines) == [1, 3]
        assert rows.faults == [Fault(tmp_path / "p.parquet", line, problem) for line, problem in told.items()]


def test_bytes_in_parquet_that_are_not_utf8(tmp_path, arrow):
    bad = arrow.array([b"a", b"b\xff", b"c"]).view(arrow.string())
    rows = joined(written(tmp_path, {"source": bad, "target": ["1", "2", "3"]}))
    assert rows.columns == {"source": ["a", "c"], "target": ["1", "3"]}
    assert rows.faults == [Fault(tmp_path / "p.parquet", 2, "the source is not UTF-8: byte 0xff at byte 2")]


def test_columns_of_parquet_that_are_no_text(tmp_path, arrow):
    columns = {"text": ["a"], "real": [1.5], "pair": [{"de": "a"}], "list": [[0.5]], "nothing": arrow.nulls(1)}
    for name, kind in {"real": "double", "pair": "struct<de: string>", "list": "list<", "nothing": "null"}.items():
        with pytest.raises(DataError, match=rf"p\.parquet: column '{name}' holds {kind}.*, not text \(the target\)"):
            joined(written(tmp_path, columns, target_column=name))
    with pytest.raises(DataError, match=r"no column 'txt'; the file has 'text', 'real'"):
        joined(written(tmp_path, columns, source_column="txt"))
    for number in -1, 5:
        with pytest.raises(DataError, match=rf"no column {number}, counted from 0"):
            joined(written(tmp_path, columns, source_column=number))


def test_damaged_parquet(tmp_path, arrow):
    pairs = written(tmp_path, {"source": ["some text"] * 500, "target": ["other text"] * 500})
    whole = (tmp_path / "p.parquet").read_bytes()
    for damaged in (whole[:4] + bytes(200) + whole[204:], whole[:-40] + b"\xff" * 30 + whole[-10:], whole[:100] + whole[-8:]):
        (tmp_path / "p.parquet").write_bytes(damaged)
        with pytest.raises(DataError, match=r"p\.parquet: a broken Parquet file: "):
            joined(pairs)


def test_a_parquet_file_without_rows(tmp_path, arrow):
    with pytest.raises(DataError, match="no rows"):
        joined(written(tmp_path, {"source": arrow.array([], arrow.string()), "target": arrow.array([], arrow.string())}))
