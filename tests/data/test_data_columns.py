"""Which columns of a table are which, where nobody says it: headers with any names, columns that count rows, what separates
columns, how files are packed."""

import bz2
import gzip
import json
import lzma
import random

import pytest

from regard.data.columns import found_columns
from regard.data.lines import PACKED
from regard.data.readers import format_of, notes, read_rows
from regard.errors import DataError
from regard.recipe import Pairs

PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def rows_of(path, **columns):
    files = Pairs(pairs=path, **columns)
    return [row for block in read_rows(files) for row in zip(*block.columns.values(), strict=True)], notes(files)


def write(path, rows, separator="\t", encoding="utf-8"):
    path.write_bytes("".join(separator.join(row) + "\n" for row in rows).encode(encoding))
    return path


def drawn(make, rows=20):
    chance = random.Random(3)
    return [make(chance, row) for row in range(rows)]


def word(chance):
    return "".join(chance.choice("abcdefgh") for _ in range(5))


def sentence(chance):
    return " ".join(word(chance) for _ in range(5))


# a first row, and rows below it
ABOVE = {
    "dates": (("human", "iso"), lambda chance, row: (f"{row + 1} May 1999", f"1999-05-{row + 1:02d}")),
    "sentences below words": (("nl", "code"), lambda chance, row: (sentence(chance), word(chance) + "()")),
    "labels of which the name is none": (
        ("remark", "mood"), lambda chance, row: (word(chance), chance.choice(["good", "bad"])),
    ),
    "pandas' index": (("", "ask", "say"), lambda chance, row: (str(row), word(chance), word(chance))),
    "empty columns of a spreadsheet": (
        ("v1", "v2", "", ""), lambda chance, row: (chance.choice(["good", "bad"]), sentence(chance), "", ""),
    ),
    "languages": (("German", "English"), lambda chance, row: (word(chance), word(chance))),
}  # fmt: skip


@pytest.mark.parametrize("name", ABOVE)
@pytest.mark.parametrize("form", [".tsv", ".csv"])
def test_a_header_is_known_by_what_stands_below_it(name, form, tmp_path):
    header, make = ABOVE[name]
    below = drawn(make)
    path = write(tmp_path / f"p{form}", [header, *below], "\t" if form == ".tsv" else ",")
    rows, told = rows_of(path)
    last = 1 + max(at for at, one in enumerate(header) if one)
    assert rows == [row[last - 2 : last] for row in below]
    assert len(told) == 1
    assert f"its first row is a header (source: {header[last - 2]!r}, target: {header[last - 1]!r})" in told[0]
    assert ("say which to take" in told[0]) == (len(header) > 2)


def test_a_name_may_have_a_comma(tmp_path):
    below = "".join(f"{row},{(chance := random.Random(row)) and word(chance)},{word(chance)}\n" for row in range(20))
    (tmp_path / "p.csv").write_text(f'Kunden-Nr.,Frage (dt.),"Antwort, kurz"\n{below}')
    rows, told = rows_of(tmp_path / "p.csv")
    assert len(rows) == 20
    assert "its first row is a header (source: 'Frage (dt.)', target: 'Antwort, kurz')" in told[0]


# first rows that are rows
NO_HEADERS = {
    "as many digits": (("abc 12", "x12"), lambda chance, row: (f"{word(chance)} {row}", str(row))),
    "the same again below": (("good", "bad"), lambda chance, row: (sentence(chance), chance.choice(["good", "bad"]))),
    "a mark no name has": (("Go.", "Geh!"), lambda chance, row: (sentence(chance), sentence(chance))),
    "a sentence like the others": (
        ("we go home now", "gehen"), lambda chance, row: (sentence(chance), sentence(chance)),
    ),
    "spelled": (("a", "AH"), lambda chance, row: (one := word(chance), " ".join(one.upper()))),
    "words like the others": (("cat", "chat"), lambda chance, row: (word(chance), word(chance))),
    "two cells alike": (("text", "text"), lambda chance, row: (sentence(chance), sentence(chance))),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_HEADERS)
def test_a_row_like_the_others_is_no_header(name, tmp_path):
    first, make = NO_HEADERS[name]
    rows = [first, *drawn(make)]
    assert rows_of(write(tmp_path / "p.tsv", rows)) == (rows, [])


