"""Tables whose names say nothing: their format and their columns are found, and what was found is said."""

import gzip
import json

import numpy as np
import pytest

from regard.data.columns import HEADS
from regard.data.fields import configure_fields, fit_fields
from regard.data.formats import SIGNS
from regard.data.jsonl import json_line
from regard.data.matching import check_values
from regard.data.readers import READERS, BadRows, Fault, format_of, notes, read_rows
from regard.data.store import Store, texts_of
from regard.data.tokenizers import UNKNOWN
from regard.errors import DataError
from regard.recipe import Data, Pairs

ROWS = [("der Hund", "the dog, a pet"), ("die  Katze ", "the cat"), ("zwei", "two")]


def parquet(columns):
    pyarrow = pytest.importorskip("pyarrow")
    import io

    from pyarrow.parquet import write_table

    file = io.BytesIO()
    write_table(pyarrow.table(columns), file)
    return file.getvalue()


CONTENT = {
    ".tsv": lambda: "".join(f"{source}\t{target}\n" for source, target in ROWS).encode(),
    ".csv": lambda: "".join(f'{source},"{target}"\n' for source, target in ROWS).encode(),
    ".moses": lambda: "".join(f"{source} ||| {target}\n" for source, target in ROWS).encode(),
    ".jsonl": lambda: "".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in ROWS).encode(),
    ".parquet": lambda: parquet({"source": [row[0] for row in ROWS], "target": [row[1] for row in ROWS]}),
}
# one token per line: both columns of a row have as many
TOKENS = [("der Hund", "DET NOUN"), ("sie läuft weg", "PRON VERB ADV"), ("zwei", "NUM")]
SENTENCES = {
    ".conll": lambda: "\n".join(
        "".join(f"{word} {tag}\n" for word, tag in zip(words.split(), tags.split(), strict=True)) for words, tags in TOKENS
    ).encode(),
    ".conllu": lambda: "\n".join(
        "".join(
            f"{at}\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\t_\n"
            for at, (word, tag) in enumerate(zip(words.split(), tags.split(), strict=True), start=1)
        )
        for words, tags in TOKENS
    ).encode(),
}


def rows_of(files):
    blocks = list(read_rows(files))
    rows = [row for block in blocks for row in zip(*block.columns.values(), strict=True)]
    return rows, [fault for block in blocks for fault in block.faults]


def table(folder, name, content, **columns):
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Pairs(pairs=path, **columns)


def test_every_format_has_a_sign_and_an_example():
    assert CONTENT.keys() | SENTENCES.keys() == READERS.keys() == SIGNS.keys()
    assert HEADS.keys() < READERS.keys()


@pytest.mark.parametrize("form", CONTENT)
@pytest.mark.parametrize("name", ["p.txt", "p.dat", "p", "p.txt.gz", "known", "KNOWN"])
def test_a_table_is_read_by_its_name_or_else_by_its_content(tmp_path, form, name):
    known = name.lower() == "known"
    if form == ".parquet" and name.endswith(".gz"):
        return
    files = table(tmp_path, f"p{form.upper() if name == 'KNOWN' else form}" if known else name, CONTENT[form]())
    assert rows_of(files) == (ROWS, [])
    told = notes(files)
    assert told == [] if known else len(told) == 1 and f"{files.pairs}: read as {SIGNS[form].name}, for " in told[0]


@pytest.mark.parametrize("form", SENTENCES)
@pytest.mark.parametrize("name", ["p.txt", "p", "p.txt.gz", "known"])
def test_sentences_of_one_token_per_line_are_known_by_their_content(tmp_path, form, name):
    files = table(tmp_path, f"p{form}" if name == "known" else name, SENTENCES[form]())
    assert rows_of(files) == (TOKENS, [])
    told = [one for one in notes(files) if "read as" in one]
    assert told == [] if name == "known" else f"{files.pairs}: read as {SIGNS[form].name}, for " in told[0]


def test_the_name_comes_before_the_content(tmp_path):
    assert rows_of(table(tmp_path, "p.tsv", b"a, b ||| c\td\n"))[0] == [("a, b ||| c", "d")]
    assert rows_of(table(tmp_path, "p.csv", b"a ||| b,d\n"))[0] == [("a ||| b", "d")]


def test_bars_separate_columns(tmp_path):
    files = table(tmp_path, "p.moses", b"a  b |||  c\nd ||| e ||| f\ng|||h\n ||| i\nj ||| k\r\n")
    rows, faults = rows_of(files)
    assert rows == [("a  b", " c"), ("j", "k")]
    assert faults == [
        Fault(files.pairs, 2, "a column too many: 3 instead of 2 (columns are separated by |||)"),
        Fault(files.pairs, 3, "a column is missing: 1 instead of 2 (columns are separated by |||)"),
        Fault(files.pairs, 4, "the source is empty"),
    ]


