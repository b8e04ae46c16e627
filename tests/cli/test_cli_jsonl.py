"""`regard generate --jsonl`: an object in, an object out; texts have line feeds and keep them."""

import json

import pytest
from calling import regard

KEYS = {"id": 7, "meta": {"a": [1, None]}}


def objects(result):
    return [json.loads(line) for line in result.lines]


def asked(run, lines, *words):
    return regard("generate", run, "--jsonl", *words, stdin="".join(f"{line}\n" for line in lines).encode())


def test_a_string_or_an_object_gets_an_output(trained):
    result = asked(trained, ['"amicus bellum"', json.dumps({**KEYS, "source": "liber"}), '{"source": "", "output": 1}'])
    assert (result.code, result.err) == (0, "")
    assert objects(result) == [
        {"source": "amicus bellum", "output": "AMICUS BELLUM"},
        {**KEYS, "source": "liber", "output": "LIBER"},
        {"source": "", "output": ""},
    ]
    assert regard("generate", trained, "--jsonl") == (0, "", "")


def test_scores_and_n_best_are_those_of_lines(trained):
    plain = regard("generate", trained, "--scores", stdin=b"amicus bellum\n").out.rstrip("\n").split("\t")
    (found,) = objects(asked(trained, ['"amicus bellum"'], "--scores"))
    assert [f"{found['score']:.6f}", found["output"]] == plain
    listed = regard("generate", trained, "--n-best", 3, stdin=b"amicus bellum\n").lines
    (found,) = objects(asked(trained, ['"amicus bellum"'], "--n-best", 3))
    assert [f"0 ||| {one['output']} ||| {one['score']:.6f}" for one in found["n_best"]] == listed
    assert found["output"] == found["n_best"][0]["output"]


BAD = {
    "no JSON": "not JSON: Expecting value at column 1",
    "": "not JSON: Expecting value at column 1",
    '{"id": 1}': "no key 'source'; the row has 'id'",
    "[1]": "a JSON object is needed, not an array",
    '{"source": 3}': "'source' must be text, not a number",
    '"\\ud800"': "'source' holds half of a surrogate pair, which is not text",
}


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_fails_alone(trained, line):
    result = asked(trained, ['"liber"', line, '"canis"'], "--scores")
    assert result.code == 2
    assert result.err == f"error: <stdin>:2: {BAD[line]}; its output is empty\n"
    first, bad, last = objects(result)
    assert (first["output"], last["output"]) == ("LIBER", "CANIS")
    assert (bad["output"], bad["score"], bad["error"]) == (None, None, BAD[line])


def test_lines_are_counted_over_blocks_and_links_are_in_step(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.cli.asking.BLOCK", 2)
    result = asked(trained, ['"liber"', '"canis"', "x", '"domus equus"'], "--alignments", tmp_path / "links")
    assert result.err.startswith("error: <stdin>:3: not JSON")
    assert (tmp_path / "links").read_text() == "0-0\n0-0\n\n0-0 1-1\n"


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A model that answers every text with the same three lines, from a table without a suffix."""
    folder = tmp_path_factory.mktemp("several")
    rows = [{"source": f"a\n{number % 4}\n", "target": "x\n\n  y"} for number in range(60)]
    (folder / "table").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = [f"model.{part}.{size}_size=16" for part in ("encoder", "decoder") for size in ("embedding", "hidden")]
    more = ["data.tokenizer.kind=character", "training.updates=80", "training.validate_every=80", "training.learning_rate=0.02"]
    more += ["training.warmup=5", "training.label_smoothing=0", "model.encoder.dropout=0", "model.decoder.dropout=0", *sizes]
    words = ["train", "bahdanau2015-small", "--pairs", folder / "table", "--run", folder / "run", *more]
    code, _, err = regard(*words)
    assert code == 0
    assert f"note: {folder / 'table'}: read as JSONL, for it begins with {{" in err
    return folder / "run"


def test_line_feeds_come_back(several, tmp_path):
    held_out = [json.loads(line) for line in (several / "valid.jsonl").read_text().splitlines()]
    assert held_out
    assert all(row["source"][:2] == "a\n" and row["target"] == "x\n\n  y" for row in held_out)
    assert objects(asked(several, [json.dumps("a\n3\n")])) == [{"source": "a\n3\n", "output": "x\n\n  y"}]
    assert regard("generate", several, stdin=b"a\n").lines == ["x    y"]  # a line in, a line out
    code, out, _ = regard("evaluate", several, "--json", "--output", tmp_path / "o.jsonl", "--worst", tmp_path / "w.jsonl")
    assert (code, json.loads(out)["held-out"]["exact"]) == (0, 100.0)
    assert (tmp_path / "o.jsonl").read_text() == '{"output": "x\\n\\n  y"}\n' * len(held_out)
    worst = [json.loads(line) for line in (tmp_path / "w.jsonl").read_text().splitlines()]
    assert all(row["output"] == row["reference"] == "x\n\n  y" and row["source"][:2] == "a\n" for row in worst)
    assert len((several / "worst.tsv").read_text().splitlines()) == 1 + len(held_out)