def test_few_rows_tell_nothing_of_unknown_names(tmp_path):
    header, make = ABOVE["dates"]
    for count, number in ((9, 10), (10, 10)):
        assert len(rows_of(write(tmp_path / "p.tsv", [header, *drawn(make, count)]))[0]) == number


# columns of which two hold the pairs
WIDER = {
    "a number first": (lambda chance, row: (str(row + 7), word(chance), word(chance)), (1, 2)),
    "numbers between": (lambda chance, row: (str(9 * row), word(chance), str(7 * row), word(chance)), (1, 3)),
    "the same in all rows": (lambda chance, row: ("corpus", word(chance), word(chance)), (1, 2)),
    "something last": (lambda chance, row: (word(chance), word(chance), "CC-BY"), (0, 1)),
    "numbers that come again": (lambda chance, row: (str(row % 3), sentence(chance), word(chance)), (0, 1)),
    "numbers everywhere": (lambda chance, row: (str(row), str(2 * row), str(3 * row)), (0, 1)),
}


@pytest.mark.parametrize("name", WIDER)
def test_columns_that_number_the_rows_are_passed_over(name, tmp_path):
    make, (source, target) = WIDER[name]
    wide = drawn(make)
    rows, told = rows_of(write(tmp_path / "p.tsv", wide))
    assert rows == [(row[source], row[target]) for row in wide]
    assert f"{len(wide[0])} columns, counted from 0 (source: {source}, target: {target}); --column" in told[0]
    said = {"source": 0, "target": 1}
    assert rows_of(tmp_path / "p.tsv", columns=said)[0] == [row[:2] for row in wide]
    objects = [dict(zip("wxyz", row, strict=False)) for row in wide]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in objects))
    if name in ("something last", "a number first", "the same in all rows", "numbers between"):
        assert rows_of(tmp_path / "p.jsonl")[0] == rows
    else:
        with pytest.raises(DataError, match=r"p\.jsonl:1: no keys 'source' and 'target'; the row has 'w', 'x', 'y'"):
            rows_of(tmp_path / "p.jsonl")


def test_keys_that_number_the_rows_are_known_by_name(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"db_id": "shop", "ask": "a", "say": "b"}\n')
    rows, told = rows_of(tmp_path / "p.jsonl")
    assert rows == [("a", "b")]
    assert "columns by name (source: 'ask', target: 'say') of 'db_id', 'ask', 'say'; --column" in told[0]
    (tmp_path / "p.jsonl").write_text('{"translation": {"de": "a", "en": "b"}}\n')
    with pytest.raises(DataError, match=r"the row has 'translation': if rows are inside it: jq -c '\.translation' FILE > NEW"):
        rows_of(tmp_path / "p.jsonl")


def test_labels_in_json_may_be_numbers_and_truth_values(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"text": "a", "label": 3}\n{"text": "b", "label": true}\n')
    assert rows_of(tmp_path / "p.jsonl")[0] == [("a", "3"), ("b", "true")]


