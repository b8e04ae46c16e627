"""The frame of experiments: what is done is kept, what is told is written, what was begun otherwise is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from calling import refused, regard

from regard.errors import UserError
from regard.insight.curves import Bars, Lines, Map, Picture, Series, figure_of, save
from regard.lab.experiment import Asked, Experiment, Report, Setting, conduct, verdict
from regard.lab.experiments import EXPERIMENTS
from regard.lab.systems import System, count, recipe_of, sized

SETTING = Setting("a second", seeds=2, values={"lengths": [1, 2]})


def asked(directory, **changes):
    return Asked(SETTING, ["a", "b"], 2, directory, say=lambda _: None)._replace(**changes)


@pytest.fixture
def counted():
    """An experiment without any training, and the trials that were run."""
    run = []

    def trial(asked, name, seed, folder):
        run.append((name, seed))
        return {"score": seed / 4}

    def report(asked, rows):
        picture = Picture(
            "scores", [Bars("", "name", "score", [Series("", [row["name"] for row in rows], [row["score"] for row in rows])])]
        )
        return Report(
            "title",
            [["name", "score"], *([row["name"], f"{row['score']}"] for row in rows)],
            (),
            ["a note"],
            {"scores": picture},
        )

    return Experiment({"quick": SETTING}, lambda: ["a", "b"], trial, report), run


def test_what_is_done_is_not_done_again(counted, tmp_path):
    experiment, run = counted
    rows, _ = conduct(experiment, asked(tmp_path, seeds=1))
    assert run == [("a", 1), ("b", 1)]
    more, _ = conduct(experiment, asked(tmp_path))
    assert run == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert more[:2] == rows
    assert [row["score"] for row in more] == [0.25, 0.25, 0.5, 0.5]
    assert {path.name for path in tmp_path.iterdir()} >= {"table.md", "table.tex", "results.json", "scores.png", "scores.svg"}
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == more
    assert "| b | 0.5 |" in (tmp_path / "table.md").read_text()
    assert "b & 0.5 \\\\" in (tmp_path / "table.tex").read_text()
    assert "- a note" in (tmp_path / "table.md").read_text()
    assert any(
        note.startswith("2 seeds (1 to 2); a second") for note in json.loads((tmp_path / "results.json").read_text())["notes"]
    )


def test_other_conditions_are_refused(counted, tmp_path):
    experiment, run = counted
    conduct(experiment, asked(tmp_path, seeds=1))
    for changes in ({"changes": ["training.updates=3"]}, {"setting": Setting("", values={"lengths": [1, 3]})}):
        with pytest.raises(UserError, match="was begun with"):
            conduct(experiment, asked(tmp_path, **changes))
    assert len(run) == 2


def test_a_verdict_says_what_the_lecture_says():
    assert verdict("x", True).startswith("agrees with the lecture")
    assert verdict("x", False).startswith("DISAGREES with the lecture")
    assert verdict("x", None).startswith("not judged here")


def test_panels_of_one_scale_can_be_compared():
    panels = [Lines(str(top), "x", "y", [Series("one", [1, 2], [0.0, top])]) for top in (1.0, 100.0)]
    apart, same = ([axes.get_ylim() for axes in figure_of(Picture("", panels, one_scale=one)).axes] for one in (False, True))
    assert apart[0] != apart[1]
    assert same == [(apart[1][0], apart[1][1])] * 2


def test_pictures_show_the_numbers(tmp_path):
    lines = Lines("panel", "length", "BLEU", [Series("one", [1, 10, 100], [3.0, None, 1.0], [0.5, 0.5, 0.5])], log_x=True)
    bars = Bars("", "", "", [Series("one", ["a", "b"], [1.0, 2.0]), Series("two", ["a", "b"], [3.0, 4.0])])
    picture = Picture("what, where", [lines, bars, Map("", "", "", np.eye(3))], "2 seeds")
    figure = figure_of(picture)
    first, second, *_ = figure.axes
    assert first.get_xscale() == "log"
    assert [label.get_text() for label in first.get_xticklabels()] == ["1", "10", "100"]
    assert first.lines[0].get_ydata()[[0, 2]].tolist() == [3.0, 1.0]
    assert (first.get_xlabel(), first.get_ylabel(), first.get_title()) == ("length", "BLEU", "panel")
    assert [bar.get_height() for bar in second.patches] == [1.0, 2.0, 3.0, 4.0]
    assert [path.read_bytes()[:4] for path in save(picture, tmp_path / "some")] == [b"\x89PNG", b"<?xm"]
    assert figure.get_suptitle() == "what, where"


def test_sizes_are_found_for_a_budget():
    smoke = EXPERIMENTS["bottleneck"].experiment.settings["smoke"]
    there = Asked(smoke, [], 1, Path())
    system = System("demo", ["model.decoder.attention=null", "model.decoder.context=none"])
    best = sized(system, "model.decoder.hidden_size", 12_000, there)
    size = int(best.changes[-1].partition("=")[2])

    def parameters(size):
        return count(recipe_of(system._replace(changes=[*system.changes, f"model.decoder.hidden_size={size}"]), there))

    assert abs(parameters(size) - 12_000) == min(abs(parameters(one) - 12_000) for one in range(1, 80))


def test_every_experiment_has_its_settings_and_lecture():
    for name, entry in EXPERIMENTS.items():
        assert {"smoke", "quick", "full"} <= entry.experiment.settings.keys(), name
        assert entry.lecture
        assert list(entry.experiment.names())


def test_bottleneck_from_the_command_line(tmp_path):
    words = ["lab", "bottleneck", "--setting", "smoke", "--out", tmp_path / "out"]
    code, out, err = regard(*words)
    assert code == 0
    assert "test, up to 5" in out
    assert "not judged here: the lecture" in out  # it shows no more than that it runs
    assert "1 of 2: attention, seed 1" in err
    rows = json.loads(regard(*words, "--json").out)["rows"]
    budgets = [row["parameters"] for row in rows]
    assert abs(budgets[0] - budgets[1]) < 0.02 * budgets[0]
    assert regard(*words, "--latex").out.startswith("\\begin{tabular}")
    assert "own training rows and own test rows go together" in refused(*words, "--source", "a")
    assert "unknown entry of bottleneck 'nonee'; did you mean 'none'?" in refused(*words, "--names", "nonee")