HEADERS = [  # file, content, rows, what is said
    ("p.tsv", b"Source\ttarget\na\tb\n", [("a", "b")], "its first row is a header (source: 'Source', target: 'target')"),
    ("p.txt", b"id\ttgt\tsrc\n1\tb\ta\n", [("a", "b")], "its first row is a header (source: 'src', target: 'tgt')"),
    ("p.csv", b'id,"source",target\n1,a,b\n', [("a", "b")], "its first row is a header (source: 'source', target: 'target')"),
    ("p.csv", b"de,en\na,b\n", [("a", "b")], "its first row is a header (source: 'de', target: 'en')"),
    ("p.csv", b"de,de\na,b\n", [("de", "de"), ("a", "b")], None),
    ("p.csv", b"the source,the target\na,b\n", [("the source", "the target"), ("a", "b")], None),
    ("p.jsonl", b'{"target": "b", "id": 1, "source": "a"}\n', [("a", "b")], None),
    (
        "p.jsonl",
        b'{"la": "a", "en": "b"}\n{"en": "d", "la": "c"}\n',
        [("a", "b"), ("c", "d")],
        "columns by name (source: 'la', target: 'en'); --column",
    ),
    (
        "p.jsonl",
        b'{"id": 1, "input": "a", "output": "b"}\n',
        [("a", "b")],
        "columns by name (source: 'input', target: 'output')",
    ),
]


@pytest.mark.parametrize(("name", "content", "rows", "told"), HEADERS)
def test_headers_are_recognised_and_said(tmp_path, name, content, rows, told):
    files = table(tmp_path, name, content)
    assert rows_of(files) == (rows, [])
    found = [note for note in notes(files) if "read as" not in note]
    assert len(found) == (told is not None)
    assert all(f"{files.pairs}: {told}" in note for note in found)


def test_columns_of_parquet_are_found_by_name(tmp_path):
    columns = {"id": [1], "target": ["b"], "source": ["a"]}
    assert rows_of(table(tmp_path, "p.parquet", parquet(columns)))[0] == [("a", "b")]
    files = table(tmp_path, "p.parquet", parquet({"la": ["a"], "en": ["b"]}))
    assert rows_of(files)[0] == [("a", "b")]
    assert (
        "p.parquet: columns by name (source: 'la', target: 'en'); --column source=NAME --column target=NAME say"
        in notes(files)[0]
    )
    files = table(tmp_path, "p.parquet", parquet({"la": ["a"], "en": ["b"], "x": ["c"]}))
    assert rows_of(files)[0] == [("a", "b")]
    assert "(source: 'la', target: 'en') of 'la', 'en', 'x'" in notes(files)[0]
    assert rows_of(table(tmp_path, "p.parquet", parquet({"id": [1], "la": ["a"], "en": ["b"]})))[0] == [("a", "b")]
    told = r"'n' holds int64, not text \(the source\); the file has 'n', 'en': --column source"
    with pytest.raises(DataError, match=told):
        rows_of(table(tmp_path, "p.parquet", parquet({"n": [1], "en": ["b"]})))


def test_other_columns_by_number_may_have_a_header_too(tmp_path):
    files = table(tmp_path, "p.csv", b"Text,label\na,b\n", columns={"source": 0, "label": 1})
    assert rows_of(files)[0] == [("a", "b")]
    assert "source: 'Text', label: 'label'" in notes(files)[0]
    assert rows_of(table(tmp_path, "p.csv", b"Text,label\na,b\n", columns={"source": "Text", "label": 1}))[0] == [("a", "b")]


NO_TABLES = [
    ("p.txt", b"", "p.txt: no rows"),
    (
        "p.txt",
        b"only one text\n",
        "not a table: its first line is not JSON and has no tab and no |||, and commas do not cut its lines into columns "
        "(nor do semicolons or bars); separate source and target by a tab",
    ),
    ("prose.txt", b"It rained, and the wind blew.\nNobody came, nobody, ever.\nSo it goes.\n", "prose.txt: not a table"),
    ("p.tsv", b"%PDF-1.4\nx\ty\n", "p.tsv: a PDF file: copy its text into a table"),
    ("p.tsv", "a\tb\n".encode("utf-16"), "p.tsv: text in UTF-16: iconv -f UTF-16 -t UTF-8"),
    ("p.zip", b"PK\x03\x04 and\tso on", "p.zip: a zip file, as spreadsheets are too"),
    ("p.csv", b"PK\x03\x04 and,so on", "p.csv: a zip file, as spreadsheets are too"),
    ("p.json", b'[{"source": "a"}]', "p.json: a JSON array, where one object per line is needed: jq"),
    ("p.dat", gzip.compress(b"a\tb\n", mtime=0), "p.dat: packed with gzip: give it a name that ends in .gz"),
    ("p.xlsx", b"PK\x03\x04 and so on", "p.xlsx: a zip file, as spreadsheets are too: unpack it, or save it as CSV"),
    (
        "p.jsonl",
        b'{"id": 1, "x": "a", "y": "b", "z": "c"}\n',
        "p.jsonl:1: no keys 'source' and 'target'; the row has 'id', 'x', 'y', 'z': --column",
    ),
]


@pytest.mark.parametrize(("name", "content", "told"), NO_TABLES)
def test_what_is_no_table_is_told_with_what_to_do(tmp_path, name, content, told):
    with pytest.raises(DataError) as error:
        rows_of(table(tmp_path, name, content))
    assert told in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"p\.docx\.gz: cannot be read: No such file"):
        rows_of(Pairs(pairs=tmp_path / "p.docx.gz"))