@pytest.mark.parametrize(("separator", "told"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_what_separates_the_columns_of_a_csv_is_found(separator, told, tmp_path):
    rows = drawn(lambda chance, row: (f"{word(chance)}, and {row % 2 * 'more, '}", word(chance)))
    path = write(tmp_path / "p.csv", rows, separator)
    assert rows_of(path) == (rows, [f"{path}: its columns are separated by {told}"])
    unnamed = write(tmp_path / "p.txt", rows, separator)
    assert rows_of(unnamed)[0] == rows
    assert format_of(unnamed) == (".tsv" if separator == "\t" else ".csv")


def test_a_comma_comes_before_other_separators(tmp_path):
    rows = drawn(lambda chance, row: (f"{word(chance)};{word(chance)}", word(chance)))
    assert rows_of(write(tmp_path / "p.csv", rows, ",")) == (rows, [])


def test_every_packing_has_a_packer():
    assert PACKERS.keys() == PACKED.keys()


@pytest.mark.parametrize("end", PACKERS)
def test_packed_files_are_read_where_their_name_says_so(end, tmp_path):
    rows = drawn(lambda chance, row: (word(chance), word(chance)))
    packed = PACKERS[end](write(tmp_path / "p.tsv", rows).read_bytes())
    for name in ("p.tsv", "p.txt"):
        (tmp_path / f"{name}{end}").write_bytes(packed)
        assert rows_of(tmp_path / f"{name}{end}")[0] == rows
    (tmp_path / "p.tsv").write_bytes(packed)
    with pytest.raises(DataError, match=rf"p\.tsv: packed with {PACKED[end].program}: give it a name that ends in {end}"):
        rows_of(tmp_path / "p.tsv")
    (tmp_path / f"cut.tsv{end}").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match=rf"cut\.tsv{end}: a broken {end} file: "):
        rows_of(tmp_path / f"cut.tsv{end}")
    (tmp_path / f"bad.tsv{end}").write_bytes(packed[:6] + b"\xff" * 40 + packed[40:])
    with pytest.raises(DataError, match=rf"bad\.tsv{end}: .*a broken {end} file: "):
        rows_of(tmp_path / f"bad.tsv{end}")


STRANGERS = [
    ('[["a", "b"]]', "a JSON array"),
    ('{\n "a": "b"\n}', "one JSON object over several lines"),
    ("<?xml version='1.0'?>\n<a>b, c</a>", "XML or HTML"),
]


@pytest.mark.parametrize(("content", "told"), STRANGERS)
def test_what_is_no_table_but_looks_like_one(content, told, tmp_path):
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(DataError, match=f"p.json: {told}"):
        rows_of(tmp_path / "p.json")


def test_columns_that_are_named_are_left_alone(tmp_path):
    path = write(tmp_path / "p.tsv", drawn(WIDER["a number first"][0]))
    assert found_columns(Pairs(pairs=path, source_column=2, target_column=1), ".tsv").columns == {"source": 2, "target": 1}
    assert found_columns(Pairs(pairs=path, columns={"source": 0, "label": 1}), ".tsv").columns == {"source": 0, "label": 1}


@pytest.mark.parametrize(("name", "columns"), [("class index", ("class index", "ask")), ("row index", ("ask", "say"))])
def test_the_number_of_a_class_is_no_number_of_a_row(name, columns, tmp_path):
    rows = drawn(lambda chance, row: (str(row % 4), sentence(chance), sentence(chance)))
    told = rows_of(write(tmp_path / "p.tsv", [(name, "ask", "say"), *rows]))[1]
    assert f"(source: {columns[0]!r}, target: {columns[1]!r})" in told[0]


def test_an_instruction_is_asked_before_its_input(tmp_path):
    row = {"instruction": "add", "input": "1 2", "output": "3"}
    (tmp_path / "p.jsonl").write_text(json.dumps(row) + "\n")
    assert rows_of(tmp_path / "p.jsonl")[0] == [("add", "3")]


def test_turns_of_a_talk_are_told_how_to_be_taken_out(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    with pytest.raises(DataError, match=r"if turns of a talk are in it: jq -c '\{source: \.messages\[0\]\.content, target: "):
        rows_of(tmp_path / "p.jsonl")


@pytest.mark.parametrize("full", [0.4, 0.6])
def test_a_column_that_is_empty_in_most_rows_is_not_taken(full, tmp_path):
    rows = [("sentence", "word", "tag")]
    rows += drawn(lambda chance, row: (f"no {row}" if row < 20 * full else "", word(chance), chance.choice("NV")))
    path = write(tmp_path / "p.tsv", rows)
    if full > 0.5:
        assert "its first row is a header (source: 'sentence', target: 'word')" in rows_of(path)[1][0]
        return
    with pytest.raises(
        DataError, match=r"p\.tsv: column 'sentence' is empty in most rows, .* a blank line after each sentence"
    ):
        rows_of(path)
    assert len(rows_of(path, columns={"source": "word", "target": "tag"})[0]) == 20


@pytest.mark.parametrize(("form", "target", "told"), [
    ("{word} {tag}", 1, None), ("{word} {tag} B", 1, "3 columns, counted from 0 (source: 0, target: 1)"),
    ("{word} _ {tag}", 2, "3 columns, counted from 0 (source: 0, target: 2)"),
])  # fmt: skip
def test_columns_of_conll_are_told_where_there_are_more_than_two(form, target, told, tmp_path):
    rows = drawn(lambda chance, row: form.format(word=word(chance), tag=chance.choice("NV")) + "\n" * (row % 4 == 3))
    (tmp_path / "p.conll").write_text("".join(f"{row}\n" for row in rows))
    found, notes = rows_of(tmp_path / "p.conll")
    assert found[0] == tuple(" ".join(row.split()[place] for row in rows[:4]) for place in (0, target))
    assert [told in note and "NUMBER say which to take" in note for note in notes] == ([] if told is None else [True])
