"""`regard lab attention`: a table over one part of the attention family, from one command."""

import json

import pytest
from calling import refused, regard

from regard.lab.attention import PARTS

SMALL = [
    "data.corpus.size=40", "training.updates=2", "training.validate_every=2", "model.encoder.hidden_size=8",
    "model.decoder.hidden_size=16", "model.encoder.embedding_size=8", "model.decoder.embedding_size=8", "decoding.beam=1",
    "model.decoder.attention.size=16", "data.tokenizer.size=100",
]  # fmt: skip


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab") / "out"
    words = ["lab", "attention", "demo", *SMALL, "--names", "additive,cosine", "--out", folder]
    return words, folder, regard(*words)


def test_a_table_with_quality_speed_and_memory(scores):
    _, folder, (code, out, _) = scores
    assert code == 0
    assert {"results.json", "table.tex", "attention.png", "attention.svg"} <= {path.name for path in folder.iterdir()}
    title, _, *lines = (folder / "table.md").read_text().splitlines()
    assert title == "# demo with every score"
    header = [cell.strip() for cell in lines[0].split("|")[1:-1]]
    assert header[:3] == ["name", "test BLEU", "test AER"]
    assert header[-3:] == ["tokens/s", "MB", "seconds"]
    assert len(header) == 10
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["additive", "cosine"]
    assert "additive" in out
    assert "cosine" in out


def test_what_is_finished_is_kept(scores):
    words, folder, (_, out, _) = scores
    trials = (folder / "trials.jsonl").read_bytes()
    assert regard(*words)[:2] == (0, out)
    assert (folder / "trials.jsonl").read_bytes() == trials
    code, again, _ = regard(*words, "--json")
    assert code == 0
    rows = json.loads(again)
    assert [row["name"] for row in rows] == ["additive", "cosine"]
    assert all(row["tokens/s"] > 0 and row["parameters"] > 0 for row in rows)
    assert rows[0]["parameters"] != rows[1]["parameters"]  # each entry was really built


def test_progress_seeds_other_metrics_and_latex(scores):
    words, folder, (_, _, err) = scores
    assert "1 of 2: score additive, seed 1\n  test BLEU" in err
    several = [*words, "--seeds", "2", "--metric", "exact"]
    code, out, err = regard(*several, "--latex")
    assert (code, err.count("seed 2\n")) == (0, 2)
    assert out == (folder / "table.tex").read_text()
    lines = out.splitlines()
    assert lines[0] == "\\begin{tabular}{l" + "r" * (lines[2].count("&")) + "}"
    assert lines[2].startswith("name & test exact & ")
    assert [line.split(" ")[0] for line in lines[4:6]] == ["additive", "cosine"]
    assert "$\\pm$" in lines[4]
    rows = [row for row in json.loads(regard(*several, "--json").out) if row["name"] == "cosine"]
    assert [row["seed"] for row in rows] == [1, 2]
    mean = sum(row["tokens/s"] for row in rows) / 2
    assert f"& {mean:,.0f} $" in lines[5] or f"& {mean:.3f} $" in lines[5]
    assert "choose from" in refused(*words, "--metric", "bluu", "--quiet")


def test_another_recipe_in_the_same_place_is_refused(scores):
    words, *_ = scores
    assert "training.seed" in refused(*words, "training.seed=2")


def test_a_part_that_is_none(tmp_path):
    assert "did you mean 'score'" in refused("lab", "attention", "--vary", "scores", "--out", tmp_path)
    assert "did you mean 'dot'" in refused("lab", "attention", "--names", "dott", "--out", tmp_path)
    assert set(PARTS) == {"score", "scope", "selection"}
