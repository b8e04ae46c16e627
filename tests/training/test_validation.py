"""Which weights are the best: by any metric of the table, in its direction; equal scores are told apart by the loss."""

import json
import math

import pytest
from oracles import needs_installed
from small import small_recipe
from test_recipe_obeyed import own_recipe, rows_of

from regard import run
from regard.data.sealed import MANIFEST, seal
from regard.decoding.forcing import Likelihood
from regard.decoding.generator import TrainedGenerator
from regard.errors import UserError
from regard.evaluation.evaluate import Question, measure
from regard.evaluation.metrics import METRICS, Metric, Score
from regard.training.callbacks import Callbacks
from regard.training.checkpoint import Best, read_progress


def progress_of(directory):
    return read_progress(max((directory / "checkpoints").glob("step-*")))


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    """Train with a validation every update that gives these scores and losses; the progress at the end."""

    def train(scores, losses, *changes, name="bleu", directory=tmp_path / "run", resume=False):
        given, told = iter(scores), iter(losses)
        entry = METRICS[name]
        monkeypatch.setitem(METRICS, name, entry._replace(function=lambda *_: Score(name, next(given))))
        if name != "loss":
            monkeypatch.setitem(METRICS, "loss", METRICS["loss"]._replace(function=lambda *_: Score("loss", next(told))))
        updates = len(losses) - ("training.average=1" not in changes)  # the last is that of the mean
        recipe = own_recipe(tmp_path, updates, "training.validate_every=1", f"training.validate_by={name}", *changes)
        run.train(recipe, directory, resume=resume, talk=False)
        return progress_of(directory)

    return train


@pytest.mark.parametrize(
    ("name", "scores", "losses", "best"),
    [("bleu", [0.02, 0.0, 0.4], [5.0, 3.0, 4.0], [2, 3, 1]), ("bleu", [0.02, 1.1, 0.4], [5.0, 6.0, 4.0], [2, 3, 1]),
     ("cer", [85.5, 76.0, 157.0], [5.0, 4.0, 3.0], [3, 2, 1]), ("cer", [74.0, 100.0, 140.0], [5.0, 4.0, 3.0], [1, 3, 2]),
     ("wer", [91.0, 95.0, 178.0], [5.0, 4.0, 3.0], [3, 2, 1]), ("wer", [89.0, 95.0, 178.0], [5.0, 4.0, 3.0], [1, 3, 2])],
)  # fmt: skip
def test_outputs_that_are_as_good_as_none_are_told_apart_by_the_loss(scripted, name, scores, losses, best):
    progress = scripted([*scores, 0.0], [*losses, 9.0], "training.average=3", name=name)
    assert [one.step for one in progress.best] == best
    assert [one.score for one in progress.best] == [METRICS[name].rank(scores[step - 1]) for step in best]


def test_a_validation_gives_back_what_its_search_has_kept(tmp_path, monkeypatch):
    """Graphs of a search and those of training share a GPU's memory."""
    in_use, search, made, kept = run.in_use, TrainedGenerator.slot_search, [], []
    monkeypatch.setattr(run, "in_use", lambda *given: made.append(in_use(*given)) or made[-1])
    monkeypatch.setattr(TrainedGenerator, "slot_search", lambda self, settings: kept.append("made") or search(self, settings))
    told = Callbacks(on_validation=lambda step, scores: kept.append(made[0].slotted))
    recipe = small_recipe(2, "decoding.cache=static", "training.validate_by=bleu", "training.validate_every=1")
    run.train(recipe, tmp_path / "run", talk=False, callbacks=told)
    assert [one for one in kept if one != "made"] == [None, None]
    assert kept[0] == kept[2] == "made"


def test_what_is_no_score_is_worse_than_outputs_as_good_as_none():
    none, useless, good = Best(-math.inf, 1, 1.0), Best(0.5, 2, 3.0), Best(7.0, 3, 9.0)
    for nothing in (1.0, -math.inf, math.nan):
        assert sorted([good, none, useless], key=lambda one: one.rank(nothing)) == [none, useless, good]
    assert not none.beats([], 1.0)


