"""CoNLL and CoNLL-U beside plainly written files, with faults planted; tokens, tags and labels out of JSONL and Parquet."""

import gzip

import pytest

from regard.data.conll import CONLLU, SPACE
from regard.data.readers import notes, read_rows
from regard.errors import DataError
from regard.recipe import Pairs

TREE = [
    "# sent_id = 1",
    "# text = I can't go.",
    "1\tI\tI\tPRON\tPRP\t_\t4\tnsubj\t_\t_",
    "2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\t_",
    "2\tca\tcan\tAUX\tMD\t_\t4\taux\t_\t_",
    "3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_",
    "4\tgo\tgo\tVERB\tVB\tMood=Ind\t0\troot\t_\t_",
    "4.1\tleft\tleave\tVERB\tVBN\t_\t_\t_\t4:conj\t_",
    "5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_",
    "",
    "",
    "# another",
    "1\t10 000\t10000\tNUM\tCD\t_\t0\troot\t_\t_",
]


def table(path, lines, **columns):
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return Pairs(pairs=path, columns=columns)


def read(files):
    """Rows with their lines, and what is wrong with the others."""
    rows, faults = [], []
    for block in read_rows(files):
        rows += list(zip(block.lines, *block.columns.values(), strict=True))
        faults += map(str, block.faults)
    return rows, faults


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.gz"])
def test_words_of_trees_are_read_and_ranges_and_empty_nodes_are_not(name, tmp_path):
    rows, faults = read(table(tmp_path / name, TREE, source="form", tags="upos"))
    assert rows == [(3, "I ca n't go .", "PRON AUX PART VERB PUNCT"), (13, f"10{SPACE}000", "NUM")]
    assert faults == []
    rows, _ = read(table(tmp_path / name, TREE, source="lemma", tags="feats", heads=6))
    assert rows[0] == (3, "I can not go .", "_ _ _ Mood=Ind _", "4 4 4 0 4")


def test_a_tree_without_columns_named_is_form_and_upos(tmp_path):
    table(tmp_path / "a.conllu", TREE, tags="upos")
    files = Pairs(pairs=tmp_path / "a.conllu")
    assert read(files)[0][0] == (3, "I ca n't go .", "PRON AUX PART VERB PUNCT")
    (note,) = notes(files)
    assert note.startswith(
        f"{tmp_path / 'a.conllu'}: columns by name (source: 'form', target: 'upos') of 'id', 'form', 'lemma'"
    )


@pytest.mark.parametrize(
    ("line", "text", "told"),
    [
        (4, "2\tca\tcan\tAUX", "4 columns instead of 10 (CoNLL-U separates columns by tabs)"),
        (6, "4\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_", "the token's id is '4' where 3 is expected"),
        (7, "4\tgo\tgo\t_\tVB\t_\t0\troot\t_\t_", "the upos of 'go' is not given (_)"),
        (7, "4\t \tgo\tVERB\tVB\t_\t0\troot\t_\t_", "nothing is written for the source, or white space that is no space"),
        (7, "4\tg\xa0o\tgo\tVERB\tVB\t_\t0\troot\t_\t_", "nothing is written for the source, or white space"),
    ],
)
def test_faults_in_trees_are_told_by_their_lines(line, text, told, tmp_path):
    lines = [*TREE]
    lines[line - 1] = text
    rows, faults = read(table(tmp_path / "a.conllu", lines, source="form", tags="upos"))
    assert [row[0] for row in rows] == [13]
    assert len(faults) == 1
    assert faults[0].startswith(f"{tmp_path / 'a.conllu'}:{line}: {told}")


def test_bytes_that_are_no_text_spoil_their_sentence_alone(tmp_path):
    files = table(tmp_path / "a.conllu", TREE, source="form", tags="upos")
    (tmp_path / "a.conllu").write_bytes((tmp_path / "a.conllu").read_bytes().replace(b"\tgo\t", b"\tg\xff\t", 1))
    rows, faults = read(files)
    assert [row[0] for row in rows] == [13]
    assert f"{tmp_path / 'a.conllu'}:7: not UTF-8: byte 0xff" in faults[0]


def test_names_that_trees_do_not_have(tmp_path):
    with pytest.raises(DataError, match="no column 'uppos' in CoNLL-U; did you mean 'upos'"):
        read(table(tmp_path / "a.conllu", TREE, source="form", tags="uppos"))


SHARED = ["-DOCSTART- -X- O O", "", "EU NNP I-NP B-ORG", "rejects VBZ I-VP O", "", "# . O O", "", ""]


