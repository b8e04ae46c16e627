"""A run from its recipe to its model: resume, interruption, damage, refusal."""

import json
import os
import random
import shutil
import signal

import pytest
import torch
from small import digests, small_recipe, torment

import regard
from regard import run
from regard.data import subwords
from regard.errors import UserError
from regard.evaluation.metrics import METRICS, Metric, Score
from regard.training import loop
from regard.training.journal import read_journal


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "calm"
    assert run.train(small_recipe(30), directory, talk=False) is None
    return directory


def test_a_run_leaves_a_model_that_needs_nothing_else(finished, tmp_path):
    alone = shutil.copytree(finished / "model", tmp_path / "elsewhere")
    texts = ["Caecilius est in horto .", "", "servus laborat ."]
    assert regard.load(alone).generate(texts) == regard.load(finished).generate(texts)


def test_the_journal_says_what_happened(finished):
    rows = read_journal(finished / "journal.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == list(range(3, 31, 3))
    assert [row["step"] for row in rows if "valid_bleu" in row] == [20, 30]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < losses[0]


def test_ten_kills_change_nothing(finished, tmp_path):
    counts = torment(small_recipe(30), tmp_path / "hunted", kills=10, chance=random.Random(3))
    assert counts["failed_restarts"] == 0
    assert counts["kills"] >= 5
    assert digests(tmp_path / "hunted") == digests(finished)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_leaves_and_the_run_goes_on(finished, tmp_path, monkeypatch, number):
    original = loop.Trainer.update

    def update(self, progress):
        original(self, progress)
        if progress.step == 13:  # between two saves and between two journal rows
            os.kill(os.getpid(), number)

    monkeypatch.setattr(loop.Trainer, "update", update)
    assert run.train(small_recipe(30), tmp_path / "run", talk=False) == number
    assert max((tmp_path / "run" / "checkpoints").glob("step-*")).name == "step-000000013"
    assert not (tmp_path / "run" / "model").exists()
    monkeypatch.undo()
    assert run.train(small_recipe(30), tmp_path / "run", resume=True, talk=False) is None
    assert digests(tmp_path / "run") == digests(finished)


def test_a_flipped_bit_in_any_file_is_named_and_the_checkpoint_before_is_used(finished, tmp_path, capsys):
    for name in ("model.safetensors", "optimizer.safetensors", "progress.json", "manifest.json"):
        directory = shutil.copytree(finished, tmp_path / name)
        newest = max((directory / "checkpoints").glob("step-*"))
        flip(newest / name, random.Random(name))
        assert run.train(small_recipe(30), directory, resume=True, talk=False) is None
        assert f"{newest.name}/{name}" in capsys.readouterr().err
        assert digests(directory) == digests(finished)


def flip(path, chance):
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def test_no_whole_checkpoint_is_an_error(finished, tmp_path):
    directory = shutil.copytree(finished, tmp_path / "run")
    for path in (directory / "checkpoints").glob("step-*/model.safetensors"):
        flip(path, random.Random(1))
    with pytest.raises(UserError, match="none of its 2 checkpoints is whole"):
        run.train(small_recipe(30), directory, resume=True, talk=False)


def test_a_flipped_bit_in_a_model_directory_is_refused(finished, tmp_path):
    files = sorted(path.relative_to(finished / "model") for path in (finished / "model").rglob("*") if path.is_file())
    assert len(files) >= 7
    for name in files:
        directory = shutil.copytree(finished / "model", tmp_path / "model")
        flip(directory / name, random.Random(str(name)))
        with pytest.raises(UserError, match=str(name)):
            regard.load(directory)
        shutil.rmtree(directory)


def test_a_second_start_is_refused_and_resuming_a_finished_run_changes_nothing(finished, tmp_path):
    with pytest.raises(UserError, match="--resume"):
        run.train(small_recipe(30), finished, talk=False)
    directory = shutil.copytree(finished, tmp_path / "again")
    assert run.train(small_recipe(30), directory, resume=True, talk=False) is None
    assert digests(directory) == digests(finished)


def test_more_updates_may_follow_but_another_model_may_not(finished, tmp_path):
    directory = shutil.copytree(finished, tmp_path / "run")
    with pytest.raises(UserError, match=r"began with model\.decoder\.hidden_size=16, not 24"):
        run.train(small_recipe(30, "model.decoder.hidden_size=24"), directory, resume=True, talk=False)
    run.train(small_recipe(34), directory, resume=True, talk=False)
    assert read_journal(directory / "journal.jsonl")[-1]["step"] == 34


def test_two_trainers_cannot_share_a_run(finished):
    from regard.data.sealed import lock

    with lock(finished), pytest.raises(UserError, match="in use by process"):
        run.train(small_recipe(30), finished, resume=True, talk=False)


def journal_of(directory, *changes, updates=2):
    run.train(small_recipe(updates, "training.log_every=1", *changes), directory, talk=False)
    return [row["loss"] for row in read_journal(directory / "journal.jsonl") if "loss" in row]


WITHOUT_CHANCE = ("model.encoder.dropout=0", "model.decoder.dropout=0")


def test_the_result_does_not_depend_on_the_pieces_a_batch_is_computed_in(tmp_path):
    whole = journal_of(tmp_path / "1", *WITHOUT_CHANCE)
    for number in (3, 100):  # 100: more pieces than rows
        assert journal_of(tmp_path / f"{number}", *WITHOUT_CHANCE, f"training.accumulate={number}") == pytest.approx(
            whole, abs=1e-5
        )


def test_what_is_not_finite_never_reaches_weights_or_checkpoints(tmp_path, monkeypatch):
    original = loop.Trainer.backward

    def backward(self, rows, tokens, step):
        loss = original(self, rows, tokens, step)
        self.step = getattr(self, "step", 0) + 1
        if self.step == 3:
            self.model.encoder.embed.weight.grad[5, 0] = float("inf")
        return loss * float("nan") if self.step == 5 else loss

    def poisoned(self, rows, tokens, step):
        loss = backward(self, rows, tokens, step)
        if self.step == 5:
            for parameter in self.model.parameters():
                parameter.grad.fill_(float("nan"))
        return loss

    monkeypatch.setattr(loop.Trainer, "backward", poisoned)
    run.train(small_recipe(8), tmp_path / "run", talk=False)
    skipped = {row["step"]: row["skipped"] for row in read_journal(tmp_path / "run" / "journal.jsonl") if "skipped" in row}
    assert skipped == {3: "the gradient of encoder.embed.weight is not finite", 5: "the loss is not finite"}
    from safetensors.torch import load_file

    for path in (tmp_path / "run").rglob("*.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(path).values()), path


def test_ten_steps_in_a_row_that_are_not_finite_stop_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(loop.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(float("nan")))
    with pytest.raises(UserError, match="10 times in a row"):
        run.train(small_recipe(30), tmp_path / "run", talk=False)
    rows = read_journal(tmp_path / "run" / "journal.jsonl")
    assert len([row for row in rows if "skipped" in row]) == 10


def test_early_stopping_and_plateau(tmp_path, monkeypatch):
    scores = iter([1.0, 3.0, 2.0, 2.0, 2.0, 2.0, 9.0, 9.0])
    original = loop.Trainer.__init__

    def scripted(self, *arguments):
        original(self, *arguments)
        self.validate = lambda: {"loss": 1.0, "bleu": next(scores)}

    monkeypatch.setattr(loop.Trainer, "__init__", scripted)
    recipe = small_recipe(
        40, "training.validate_every=2", "training.patience=4", "training.schedule=plateau", "training.log_every=2"
    )
    run.train(recipe, tmp_path / "run", talk=False)
    rows = read_journal(tmp_path / "run" / "journal.jsonl")
    assert [row["step"] for row in rows if "valid_bleu" in row] == [2, 4, 6, 8, 10, 12]  # 4 without a better score
    rates = {row["step"]: row["lr"] for row in rows if "lr" in row}
    peak, warmup = recipe.training.learning_rate, recipe.training.warmup
    assert rates[8] == pytest.approx(peak * 8 / warmup)
    assert rates[10] == pytest.approx(peak * 10 / warmup / 2)  # halved after two validations without a better score
    kept = sorted(path.name for path in (tmp_path / "run" / "best").glob("step-*"))
    assert kept == ["step-000000004", "step-000000006"]  # the best two; of equals the first
    progress = json.loads((max((tmp_path / "run" / "checkpoints").glob("step-*")) / "progress.json").read_text())
    assert progress["finished"]


@pytest.mark.parametrize("better", [True, False])
def test_the_model_is_the_mean_of_the_best_checkpoints_if_that_is_better(tmp_path, monkeypatch, better):
    """Two validations in training, a third of the mean."""
    from safetensors.torch import load_file

    scores = iter([1.0, 2.0, 3.0 if better else 1.5])
    monkeypatch.setitem(METRICS, "bleu", Metric(lambda *_: Score("BLEU", next(scores), "")))
    run.train(small_recipe(6, "training.validate_every=3"), tmp_path, talk=False)
    first, last = (load_file(tmp_path / "best" / f"step-00000000{step}" / "model.safetensors") for step in (3, 6))
    for name, tensor in load_file(tmp_path / "model" / "model.safetensors").items():
        torch.testing.assert_close(tensor, (first[name] + last[name]) / 2 if better else last[name])


def test_bfloat16_and_scheduled_sampling_train(tmp_path):
    losses = journal_of(tmp_path / "run", "training.precision=bfloat16", "training.scheduled_sampling=0.3", updates=6)
    assert losses[-1] < losses[0]


PARTS = ("training.penalties.coverage=1", "training.penalties.doubly_stochastic=0.5", "model.decoder.attention.selection=hard")


def test_what_is_minimised_beside_the_likelihood_is_told_by_name_over_a_stop_too(tmp_path, monkeypatch, capsys):
    """In the journal, to the person and to TensorBoard; a save between two rows loses nothing of any part."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    names, recipe = {"coverage", "doubly_stochastic", "reinforce"}, small_recipe(6, *PARTS)
    run.train(recipe, tmp_path / "calm")
    rows = [row for row in read_journal(tmp_path / "calm" / "journal.jsonl") if "loss" in row]
    assert all(row.keys() == {"step", "loss", "lr", "tokens", *names} for row in rows)
    assert all(0 < row["loss"] < 7 for row in rows)  # ln 300 is 5.7
    shown = capsys.readouterr().err
    assert all(f"  {name} {row[name]:.3f}  " in shown for row in rows for name in names)
    events = EventAccumulator(str(tmp_path / "calm" / "events"))
    events.Reload()
    for name in names:
        assert [event.value for event in events.Scalars(f"train/{name}")] == pytest.approx(
            [row[name] for row in rows], rel=1e-5
        )
    original = loop.Trainer.update

    def update(self, progress):
        original(self, progress)
        if progress.step == 4:  # a row is written at 3 and at 6
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop.Trainer, "update", update)
    run.train(recipe, tmp_path / "cut", talk=False)
    monkeypatch.undo()
    run.train(recipe, tmp_path / "cut", resume=True, talk=False)
    assert digests(tmp_path / "cut") == digests(tmp_path / "calm")


def test_a_checkpoint_may_know_other_parts(tmp_path):
    """Penalties may change while a run goes on: what was summed up under a name that is gone is forgotten."""
    run.train(small_recipe(1, *PARTS), tmp_path / "run", talk=False)
    changed = (PARTS[1], PARTS[2], "training.penalties.guided=1")
    run.train(small_recipe(3, *changed), tmp_path / "run", resume=True, talk=False)
    (row,) = [row for row in read_journal(tmp_path / "run" / "journal.jsonl") if "loss" in row]
    assert row.keys() == {"step", "loss", "lr", "tokens", "doubly_stochastic", "guided", "reinforce"}


def test_tensorboard_gets_the_losses(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(finished / "events"))
    events.Reload()
    journal = [row["loss"] for row in read_journal(finished / "journal.jsonl") if "loss" in row]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(journal, rel=1e-5)
    assert {"valid/bleu", "valid/loss", "lr"} <= set(events.Tags()["scalars"])


def test_a_damaged_record_of_the_data_is_made_again(finished, tmp_path, capsys):
    directory = shutil.copytree(finished, tmp_path / "run")
    flip(directory / "data" / "manifest.json", random.Random(5))
    assert run.train(small_recipe(30), directory, resume=True) is None
    told = capsys.readouterr().err
    assert told.count("manifest.json: damaged") == 1
    assert "the token store is built again from" in told
    assert digests(directory) == digests(finished)


def test_a_lost_journal_is_named(finished, tmp_path, capsys):
    directory = shutil.copytree(finished, tmp_path / "run")
    assert run.train(small_recipe(30), directory, resume=True, talk=False) is None
    assert capsys.readouterr().err == ""
    size = (directory / "journal.jsonl").stat().st_size
    for left in (size // 2, 0):
        os.truncate(directory / "journal.jsonl", left)
        run.train(small_recipe(30), directory, resume=True, talk=False)
        lost = f"{size - left:,} bytes of what happened before step 30 are lost"
        assert capsys.readouterr().err == f"warning: {directory / 'journal.jsonl'}: {lost}\n"


def test_a_sample_for_the_tokenizers_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(subwords, "SAMPLE", 100)
    assert run.train(small_recipe(2, "data.tokenizer.kind=bpe", "data.tokenizer.size=80"), tmp_path / "run") is None
    told = capsys.readouterr().err
    assert all(f"the tokenizer of {side} was trained on a sample of " in told for side in ("source", "target"))
