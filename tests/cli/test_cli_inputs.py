"""Files as people have them: each gives a choice that works, or one clear sentence and exit code 2."""

import io
import json
import random
import re
import zipfile

import pytest
from calling import refused, regard

CHANCE = random.Random(1)
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]
WORDS = ["".join(CHANCE.choices(SYLLABLES, k=CHANCE.randint(2, 4))) for _ in range(90)]
ROWS = [(word, " ".join(word.upper())) for word in WORDS]
TSV = "".join(f"{source}\t{target}\n" for source, target in ROWS)
PROSE = "It was a dark and stormy night, and the rain fell.\nThe wind blew, hard, and nobody came.\nA door opened.\n" * 9


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("pairs.tsv", TSV)
    return file.getvalue()


WRONG = {
    "prose.txt": (PROSE.encode(), "not a table"),
    "prose.tsv": (PROSE.encode(), "no row can be used; bad rows: 27; the first: .*:1: a column is missing"),
    "one.tsv": ("".join(f"{word}\n" for word in WORDS).encode(), "a column is missing: 1 instead of 2"),
    "binary.tsv": (bytes(range(128, 256)) * 9, "no row can be used; bad rows: 1; the first: .*:1: not UTF-8"),
    "binary.dat": (bytes(range(128, 256)) * 9, "not a table"),
    "paper.pdf": (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "a PDF file"),
    "renamed.tsv": (zipped(), "a zip file"),
    "pairs.zip": (zipped(), "a zip file"),
    "latin1.tsv": (f"\xe4{TSV}".replace("\n", "\n\xe4").encode("latin-1"), "not UTF-8: byte 0xe4 .* iconv -f LATIN1 -t UTF-8"),
    "utf16.tsv": (TSV.encode("utf-16"), "text in UTF-16: iconv"),
    "empty.tsv": (b"", "no rows"),
    "empty.txt": (b"", "no rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_table_is_refused_in_one_sentence(name, tmp_path):
    content, told = WRONG[name]
    (tmp_path / name).write_bytes(content)
    for words in (["data", tmp_path / name], ["train", "--pairs", tmp_path / name, "--run", tmp_path / "run"]):
        message = refused(*words)
        assert message.startswith(f"{tmp_path / name}:")
        assert "\n" not in message
        assert re.search(told, message)
    assert not (tmp_path / "run").exists()


def test_directories_and_missing_files_are_named(tmp_path):
    assert refused("data", tmp_path).startswith(f"{tmp_path}: a directory, in which no image (.png, .jpg ...) stands: ")
    assert refused("data", tmp_path / "no.tsv") == f"{tmp_path / 'no.tsv'}: cannot be read: No such file or directory"
    (tmp_path / "s").write_text("a\n")
    assert "No such file" in refused("data", tmp_path / "s", tmp_path / "t")


ODD = {
    "three.tsv": ("".join(TSV.splitlines(keepends=True)[:3]), "note: 3 rows are hardly enough"),
    "crlf.tsv": (TSV.replace("\n", "\r\n"), "90 rows"),
    "header.tsv": (f"source\ttarget\n{TSV}", "its first row is a header"),
    "unknown_header.csv": ("word,phones\n" + TSV.replace("\t", ","), "first row: 'word' -> 'phones'"),
    "numbers.tsv": ("".join(f"{word}\t{at}.5\n" for at, word in enumerate(WORDS)), "note: the targets are numbers"),
    "swapped.tsv": (
        "".join(f"{'ab'[at % 2]}\ttext {at} {word}\n" for at, word in enumerate(WORDS)),
        "the first column is one of 2 values.*a label for each text",
    ),
    "good.txt": (TSV, "read as TSV, for its first line has a tab"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_said_and_something_is_chosen(name, tmp_path):
    text, told = ODD[name]
    (tmp_path / name).write_bytes(text.encode())
    code, out, err = regard("data", tmp_path / name)
    assert (code, "\r" in out) == (0, False)
    assert "training.updates=" in out
    assert re.search(told, out + err)


def test_files_of_different_lengths(tmp_path):
    for name, lines in (("s", WORDS), ("t", WORDS[:50])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    told = f"{tmp_path / 's'}:51: no line to go with it: {tmp_path / 't'} has only 50 lines"
    assert f"note: 40 bad rows; the first: {told}" in regard("data", tmp_path / "s", tmp_path / "t").out
    words = ["train", "--source", tmp_path / "s", "--target", tmp_path / "t", "--run", tmp_path / "run", "--quiet"]
    assert told in refused(*words)


def test_a_table_where_a_recipe_is_expected(tmp_path):
    (tmp_path / "p.tsv").write_text(TSV)
    assert f"give it as --pairs {tmp_path / 'p.tsv'}" in refused("train", tmp_path / "p.tsv")


def test_data_says_what_would_be_chosen_for_other_columns(tmp_path):
    rows = [{"ask": f"what is {row} ?", "say": f"it is {row}", "kind": "ab"[row % 2]} for row in range(80)]
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told = "no keys 'source' and 'target'; the row has 'ask', 'say', 'kind': --column source=NAME --column target=NAME"
    assert told in refused("data", tmp_path / "p.jsonl")
    out = regard("data", tmp_path / "p.jsonl", "--column", "source=say", "--column", "target=ask").out
    assert "first row: 'it is 0' -> 'what is 0 ?'" in out
    assert (
        "you named a column 'label'"
        in regard("data", tmp_path / "p.jsonl", "--column", "source=say", "--column", "label=kind").out
    )