@pytest.mark.parametrize(
    "name", [name for name, metric in METRICS.items() if metric.needs in TrainedGenerator.gives and name != "pointing"]
)
def test_every_metric_can_be_validated_by(name, tmp_path):
    """Told in the journal beside the loss, and BLEU where it asks for no outputs; by it the best checkpoint is kept."""
    needs_installed(name)
    (tmp_path / "gold").write_text("0-0 1?1\n" * 24)
    gold = f"data.valid.alignment={tmp_path / 'gold'}"
    changes = ("training.validate_every=1", "training.average=1", f"training.validate_by={name}", gold)
    run.train(own_recipe(tmp_path, 3, *changes), tmp_path / "run", talk=False)
    rows = rows_of(tmp_path / "run", "valid_loss")
    usual = set() if METRICS[name].needs == "outputs" else {"valid_bleu"}
    assert all(row.keys() == {"step", "valid_loss", f"valid_{name}"} | usual for row in rows)
    assert len(rows) == 3
    (best,) = progress_of(tmp_path / "run").best
    assert METRICS[name].rank(best.score) == (max if METRICS[name].higher_is_better else min)(
        row[f"valid_{name}"] for row in rows
    )
    assert f"best validation {name}, by step: {best.step} ({METRICS[name].rank(best.score):.3f})" in (
        tmp_path / "run" / "model" / "README.md"
    ).read_text(encoding="utf-8")


def test_only_what_the_metrics_need_is_asked_of_the_model():
    class Silent:
        def rows_too_long(self, *_):
            return {}

        def score(self, pairs):
            return [Likelihood(-6.0, 3) for _ in pairs]

    scores, evidence = measure(Question(Silent(), [("a", "b"), ("c", "d")]), ["loss", "perplexity"])
    assert {name: score.value for name, score in scores.items()} == {"loss": 2.0, "perplexity": pytest.approx(math.exp(2))}
    assert evidence.keys() == {"likelihood"}


@pytest.mark.parametrize("name", ["bleu", "exact", "aer"])
def test_of_equal_scores_the_lower_loss_is_the_best(scripted, monkeypatch, name):
    monkeypatch.setitem(METRICS, name, METRICS[name]._replace(needs="outputs"))  # no gold here
    found = scripted([0.0] * 4, [3.0, 2.0, 1.0, 2.5], "training.average=1", name=name)
    assert found.best == [Best(METRICS[name].rank(0.0), 3, 1.0)]


def test_a_better_score_beats_a_lower_loss(scripted):
    assert scripted([1.0, 2.0, 1.0], [1.0, 3.0, 2.0], "training.average=1").best == [Best(2.0, 2, 3.0)]


def test_a_tie_with_a_lower_loss_is_no_reason_to_lose_patience(scripted, tmp_path):
    changes = ("training.average=1", "training.patience=2")
    assert scripted([0.0] * 5, [5.0, 4.0, 3.0, 2.0, 1.0], *changes).step == 5
    falling = scripted([0.0] * 5, [5.0, 4.0, 4.0, 4.5, 1.0], *changes, directory=tmp_path / "other")
    assert (falling.step, falling.waited, falling.finished) == (4, 2, True)  # an equal loss is no improvement


def test_a_lower_loss_with_a_worse_score_is_no_reason_to_lose_patience(scripted, tmp_path):
    """An error rate is lowest for empty outputs, before anything is learned."""
    changes = ("training.average=1", "training.patience=2")
    assert scripted([9.0] + [1.0] * 5, [5.0, 4.0, 3.0, 2.0, 1.0, 0.5], *changes).step == 6
    rising = scripted([9.0] + [1.0] * 5, [5.0, 4.0, 5.0, 5.0, 5.0, 5.0], *changes, directory=tmp_path / "other")
    assert (rising.step, rising.waited, rising.risen, rising.lowest, rising.finished) == (4, 3, 2, 4.0, True)


def test_the_best_few_are_those_of_the_lowest_loss(scripted):
    found = scripted([0.0] * 5, [3.0, 1.0, 2.0, 4.0, 0.5], "training.average=2")
    assert [one.step for one in found.best] == [2, 3]


@pytest.mark.parametrize(("loss", "number"), [(0.5, 2), (1.0, 2), (1.5, 1)])
def test_the_mean_of_equals_is_the_model_if_its_loss_is_no_higher(scripted, tmp_path, loss, number):
    scripted([0.0] * 3, [1.0, 2.0, loss], "training.average=2")
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert card.count("(0.000)") == number


def test_a_score_that_is_no_number_is_waited_for_and_never_told_as_best(scripted):
    nan, inf = math.nan, math.inf
    found = scripted([nan, inf, -inf], [3.0, 2.0, 1.0], "training.average=1")
    assert (found.waited, found.best) == (3, [Best(-inf, 3, 1.0)])  # some weights must be the model's
    assert not Best(-inf, 1, 0.0).beats([])
    assert Best(-9.0, 2, nan).beats([Best(-inf, 1, 0.0)])
    assert Best(1.0, 2, 5.0).beats([Best(1.0, 1, nan)])


