"""`regard compare`: curves as journals have them, metrics as `evaluate` gives them, significance by the paired bootstrap."""

import json

import numpy as np
import pytest
from calling import refused, regard

from regard.decoding.load import load
from regard.evaluation.comparison import Compared, compare, compare_each, p_value
from regard.evaluation.evaluate import Question
from regard.insight.curves import Bars, Picture, Series, figure_of
from regard.lab.comparison import changed, contenders, costs, curves, differences, judgement, relative
from regard.lab.systems import SMOKE
from regard.recipe import Recipe, override, parse

ROWS = [("a b", "a b"), ("b a", "b a"), ("a", "a"), ("b b a", "b b a"), ("a a", "a a"), ("b", "b")]
SIZES = [4, 8, 16]
FIXED = [word for word in SMOKE if not word.startswith(("data.corpus", "training.validate", "training.save"))]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in ROWS))
    for size in SIZES:
        words = [*FIXED, "training.updates=6", "training.log_every=2", "training.validate_every=3", "training.save_every=3"]
        data = ["--pairs", pairs, "--valid-pairs", pairs]
        done = regard(
            "train", "demo", *words, f"model.decoder.hidden_size={size}", *data, "-r", folder / f"size{size}", "--quiet"
        )
        assert done.code == 0, done.err
    return folder, [folder / f"size{size}" for size in SIZES]


def test_a_table_of_three_runs(runs, tmp_path):
    folder, each = runs
    pairs = folder / "pairs.tsv"
    code, out, _ = regard("compare", *each, "--pairs", pairs, "--no-speed", "--json", "--out", tmp_path)
    assert code == 0
    rows = json.loads(out)["rows"]
    for run, row in zip(each, rows, strict=True):
        alone = json.loads(regard("evaluate", run, "--pairs", pairs, "--json").out)["test"]
        found = {name: one["ours"] for name, one in row["metrics"]["test"].items()}
        assert found == pytest.approx({name: alone[name] for name in found})
        assert row["metrics"]["test"]["loss"]["difference"] == pytest.approx(
            alone["loss"] - rows[0]["metrics"]["test"]["loss"]["ours"]
        )
        assert row["parameters"] == sum(one.numel() for one in load(run).model.parameters())
    assert rows[0]["parameters"] < rows[1]["parameters"] < rows[2]["parameters"]
    lines = (tmp_path / "table.md").read_text()
    assert "| test loss | " in lines
    assert "p = " in lines
    assert (tmp_path / "compare.png").read_bytes()[:4] == b"\x89PNG"
    assert regard("compare", *each[:2], "--pairs", pairs, "--no-speed", "--latex").out.startswith("\\begin{tabular}{lrr}")


def test_what_the_recipes_differ_in_is_said(runs):
    _, each = runs
    first, second, _ = contenders(each, "cpu")
    assert changed(first, first) == []
    assert changed(first, second) == ["the recipe of size8 beside that of size4: model.decoder.hidden_size=8 (4)"]
    values = ["training.updates=7", "training.patience=null", "data.train.pairs=other"]
    dumped = override(second.recipe.model_dump(mode="json"), values)
    (told,) = changed(first, second._replace(recipe=parse(Recipe, dumped)), most=2)
    assert "that of size4: model.decoder.hidden_size=8 (4), training.patience=null (10) and 1 more" in told


def test_curves_are_those_of_the_journals(runs):
    _, each = runs
    found = contenders(each, "cpu")
    panels = {panel.y: panel for panel in curves(found)}
    for one, line in zip(found, panels["loss of training"].series, strict=True):
        journal = [json.loads(text) for text in (one.path / "journal.jsonl").read_text().splitlines()]
        assert (list(line.x), list(line.y)) == ([2, 4, 6], [row["loss"] for row in journal if "loss" in row])
    assert [list(line.x) for line in panels["loss of validation"].series] == [[3, 6]] * 3


def test_each_beside_the_first_is_what_two_by_two_gives(runs):
    _, each = runs
    questions = [Question(load(run), ROWS) for run in each]
    together = compare_each(questions, ["loss", "exact"])
    assert together[2] == compare(questions[2], questions[0], ["loss", "exact"])
    assert together[1] == compare(questions[1], questions[0], ["loss", "exact"])
    assert all(one.p_value == 1 and one.interval == (0, 0) for one in together[0])


def test_bars_have_a_star_where_the_difference_is_significant_and_costs_are_ratios():
    results = {
        "test": {
            "a": [Compared("BLEU", 30.0, 30.0, (0.0, 0.0), 1.0)],
            "b": [Compared("BLEU", 20.0, 30.0, (-12.0, -8.0), 0.001)],
        }
    }
    assert judgement("a", results, 0) == Series("a", ["test"], [30.0], marks=[""])
    assert judgement("b", results, 0) == Series("b", ["test"], [20.0], marks=["*"])
    bars = relative(
        {"a": {"parameters": 100, "MB of a training step": 4.0}, "b": {"parameters": 150, "MB of a training step": 1.0}}, "a"
    )
    assert [(one.x, one.y) for one in bars.series] == [
        (["parameters", "memory"], [1, 1]),
        (["parameters", "memory"], [1.5, 0.25]),
    ]
    figure = figure_of(Picture("", [Bars("", "", "", [judgement("b", results, 0)])]))
    assert [text.get_text() for text in figure.axes[0].texts] == ["20*"]
    figure = figure_of(Picture("", [Bars("", "", "", [Series("", ["a", "b", "c", "d"], [0.3384, 18940.0, 999.7, 1.15e12])])]))
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.338", "18,900", "1,000", "1.15e+12"]


def test_no_difference_is_not_significant():
    assert p_value(np.zeros(100), 0.0) == 1


def test_what_cannot_or_can_hardly_be_compared_is_said(runs, tmp_path):
    _, each = runs
    assert "name two runs or more" in refused("compare", each[0])
    assert "no run and no model directory" in refused("compare", each[0], tmp_path)
    table = tmp_path / "labels.tsv"
    table.write_text("a b\tc\nb a\td\n" * 5)
    words = ["training.updates=2", "training.validate_every=2", "training.save_every=2", "model.encoder.hidden_size=4"]
    assert (
        regard(
            "train",
            "classifier",
            *words,
            "--pairs",
            table,
            "--column",
            "source=0",
            "--column",
            "label=1",
            "-r",
            tmp_path / "other",
            "--quiet",
        ).code
        == 0
    )
    assert "there are no rows for both" in refused("compare", each[0], tmp_path / "other")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{source} c\t{target} c\n" for source, target in ROWS))
    done = regard(
        "train",
        "demo",
        *FIXED,
        "training.validate_by=exact",
        "--pairs",
        pairs,
        "--valid-pairs",
        pairs,
        "-r",
        tmp_path / "exact",
        "--quiet",
    )
    assert done.code == 0
    told = differences(contenders([each[0], tmp_path / "exact"], "cpu"))
    assert told[0] == "exact chose its checkpoints by exact, size4 by bleu"
    assert "other rows than size4" in told[1]
    assert "another vocabulary than size4" in told[2]
    assert not differences(contenders(each, "cpu"))


def test_costs_are_measured_only_if_asked(runs):
    _, each = runs
    one, _ = contenders(each[:2], "cpu")
    assert "target tokens/s in training" not in costs(one, False)
    assert costs(one, True)["target tokens/s in training"] > 0
