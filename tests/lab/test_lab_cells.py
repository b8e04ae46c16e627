"""The comparison as a whole, small."""

import dataclasses
import json
import math

import pytest

from regard.errors import UserError
from regard.lab import cells, table, trial
from regard.lab.cells import Comparison, Result, compare
from regard.lab.search import Hyperparameters, choices
from regard.lab.settings import SETTINGS, Size
from regard.lab.texts import Texts

TEXTS = Texts("a few words", ["the king sees the queen", "the queen sees the king"] * 20, ["the king"], ["the queen sees"])
SIZE = Size(parameters=1_500, search=2, updates=3, batch=8, window=8)
TINY = dataclasses.replace(
    SETTINGS["smoke"], sizes=dict.fromkeys(("arith", "xml", "words"), SIZE), problems=200, characters=2_000, vocabulary=50
)
PLAN = Comparison(TINY, ["tanh", "gru"], ["arith", "xml", "words"], TEXTS)


def rows_of(directory):
    return [json.loads(line) for line in (directory / "trials.jsonl").read_text().splitlines()]


def without_clock(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lab") / "new" / "folder"
    return directory, compare(PLAN, directory, talk=False)


@pytest.fixture
def trained(monkeypatch):
    """The trials that are really run."""
    run, train = [], cells.train
    monkeypatch.setattr(cells, "train", lambda model, *rest: run.append(type(model.cell).__name__) or train(model, *rest))
    return run


def test_all_cells_are_tried_with_the_same_choices(done):
    directory, results = done
    assert [(result.task, result.cell) for result in results] == [(task, cell) for task in PLAN.tasks for cell in PLAN.cells]
    rows = rows_of(directory)
    assert len(rows) == PLAN.trials == 2 * 3 * (TINY.trials + TINY.seeds)
    for result in results:
        mine = [row for row in rows if (row["task"], row["cell"]) == (result.task, result.cell)]
        searched, tested = ([row for row in mine if row["kind"] == kind] for kind in ("search", "test"))
        assert [Hyperparameters(*(row[name] for name in Hyperparameters._fields)) for row in searched] == choices(TINY.trials)
        assert {row["seed"] for row in searched} == {1}
        assert result.choice == choices(TINY.trials)[min(range(TINY.trials), key=lambda place: searched[place]["valid"])]
        assert {tuple(row[name] for name in Hyperparameters._fields) for row in tested} == {result.choice}
        assert [row["seed"] for row in tested] == [1, 2]
        assert [row["test"] for row in tested] == result.figures
        assert [row["updates"] for row in mine] == [2, 2, 3, 3]


def test_the_same_again_and_elsewhere(done, trained, tmp_path):
    directory, results = done
    assert compare(PLAN, directory, talk=False) == results
    assert trained == []
    assert compare(PLAN, tmp_path, talk=False) == results
    assert without_clock(rows_of(tmp_path)) == without_clock(rows_of(directory))


def test_what_was_cut_off_is_run_again(done, trained, tmp_path):
    directory, results = done
    for name in ("setting.json", "text.json"):
        (tmp_path / name).write_bytes((directory / name).read_bytes())
    lines = (directory / "trials.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "trials.jsonl").write_bytes(b"".join(lines[:-3]) + lines[-3][:20])
    assert compare(PLAN, tmp_path, talk=False) == results
    assert len(trained) == 3
    assert without_clock(rows_of(tmp_path)) == without_clock(rows_of(directory))


def test_cells_tasks_and_seeds_may_be_added(trained, tmp_path):
    small = dataclasses.replace(PLAN, cells=["tanh"], tasks=["arith"], texts=None)
    (first,) = compare(small, tmp_path, talk=False)
    assert len(trained) == 4
    more = dataclasses.replace(small, cells=["gru", "tanh"], setting=dataclasses.replace(TINY, seeds=3))
    results = compare(more, tmp_path, talk=False)
    assert trained[4:] == ["GRUCell"] * 5 + ["TanhCell"]
    assert results[1].figures[:2] == first.figures
    assert len(results[1].figures) == 3


def test_another_setting_or_text_is_refused(done):
    directory, _ = done
    other = dataclasses.replace(TINY, sizes={**TINY.sizes, "xml": dataclasses.replace(SIZE, updates=9)})
    with pytest.raises(UserError, match=r"was begun with sizes.xml.updates=3, not 9; take another --out"):
        compare(dataclasses.replace(PLAN, setting=other), directory, talk=False)
    with pytest.raises(UserError, match="was begun with sha256="):
        compare(dataclasses.replace(PLAN, texts=dataclasses.replace(TEXTS, test=["other"])), directory, talk=False)


def test_choices_are_made_on_validation_and_figures_on_the_test(monkeypatch, tmp_path):
    asked = []
    for module in (trial, cells):
        monkeypatch.setattr(
            module, "measure", lambda _, windows, __, figure: asked.append((figure.name, len(windows.tokens))) or 1.0
        )
    compare(dataclasses.replace(PLAN, cells=["tanh"], tasks=["words"]), tmp_path, talk=False)
    valid, test = ("nats", 3), ("nats", 4)  # the king <eos>; the queen sees <eos>
    assert asked == [valid, valid, valid, test, valid, test]


def spoil_weights(monkeypatch):
    monkeypatch.setattr(cells, "choices", lambda trials: [Hyperparameters(0.01, math.inf, 1.0)] * trials)


def spoil_losses(monkeypatch):
    monkeypatch.setattr(trial, "measure", lambda *_: math.nan)


@pytest.mark.parametrize("spoil", [spoil_weights, spoil_losses])
def test_divergence_is_a_result(spoil, monkeypatch, tmp_path):
    spoil(monkeypatch)
    plan = dataclasses.replace(PLAN, cells=["tanh"], tasks=["arith"])
    (result,) = compare(plan, tmp_path, talk=False)
    assert result.figures == [None, None]
    assert table.figures(plan, [result])[1] == ["tanh", "diverged", "0.295"]
    assert [(row["valid"], row["test"]) for row in rows_of(tmp_path)] == [(None, None)] * 4


def result(task, cell, figures):
    return Result(task, cell, 8, 1234, Hyperparameters(0.01, 1.0, 2.0), figures)


def test_the_table_has_mean_deviation_and_the_lecture():
    plan = dataclasses.replace(PLAN, cells=["tanh", "other"], tasks=["arith", "words"])
    results = [
        result("arith", "tanh", [0.5, 0.7]), result("arith", "other", [0.25]),
        result("words", "tanh", [4.0, None, 5.0]), result("words", "other", [None]),
    ]  # fmt: skip
    assert table.figures(plan, results) == [
        ["cell", "arith", "lecture", "words", "lecture"],
        ["tanh", "0.600 ± 0.141", "0.295", "4.500 ± 0.707 (1 diverged)", "4.582"],
        ["other", "0.250", "", "diverged", ""],
    ]
    assert table.sizes(results)[1] == ["arith", "tanh", "8", "1,234", "0.01", "1", "2"]
    assert table.markdown([["|a|", "b"], ["1", "2"]])[0] == r"| \|a\| | b |"
    assert table.markdown([["a", "b"], ["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]


def test_rows_for_programs():
    row = table.row(result("words", "tanh", [4.0, 5.0]))
    assert row["mean"] == 4.5
    assert (row["lecture"], row["lecture_5m"], row["lecture_row"], row["figure"]) == (4.582, 4.811, "Tanh", "nats")
    assert row["choice"] == {"learning_rate": 0.01, "scale": 1.0, "clip": 2.0}
    assert table.row(result("arith", "other", [None]))["lecture"] is None
    assert table.row(result("arith", "tanh", [0.1]))["lecture_5m"] is None
    assert json.loads(json.dumps(row)) == row


def test_written_files(done, tmp_path):
    _, results = done
    table.write(PLAN, results, tmp_path)
    text = (tmp_path / "table.md").read_text()
    assert text.startswith("| cell | arith | lecture | xml | lecture | words | lecture |\n| --- |")
    assert "the text is a few words" in text
    assert all(f"| {one.task} | {one.cell} | {one.hidden_size} | {one.parameters:,} |" in text for one in results)
    assert json.loads((tmp_path / "results.json").read_text()) == [table.row(one) for one in results]
