"""`regard score`: how probable pairs are, as Python says it, in order, in constant memory; bad lines are named."""

import json

import pytest
from calling import refused, regard

from regard.decoding.load import load

PAIRS = [
    ("amicus bellum", "AMICUS BELLUM"), ("canis", "DOMUS"), ("", ""), ("liber", ""), ("", "CANIS"), ("equus", "⁇ odd"),
    ("canis", "DOMUS"),
]  # fmt: skip
ROWS = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()


@pytest.fixture(scope="module")
def expected(trained):
    return load(trained).score(PAIRS, token_scores=True)


def numbers(result):
    assert (result.code, result.err) == (0, "")
    return [float(line) for line in result.lines]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_scores_are_those_of_python(trained, expected, processes):
    given = ["score", trained, "--processes", processes]
    assert numbers(regard(*given, stdin=ROWS)) == pytest.approx([one.log_prob for one in expected], abs=2e-6)
    means = [one.log_prob / one.tokens for one in expected]
    assert numbers(regard(*given, "--per-token", stdin=ROWS)) == pytest.approx(means, abs=2e-6)
    lines = [line.split("\t") for line in regard(*given, "--token-scores", stdin=ROWS).lines]
    for (total, each), one in zip(lines, expected, strict=True):
        assert [float(score) for score in each.split()] == pytest.approx(one.token_scores, abs=2e-6)
        assert float(total) == pytest.approx(sum(one.token_scores), abs=1e-5)
        assert len(one.token_scores) == one.tokens


def test_what_a_search_finds_is_scored_as_it_says(trained):
    (found,) = map(json.loads, regard("generate", trained, "--jsonl", "--details", stdin=b'"amicus bellum"\n').lines)
    (again,) = numbers(regard("score", trained, stdin=f"amicus bellum\t{found['output']}\n".encode()))
    assert again == pytest.approx(found["log_prob"], abs=1e-5)


def test_two_files(trained, expected, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.cli.score.BLOCK", 3)
    for place, name in enumerate(("source", "target")):
        (tmp_path / name).write_text("".join(f"{pair[place]}\n" for pair in PAIRS))
    files = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    assert numbers(regard("score", trained, *files)) == pytest.approx([one.log_prob for one in expected], abs=2e-6)
    with (tmp_path / "target").open("a") as file:
        file.write("more\n")
    told = f"{tmp_path / 'target'}:8: no line to go with it: {tmp_path / 'source'} has only 7 lines"
    code, out, err = regard("score", trained, *files)
    assert (code, err) == (2, f"error: {told}\n")
    assert len(out.split("\n")) == 7  # of two windows that were whole
    assert refused("score", trained, *files[:2]).startswith("--source and --target are two files")
    assert refused("score", trained, *files, "--jsonl").startswith("--jsonl reads objects")


def test_bad_lines_are_named_and_the_others_scored(trained, expected, monkeypatch):
    monkeypatch.setattr("regard.cli.asking.BLOCK", 2)
    stdin = b"no tab\n" + ROWS.split(b"\n")[0] + b"\na\tb\tc\ncanis\xff\tDOMUS"
    code, out, err = regard("score", trained, stdin=stdin)
    assert code == 2
    first, second, third, fourth = out.splitlines()
    assert first == third == "nan"
    assert float(second) == pytest.approx(expected[0].log_prob, abs=2e-6)
    assert float(fourth) < 0
    assert [line.split(": ")[1:] for line in err.splitlines()] == [
        ["<stdin>:1", "1 columns, and a pair has 2, with a tab between them; it has no score"],
        ["<stdin>:4", "not UTF-8", "byte 0xff at byte 6 of the line is read as U+FFFD"],
        ["<stdin>:3", "3 columns, and a pair has 2, with a tab between them; it has no score"],
    ]


def test_objects_keep_their_keys(trained, expected):
    rows = [{"id": 1, "source": "canis", "target": "DOMUS"}, {"source": "a"}]
    stdin = "".join(json.dumps(row) + "\n" for row in rows).encode()
    code, out, err = regard("score", trained, "--jsonl", "--token-scores", stdin=stdin)
    assert (code, err.count("no key 'target'")) == (2, 1)
    good, bad = map(json.loads, out.splitlines())
    assert (good["id"], good["length"], good["tokens"]) == (1, 2, ["▁DOMUS"])
    assert good["token_scores"] == pytest.approx(expected[1].token_scores, abs=2e-6)
    assert (bad["log_prob"], bad["error"]) == (None, "no key 'target'; the row has 'source'")