def test_a_line_of_json_is_one_to_every_reader():
    every = "".join(chr(number) for number in range(0x3000))
    line = json_line({"text": every})
    assert line.splitlines() == [line[:-1]]
    assert json.loads(line) == {"text": every}
    assert json.loads(json_line({"text": "a\ud800"})) == {"text": "a?"}


LINES = [("def f(x):\n    return  x\n", "a\n\n b"), ("\tx\ny", "\ny\r\nz\u2028"), ("one", "line")]
SEVERAL = {
    ".jsonl": lambda: "".join(json.dumps(dict(zip(("source", "target"), row, strict=True))) + "\n" for row in LINES).encode(),
    ".csv": lambda: "".join(",".join(f'"{text}"' for text in row).replace("\r", "") + "\n" for row in LINES).encode(),
    ".parquet": lambda: parquet({"source": [row[0] for row in LINES], "target": [row[1] for row in LINES]}),
}


@pytest.mark.parametrize("form", SEVERAL)
@pytest.mark.parametrize("kind", ["character", "word", "unigram"])
def test_texts_of_several_lines_reach_the_model_as_they_are(tmp_path, form, kind):
    files = table(tmp_path, f"p{form}", SEVERAL[form]())
    wanted = [(source, target.replace("\r", "") if form == ".csv" else target) for source, target in LINES]
    data = Data(train=files, tokenizer={"kind": kind, "size": 60})
    fields = fit_fields(data, configure_fields(data, {"source": "text", "target": "text"}))
    store = Store.build(tmp_path / "store", files, fields, max_length=99, bad_rows=BadRows("stop"))
    found = [tuple(fields[name].tokenizer.decode(store[name][row]) for name in fields) for row in range(3)]
    assert found == wanted == texts_of(store, files, fields, [0, 1, 2])


@pytest.mark.parametrize("kind", ["word", "character"])
def test_tags_go_with_words_whatever_the_spaces(tmp_path, kind):
    texts = ["amo  te ", " \tveni vidi\u00a0 vici", "amo vici"]
    tags = ["V P", "V V V", "V V"] if kind == "word" else [" ".join("x" * len(text)) for text in texts]
    (tmp_path / "a").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "b").write_text("".join(f"{tag}\n" for tag in tags))
    files = Pairs(columns={"source": str(tmp_path / "a"), "tags": str(tmp_path / "b")})
    data = Data(train=files, tokenizer={"kind": kind})
    fields = fit_fields(data, configure_fields(data, {"source": "text", "tags": "tags"}))
    store = Store.build(tmp_path / "store", files, fields, max_length=99, bad_rows=BadRows("stop"))
    sizes = [len(tag.split()) for tag in tags]
    assert np.diff(store["source"].offsets).tolist() == np.diff(store["tags"].offsets).tolist() == sizes
    more = {"source": ["  vici   nova\t"], "tags": ["V V" if kind == "word" else " ".join("x" * 14)]}
    assert check_values(fields, more)[1] == {"source": {}, "tags": {}}
    assert all(UNKNOWN not in row for row in fields["source"].tokenizer.encode(texts))  # letters keep all white space
    if kind == "word":
        wrong = check_values(fields, {"source": ["a  b"], "tags": ["V V V"]})[1]["tags"][0]
        assert wrong.startswith(
            "3 tags for 2 tokens of the source (a tokenizer that cuts at spaces has one token for each word"
        )


@pytest.mark.parametrize(("blank", "word", "tag", "form"), [
    (4, "w{}", "N", ".conll"), (400, "w{}", "N", ".tsv"), (4, "w {}", "N", ".tsv"), (4, "w{}", "t{}", ".tsv"),
])  # fmt: skip
def test_sentences_with_a_tag_for_each_word_may_be_called_tsv(blank, word, tag, form, tmp_path):
    """A blank line after every fourth word; without blank lines, with spaces, or with another value in each row: pairs."""
    path = tmp_path / "train.tsv"
    path.write_text(
        "".join(f"{word.format(row)}\t{tag.format(row)}\n" + "\n" * (row % blank == blank - 1) for row in range(40))
    )
    assert format_of(path) == form


@pytest.mark.parametrize(("content", "told"), [
    (bytes(range(32)) * 40 + b"\tx\n", "not text: "), ("a\tb\n".encode("utf-16-le") * 50, "iconv -f UTF-16LE"),
    (b"a\0b\tc\n" * 14, None), (b"\1bold\tb\n" * 40, "not text: 40 of "), (b"\1bold and brave letters\tb\n" * 40, None),
    (b"\x1b[1mbold\tb\n" * 40, None),
])  # fmt: skip
def test_bytes_that_are_no_text_are_refused_whole(content, told, tmp_path):
    path = tmp_path / "p.tsv"
    path.write_bytes(content)
    files = Pairs(pairs=path)
    if told is None:
        assert list(read_rows(files))
    else:
        with pytest.raises(DataError, match=rf"p\.tsv: .*{told}"):
            list(read_rows(files))
