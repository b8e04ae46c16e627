"""Experiments that train several systems: what is compared wins over all other changes; tasks are what they say."""

import json
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from calling import regard

from regard.decoding.forcing import Likelihood
from regard.lab import alignment, bottleneck, captions, copying, order, summarisation, translation
from regard.lab.contest import Claim, Contest
from regard.lab.experiment import Asked, Setting, as_told, conduct
from regard.lab.systems import Examined, System, by_length, recipe_of
from regard.models import configure
from regard.planning.lecture import ROWS

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
    assert report.grid[0] == ["system", "score"]  # nothing has the other
    assert report.grid[1:] == [["one", "2.000 ± 1.414"], ["two", "5.000 ± 0.000"]]
    assert [note.partition(":")[0] for note in report.notes[:3]] == [
        "agrees with the lecture", "DISAGREES with the lecture", "not judged here",
    ]  # fmt: skip


def test_hard_attention_that_has_not_learned_yet_says_nothing_of_generalising():
    def judged(hard, hard_new, soft=90.0, soft_new=50.0):
        row = {"none": (5.0, 0.0), "soft": (soft, soft_new), "hard": (hard, hard_new)}
        rows = [{"name": name, "test exact": one, "test-new exact": two} for name, (one, two) in row.items()]
        return captions.CONTEST.judged(list(row), rows)[1][1]

    assert [judged(13.0, 0.0), judged(13.0, 60.0), judged(89.0, 60.0), judged(89.0, 40.0)] == [None, None, True, False]


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
        ("summarisation", "t-d,t-dmca-moe"),
        pytest.param("alignment", "score-additive,scope-monotonic,selection-sparsemax", marks=pytest.mark.slow),
        pytest.param("translation", "deepatt-posunk,gnmt-rl,transformer", marks=pytest.mark.slow),
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


@pytest.mark.parametrize("words", [40, 200])
def test_a_summary_says_what_the_document_says_on_its_topic(words):
    for number in range(50):
        text, summary = summarisation.document(Random(f"{number}"), words)
        head, *sentences = text.removesuffix(" .").split(" . ")
        topic = head.removeprefix("topic ")
        assert [one for one in sentences if one.split()[0] == topic] == summary.removesuffix(" .").split(" . ")
        assert words <= len(text.split()) < words + 10


def test_a_length_that_few_documents_have_is_left_out(monkeypatch):
    groups = [(50, 12, 40.0, 1.0), (100, 9, 90.0, 1.0), (None, 10, 30.0, 1.0)]
    monkeypatch.setattr(summarisation, "scores", lambda tested, names: {})
    monkeypatch.setattr(summarisation, "by_length", lambda tested, metric, ends: groups)
    found = summarisation.judge(SimpleNamespace(test="test"))
    assert found == {"test ROUGE-L, up to 50": 40.0, "test ROUGE-L, longer": 30.0}


def test_every_entry_of_attention_is_aligned():
    systems = alignment.systems()
    assert list(systems) == [f"{part}-{name}" for part, table in alignment.PARTS.items() for name in table]
    recipe = recipe_of(systems["scope-local_m"], Asked(Setting(""), [], 1, Path()))
    assert recipe.model["decoder"]["attention"]["scope"] == "local_m"


@pytest.mark.parametrize("setting", ["smoke", "quick", "full"])
@pytest.mark.parametrize("experiment", [translation, summarisation, captions], ids=lambda module: module.__name__)
def test_every_system_is_a_model_in_every_setting(experiment, setting):
    """Its changes fit its recipe; systems of the table differ in the shape of the model, not in the budget."""
    contest, chosen = experiment.CONTEST, experiment.EXPERIMENT.settings[setting]
    there, budgets = Asked(chosen, [], 1, Path()), set()
    for name, system in contest.systems.items():
        sizes = {**chosen.values.get("sizes", {}), **chosen.values.get("widths", {})}.get(name, ())
        recipe = recipe_of(system._replace(sizes=[*system.sizes, *sizes]), there)
        configure(recipe.model)
        if setting != "full":
            budgets.add((recipe.training.updates, recipe.data.batch_tokens, recipe.training.learning_rate > 0))
    assert len(budgets) <= 1
    assert contest.lecture.keys() <= contest.systems.keys()


def test_systems_that_have_hardly_begun_are_not_ranked():
    """400 updates: BLEU of 0.3 to 23, which is when each begins to learn, not how well it translates."""
    figures = {"transformer": 2.8, "bytenet": 4.8, "gnmt": 0.3, "convs2s": 22.9}
    report = translation.CONTEST.report(
        Asked(translation.EXPERIMENT.settings["quick"], list(figures), 1, Path()),
        [{"name": name, "test BLEU": figure} for name, figure in figures.items()],
    )
    told = as_told(report, translation.EXPERIMENT.settings["quick"].judges)
    assert told.notes[0].startswith("not judged here")


def test_the_lectures_flops_are_those_of_the_plan():
    """`regard plan` has them too."""
    names = {"bytenet2016-small": "bytenet2016", "deepatt2016-small": "deepatt2016", "gnmt2016-rl-small": "gnmt2016"}
    names |= {"convs2s2017-small": "convs2s2017", "shazeer2017-moe-small": "shazeer2017-moe"}
    for name, (_, _, german, french) in translation.LECTURE.items():
        known = {"transformer": "vaswani2017-base", "transformer-big": "vaswani2017-big"}
        row = ROWS[known.get(name) or names[translation.SYSTEMS[name].recipe]]
        assert (row.german, row.french) == tuple(float(one) if one else None for one in (german, french))


def test_figures_by_length_are_those_of_their_rows():
    """Up to 2 words, up to 4, longer: of each group the exact matches, and the mean loss of all its tokens."""
    rows = [("a", "x"), ("a a", "y"), ("a a a", "z"), ("a a a a a", "z")]
    model = SimpleNamespace(
        generate=lambda sources: ["x", "x", "z", "z"],
        score=lambda pairs: [Likelihood(-1.0, 2), Likelihood(-5.0, 4), Likelihood(-3.0, 3), Likelihood(-8.0, 2)],
    )
    found = by_length(Examined(model, "test", rows, None, None), "exact", (2, 4))
    assert found == [(2, 2, 50.0, 1.0), (4, 1, 100.0, 1.0), (0, 1, 100.0, 4.0)]


def test_the_bottleneck_is_judged_by_lead_and_length():
    def holds(without, attends):
        rows = [
            {"name": name, "test by length": [(end, 1, 0.0, loss) for end, loss in zip((5, 10), losses, strict=True)]}
            for name, losses in (("none", without), ("attention", attends))
        ]
        return bottleneck.holds(rows, "test", ["attention", "none"])

    assert holds([2.0, 3.0], [1.0, 1.5])
    assert not holds([2.0, 3.0], [1.0, 2.5])  # a smaller lead
    assert not holds([2.0, 3.0], [2.5, 1.0])  # none on short sources