def test_a_metric_s_direction():
    assert Metric(max).rank(2.0) == 2.0
    assert Metric(max, higher_is_better=False).rank(2.0) == -2.0
    assert all(Metric(max, higher_is_better=way).rank(math.nan) == -math.inf for way in (True, False))


def test_checkpoints_that_knew_no_loss_are_read_and_gone_on_from(scripted, tmp_path):
    """As versions before wrote them: (score, step). A tie with one of them counts as better, for its loss is not known."""
    run.train(own_recipe(tmp_path, 1, "training.average=1"), tmp_path / "run", talk=False)
    (place,) = (tmp_path / "run" / "checkpoints").iterdir()
    values = json.loads((place / "progress.json").read_text())
    score, step, loss = values["best"][0]
    assert loss > 0
    (place / "progress.json").write_text(json.dumps({**values, "best": [[score, step]]}))
    facts = json.loads((place / MANIFEST).read_text())["facts"]
    (place / MANIFEST).unlink()
    seal(place, facts)
    assert read_progress(place).best == [Best(score, step, math.inf)]
    found = scripted([score], [1.0, 9.0], "training.average=1", resume=True)
    assert found.best == [Best(score, 2, 1.0)]


EARLY = {
    "training.validate_by: unknown metric 'blue'; did you mean 'bleu'?": ["training.validate_by=blue"],
    "training.validate_by=aer asks where the model looks": [
        "training.validate_by=aer", "model.decoder.attention=null", "model.decoder.context=none"
    ],
    "training.validate_by=aer needs gold alignments: name a file of links in data.valid.alignment": [
        "training.validate_by=aer", "data.corpus=null", "data.train={source: a, target: b}"
    ],
}  # fmt: skip


@pytest.mark.parametrize("message", EARLY)
def test_a_metric_that_cannot_be_had_is_refused_before_anything_is_written(message, tmp_path):
    with pytest.raises(UserError) as error:
        run.train(small_recipe(2, *EARLY[message]), tmp_path / "run", talk=False)
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "perfect"), [("exact", 100.0), ("cer", 0.0)])
def test_two_validations_after_a_perfect_score_are_enough(scripted, name, perfect):
    """The loss may still fall; when it does not, nothing can be gained."""
    scores, losses = [50.0, *[perfect] * 7], [3.0, 1.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert scripted(scores, losses, "training.average=1", "training.patience=6", name=name).step == 5


def test_a_score_that_is_not_perfect_has_all_the_patience(scripted):
    scores, losses = [50.0, *[99.0] * 7], [3.0, 1.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert scripted(scores, losses, "training.average=1", "training.patience=4", name="exact").step == 7


def test_one_validation_comes_before_the_others(tmp_path):
    changes = ("training.validate_every=4", "training.validate_first=1", "training.log_every=3")
    run.train(own_recipe(tmp_path, 8, *changes), tmp_path / "run", talk=False)
    assert [row["step"] for row in rows_of(tmp_path / "run", "valid_loss")] == [1, 4, 8]


def test_the_loss_is_told_from_the_first_step_on_and_smoothing_is_named(tmp_path, capfd):
    run.train(own_recipe(tmp_path, 4, "training.log_every=4", "training.label_smoothing=0.1"), tmp_path / "run")
    told = capfd.readouterr().err
    assert "step 1/4  loss " in told
    assert "losses of training have label smoothing (0.1) in them" in told


def test_test_sets_are_scored_at_the_end_and_read_before_the_beginning(tmp_path, capfd):
    (tmp_path / "test.tsv").write_text("a b\tb a\n" * 5)
    files = f"data.test={{mine: {{pairs: {tmp_path / 'test.tsv'}}}}}"
    run.train(own_recipe(tmp_path, 2, files), tmp_path / "run")
    assert "on 5 rows of the test set 'mine', which had no part in the training:\n    BLEU " in capfd.readouterr().err
    (tmp_path / "test.tsv").write_text("a b\tb a\na b\n")
    with pytest.raises(UserError, match=r"test\.tsv:2"):
        run.train(own_recipe(tmp_path, 2, files), tmp_path / "other")
    assert not list((tmp_path / "other").glob("checkpoints/*"))
