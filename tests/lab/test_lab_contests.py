"""Experiments that train several systems: what is compared wins over all other changes; tasks are what they say."""

import json
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
from calling import regard

from regard.lab import copying, order
from regard.lab.contest import Claim, Contest
from regard.lab.experiment import Asked, Setting, conduct
from regard.lab.systems import Examined, System, recipe_of

RECIPE = System("demo", ["model.decoder.hidden_size=5"], ["data.batch_tokens=1", "training.updates=1"], ["training.updates=3"])


def asked(directory=Path(), changes=(), names=("one", "two"), **values):
    setting = Setting("", changes=["training.updates=2", "model.decoder.hidden_size=6"], values=values)
    return Asked(setting, names, 2, directory, changes, say=lambda _: None)


def test_what_is_compared_is_changed_by_nobody():
    recipe = recipe_of(RECIPE, asked(), seed=7)
    assert (recipe.data.batch_tokens, recipe.training.updates, recipe.training.seed) == (1, 3, 7)
    recipe = recipe_of(RECIPE, asked(changes=["training.updates=4", "model.decoder.hidden_size=9", "data.batch_tokens=8"]))
    assert (recipe.data.batch_tokens, recipe.training.updates, recipe.model["decoder"]["hidden_size"]) == (8, 4, 5)


def test_a_table_has_means_and_claims_need_their_systems(tmp_path, monkeypatch):
    figures = {("one", 1): 1.0, ("one", 2): 3.0, ("two", 1): 5.0, ("two", 2): 5.0}
    claims = [
        Claim("greater", ["one", "two"], lambda figure: figure("two", "score") > figure("one", "score")),
        Claim("less", ["one", "two"], lambda figure: figure("two", "score") < figure("one", "score")),
        Claim("unknown", ["one", "three"], lambda figure: True),
    ]
    contest = Contest("title", {"one": RECIPE, "two": RECIPE}, lambda tested: {}, ["score", "other"], ["score"], claims)
    monkeypatch.setattr(Contest, "trial", lambda self, asked, name, seed, run: {"score": figures[name, seed]})
    _, report = conduct(contest.experiment({"quick": Setting("")}), asked(tmp_path))
    assert report.grid[0][:3] == ["system", "score", "other"]
    assert [row[:3] for row in report.grid[1:]] == [["one", "2.000 ± 1.414", ""], ["two", "5.000 ± 0.000", ""]]
    assert [note.partition(":")[0] for note in report.notes[:3]] == [
        "agrees with the lecture", "DISAGREES with the lecture", "not judged here",
    ]  # fmt: skip


def test_no_bag_of_words_tells_the_order():
    """Rows with the same words have either label as often as not; of `presence` the words give the label."""
    labels = {"order": defaultdict(Counter), "presence": defaultdict(Counter)}
    for task, found in labels.items():
        for line in order.rows(task, "train", 3000):
            text, label = line.split("\t")
            words = text.split()
            found[tuple(sorted(set(words) & {"left", "right"}))][label] += 1
            assert len(words) == order.LENGTH
            if task == "order":
                assert label == next(word for word in words if word in ("left", "right"))
    (counts,) = labels["order"].values()
    assert 0.45 < counts["left"] / counts.total() < 0.55
    assert {key: list(count) for key, count in labels["presence"].items()} == {("left",): ["left"], ("right",): ["right"]}


def test_splits_of_the_order_differ():
    assert list(islice(order.rows("order", "train", 9), 9)) != list(islice(order.rows("order", "test", 9), 9))


def test_names_are_counted_where_they_can_be_copied(tmp_path):
    """`Marcus` was learned, `Gaii` stands in the source otherwise, `Titus` is written once of twice."""
    train = tmp_path / "train.en"
    train.write_text("Marcus works\nthe slave sees\n")
    rows = [("Titus videt Marcus", "Titus sees Marcus"), ("Gaii Titus", "of Gaius Titus"), ("nihil", "nothing")]
    whole = SimpleNamespace(data=SimpleNamespace(train=SimpleNamespace(file_of=lambda column: {"target": train}[column])))
    tested = Examined(None, "test-names", rows, None, whole)
    assert copying.names_written(tested, ["Titus sees Marcus", "of the slave", "nothing"]) == (1, 2)
    assert copying.names_written(tested, ["Titus", "Titus", "Titus"]) == (2, 2)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("order", "bag-order,rnn-presence"),
        ("copying", "plain,PosUnk"),
        pytest.param("copying", "copy-added,copy-gated", marks=pytest.mark.slow),
        pytest.param("captions", "soft,hard,none", marks=pytest.mark.slow),
    ],
)
def test_from_the_command_line(name, names, tmp_path):
    words = ["lab", name, "--setting", "smoke", "--names", names, "--out", tmp_path, "--quiet"]
    code, out, err = regard(*words)
    assert (code, err) == (0, "")
    assert "not judged here: the lecture" in out
    rows = json.loads(regard(*words, "--json").out)["rows"]
    assert [row["name"] for row in rows] == names.split(",")
    assert all(row["parameters"] > 0 and row["tokens/s"] > 0 and any(key.startswith("test ") for key in row) for row in rows)
    assert (tmp_path / "systems.png").exists()
    if name == "copying" and "PosUnk" in names:  # it decodes what `plain` has trained
        assert not (tmp_path / "PosUnk-1").exists()