def test_columns_of_conll_are_counted_from_either_side(tmp_path):
    """Separated by spaces or tabs; what stands between documents is left out, and # is a token."""
    expected = [(3, "EU rejects", "B-ORG O"), (6, "#", "O")]
    assert read(table(tmp_path / "a.conll", SHARED, source=0, tags=-1)) == (expected, [])
    tabs = [line.replace(" ", "\t") for line in SHARED]
    assert read(table(tmp_path / "a.conll", tabs, source=0, tags=3)) == (expected, [])


def test_comments_above_a_sentence_are_left_out(tmp_path):
    """As in CoNLL 2012, MultiCoNER and many others; a # in a sentence stays a word, whatever stands beside it."""
    lines = ["#begin document (a/b); part 000", "# id 17 domain=en", "#", "EU B-ORG", "# O", "", "# O", "9 O", "",
             "# a comment of seven words or so", "# O", "", "#end document"]  # fmt: skip
    rows, faults = read(table(tmp_path / "a.conll", lines, source=0, tags=-1))
    assert (rows, faults) == ([(4, "EU #", "B-ORG O"), (7, "# 9", "O O"), (11, "#", "O")], [])
    inside = ["EU B-ORG", "# what is this ?", "x O"]
    _, faults = read(table(tmp_path / "a.conll", inside, source=0, tags=-1))
    assert faults == [f"{tmp_path / 'a.conll'}:2: 5 columns instead of 2, as the sentence's first token has (line 1)"]


def test_faults_in_conll_are_told_by_their_lines(tmp_path):
    lines = [*SHARED[:3], "rejects VBZ I-VP", *SHARED[4:]]
    rows, faults = read(table(tmp_path / "a.conll", lines, source=0, tags=-1))
    assert [row[0] for row in rows] == [6]
    assert faults == [f"{tmp_path / 'a.conll'}:4: 3 columns instead of 4, as the sentence's first token has (line 3)"]
    _, faults = read(table(tmp_path / "a.conll", SHARED, source=0, tags=4))
    assert "a.conll:3: no column 4 for the tags: there are 4" in faults[0]
    with pytest.raises(DataError, match="column 'ner' of a CoNLL file; give its number"):
        read(table(tmp_path / "a.conll", SHARED, source=0, tags="ner"))


def test_many_sentences_come_in_blocks(tmp_path):
    many = [line for number in range(5000) for line in (f"w{number} T{number % 3}", "")]
    rows, _ = read(table(tmp_path / "a.conll", many, source=0, tags=1))
    assert rows == [(2 * number + 1, f"w{number}", f"T{number % 3}") for number in range(5000)]
    assert len(CONLLU) == 10


JSON = [
    '{"tokens": ["a", "b"], "tags": ["X", "Y"], "label": 3}',
    '{"tokens": ["a b"], "tags": ["X"], "label": 1}',
    '{"tokens": ["c"], "tags": [7], "label": "good"}',
    '{"tokens": ["c", null], "tags": ["X", "X"], "label": "good"}',
    '{"tokens": ["c"], "tags": ["X"], "label": 0.5}',
]


def test_tokens_tags_and_labels_out_of_jsonl(tmp_path):
    rows, faults = read(table(tmp_path / "a.jsonl", JSON, source="tokens", tags="tags", label="label"))
    assert rows == [(1, "a b", "X Y", "3"), (3, "c", "7", "good")]
    told = ["'a b' in an array of tokens is empty, has spaces in it", "None in an array of tokens", "'label' must be text"]
    for fault, line, what in zip(faults, (2, 4, 5), told, strict=True):
        assert f"a.jsonl:{line}: " in fault
        assert what in fault
    _, faults = read(table(tmp_path / "a.jsonl", ['{"source": 3, "tags": "X"}'], source="source", tags="tags"))
    assert "'source' must be text, not a number" in faults[0]


def test_tokens_tags_and_labels_out_of_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"tokens": [["a", "b"], ["a b"], ["c"], None], "tags": [["X", "Y"], ["X"], ["Z"], ["X"]], "label": [3, 1, 2, 0]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    files = Pairs(pairs=tmp_path / "a.parquet", columns={"source": "tokens", "tags": "tags", "label": "label"})
    rows, faults = read(files)
    assert rows == [(1, "a b", "X Y", "3"), (3, "c", "Z", "2")]
    assert "a.parquet:2: the source is a list with 'a b', which is no token" in faults[0]
    assert "a.parquet:4: the source is null" in faults[1]
    with pytest.raises(DataError, match="column 'label' holds int64, not text"):
        read(Pairs(pairs=tmp_path / "a.parquet", columns={"source": "label", "tags": "tags"}))
