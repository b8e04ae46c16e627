"""A run does what its recipe says: the loss it reports, the seed, the clip, the rows it learns from, the files it leaves."""

import os
import signal
import types

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small import digests, small_recipe

import regard
from regard import preparation, run
from regard.data.batching import reading
from regard.data.sealed import sealed
from regard.data.tokenizers import load_tokenizer
from regard.errors import UserError
from regard.recipe import Recipe, override, parse
from regard.training import loop
from regard.training.checkpoint import Best, mean_weights
from regard.training.interruption import interruptions
from regard.training.journal import Journal, read_journal
from regard.training.objective import Objective

SOURCES = [f"s{row} " + "a " * (row % 4 + 1) for row in range(24)]
TARGETS = [f"t{row} " + "b c " * (row % 3 + 1) for row in range(24)]


def own_recipe(directory, updates, *changes, valid=True):
    """A recipe on two small files; one batch holds them all, and nothing is left to chance."""
    for name, lines in (("source", SOURCES), ("target", TARGETS)):
        (directory / name).write_text("\n".join(line.strip() for line in lines) + "\n")
    files = {"source": str(directory / "source"), "target": str(directory / "target")}
    values = {
        "data": {"train": files, **({"valid": files} if valid else {}), "tokenizer": {"kind": "word"}},
        "model": {
            "encoder": {"embedding_size": 8, "hidden_size": 8}, "decoder": {"embedding_size": 8, "hidden_size": 12}
        },
        "training": {"updates": updates, "log_every": 1, "validate_every": 100, "label_smoothing": 0.0},
    }  # fmt: skip
    return parse(Recipe, override(values, list(changes)))


def rows_of(directory, key):
    return [row for row in read_journal(directory / "journal.jsonl") if key in row]


def test_the_loss_of_training_is_the_loss_of_validation(tmp_path):
    """On the same rows and with weights that hardly move: nats a token, each end mark a token."""
    run.train(own_recipe(tmp_path, 3, "training.learning_rate=1e-9"), tmp_path / "run", talk=False)
    trained, (valid,) = rows_of(tmp_path / "run", "loss"), rows_of(tmp_path / "run", "valid_loss")
    assert {row["tokens"] for row in trained} == {sum(len(line.split()) + 1 for line in TARGETS)}
    assert [row["loss"] for row in trained] == pytest.approx([valid["valid_loss"]] * 3, rel=1e-4)
    assert 0 < valid["valid_loss"] < 2 * np.log(len(TARGETS) + 6)  # hardly better or worse than a guess


def test_a_journal_row_is_the_mean_of_its_steps(tmp_path):
    changes = ("training.learning_rate=1e-9", "data.batch_tokens=40")
    run.train(own_recipe(tmp_path, 6, *changes), tmp_path / "one", talk=False)
    run.train(own_recipe(tmp_path, 6, *changes, "training.log_every=3"), tmp_path / "three", talk=False)
    each, together = (rows_of(tmp_path / name, "loss") for name in ("one", "three"))
    for at, row in enumerate(together):
        part = each[3 * at : 3 * at + 3]
        assert row["tokens"] == sum(one["tokens"] for one in part)
        assert row["loss"] == pytest.approx(sum(one["loss"] * one["tokens"] for one in part) / row["tokens"], rel=1e-6)


def test_training_visits_every_row_once_an_epoch(tmp_path, monkeypatch):
    seen, original = [], loop.Trainer.backward
    monkeypatch.setattr(loop.Trainer, "backward", lambda self, rows, *rest: seen.append(rows) or original(self, rows, *rest))
    recipe = own_recipe(tmp_path, 100, "data.batch_tokens=40", "data.held_out=6", valid=False)
    prepared = preparation.prepare(recipe, tmp_path, lambda _: None)
    recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"updates": len(prepared.plan)})})
    run.train(recipe, tmp_path / "run", talk=False)
    learned = sorted(row for rows in seen for row in rows.tolist())
    assert len(learned) == len(set(learned)) == 24 - 6
    validated = {source for source, _ in prepared.valid}
    assert len(validated) == 6
    assert not validated & {SOURCES[row].strip() for row in learned}


def test_chance_is_a_function_of_seed_step_and_rank():
    def seed(seed=1, step=1, rank=0):
        of = types.SimpleNamespace(training=types.SimpleNamespace(seed=seed), group=types.SimpleNamespace(rank=rank))
        return loop.Trainer.seed_of(of, step)

    assert seed() == seed()
    assert len({seed(), seed(seed=2), seed(step=2), seed(rank=1), seed(step=2, rank=1)}) == 5


def test_the_optimizer_is_the_recipes_and_sees_clipped_gradients(tmp_path, monkeypatch):
    norms, groups, original = [], [], torch.optim.AdamW.step

    def step(self, *arguments, **more):
        gradients = [parameter.grad.norm() for group in self.param_groups for parameter in group["params"]]
        norms.append(torch.stack(gradients).norm().item())
        groups.append(self.param_groups[0])
        return original(self, *arguments, **more)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    changes = ("training.clip=0.01", "training.weight_decay=0.3", "training.betas=[0.8, 0.7]", "training.epsilon=1e-9")
    run.train(own_recipe(tmp_path, 3, *changes), tmp_path / "run", talk=False)
    assert norms == pytest.approx([0.01] * 3, rel=1e-3)
    assert (groups[0]["weight_decay"], tuple(groups[0]["betas"]), groups[0]["eps"]) == (0.3, (0.8, 0.7), 1e-9)


def test_without_clipping_gradients_stay_as_they_are_and_bad_steps_are_left_out_all_the_same(tmp_path, monkeypatch):
    """A run without clipping ends with the bytes of one whose limit nothing reaches."""
    original = torch.nn.utils.clip_grad_norm_
    for clip in ("null", "1000000"):
        monkeypatch.setattr(loop.nn.utils, "clip_grad_norm_", bad_at(3, original))
        run.train(own_recipe(tmp_path, 5, f"training.clip={clip}"), tmp_path / clip, talk=False)
        assert [row["step"] for row in rows_of(tmp_path / clip, "skipped")] == [3]
    weights = [(tmp_path / clip / "model" / "model.safetensors").read_bytes() for clip in ("null", "1000000")]
    assert weights[0] == weights[1]


def bad_at(step, original):
    """Clipping of gradients that are a thousand times as long, and not finite at one step."""
    calls = []

    def clip(parameters, limit):
        learning = [parameter for parameter in parameters if parameter.grad is not None]
        for parameter in learning:
            parameter.grad *= 1000
        calls.append(None)
        return original(learning, limit) * (float("inf") if len(calls) == step else 1.0)

    return clip


def test_steps_that_are_left_out_now_and_then_do_not_stop_a_run(tmp_path, monkeypatch):
    original, calls = torch.nn.utils.clip_grad_norm_, []

    def clip(*arguments):
        calls.append(None)
        return original(*arguments) * (float("nan") if len(calls) % 2 else 1.0)

    monkeypatch.setattr(loop.nn.utils, "clip_grad_norm_", clip)
    run.train(own_recipe(tmp_path, 2 * loop.TOO_MANY_SKIPPED + 3), tmp_path / "run", talk=False)
    assert len(rows_of(tmp_path / "run", "skipped")) == loop.TOO_MANY_SKIPPED + 2


@pytest.mark.parametrize(("by", "kept"), [("loss", [2, 4]), ("bleu", [6, 8])])
def test_a_low_loss_and_a_high_bleu_are_good(tmp_path, monkeypatch, by, kept):
    scores, original = iter([1.0, 2.0, 3.0, 4.0]), loop.Trainer.__init__

    def scripted(self, *arguments):
        original(self, *arguments)
        self.validate = lambda: dict.fromkeys(("loss", "bleu"), next(scores))

    monkeypatch.setattr(loop.Trainer, "__init__", scripted)
    changes = ("training.validate_every=2", "training.average=2", f"training.validate_by={by}")
    run.train(own_recipe(tmp_path, 8, *changes), tmp_path / "run", talk=False)
    assert sorted(int(path.name[5:]) for path in (tmp_path / "run" / "best").glob("step-*")) == kept


def test_label_smoothing_reaches_the_loss():
    from tiny import FEW, tiny

    model = tiny(FEW["gru-additive-into_cell"])
    target = torch.tensor([[7, 8, 3]])
    batch = reading(torch.tensor([[4, 5, 3]]), torch.tensor([3]), target=target)
    logits = model(batch, torch.tensor([[2, 7, 8]]))[0]
    expected = torch.nn.functional.cross_entropy(logits, target[0], reduction="sum", label_smoothing=0.3)
    torch.testing.assert_close(Objective(model, 0.3)(batch).total, expected)


def test_a_second_interrupt_leaves_at_once_and_the_handlers_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interruptions() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.signal == signal.SIGTERM
    with pytest.raises(KeyboardInterrupt), interruptions() as interruption:  # noqa: PT012 - the second one raises
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption
        os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_what_the_steps_so_far_mean_may_not_change(tmp_path):
    run.train(own_recipe(tmp_path, 1), tmp_path / "run", talk=False)
    for key, value in (("training.seed", 2), ("data.batch_tokens", 99), ("data.tokenizer.lowercase", "true")):
        with pytest.raises(UserError, match=f"began with {key}="):
            run.train(own_recipe(tmp_path, 2, f"{key}={value}"), tmp_path / "run", resume=True, talk=False)


@pytest.mark.parametrize("shared", [False, True])
def test_each_side_has_its_tokenizer_unless_they_share_one(tmp_path, shared):
    changes = (f"data.tokenizer.shared={str(shared).lower()}", "decoding.beam=2", "decoding.length_penalty=0.3")
    run.train(own_recipe(tmp_path, 1, *changes), tmp_path / "run", talk=False)
    trained = regard.load(tmp_path / "run")
    for lines, tokenizer, side in ((SOURCES, trained.source, "source"), (TARGETS, trained.target, "target")):
        assert [tokenizer.decode(ids) for ids in tokenizer.encode([line.strip() for line in lines])] == [
            line.strip() for line in lines
        ]
        assert tokenizer.digest == load_tokenizer(tmp_path / "run" / "fields" / side).digest
    assert (trained.source.digest == trained.target.digest) == shared
    assert (trained.decoding.beam, trained.decoding.length_penalty) == (2, 0.3)


def test_a_mean_does_not_depend_on_the_order(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, scale in zip(paths, (1.0, 1e4, 1e-4), strict=True):
        with sealed(path, {}) as inside:
            save_file({"w": torch.randn(1000) * scale}, inside / "model.safetensors")
    assert mean_weights(paths)["w"].equal(mean_weights(paths[::-1])["w"])
    exact = sum(load_file(path / "model.safetensors")["w"].double() for path in paths) / 3
    assert mean_weights(paths)["w"].equal(exact.float())


@pytest.mark.parametrize(("score", "loss", "kept"), [(9.0, 0.9, 2), (9.0, 1.1, 1), (11.0, 0.1, 1)])
def test_a_mean_is_the_model_only_if_it_is_as_good_and_as_likely(score, loss, kept, tmp_path, monkeypatch):
    """Checkpoints of 10 and 12 % errors, and of losses 0.5 and 1: their mean has fewer errors, and no higher loss than both."""
    monkeypatch.setattr(run, "mean_weights", lambda paths: {})
    best = [Best(-10.0, 20, 0.5), Best(-12.0, 10, 1.0)]
    chosen = run.choose_weights(
        own_recipe(tmp_path, 2, "training.validate_by=cer"),
        tmp_path,
        torch.nn.Module(),
        lambda: {"cer": score, "loss": loss},
        best,
    )
    assert chosen == best[:kept]


def test_a_journal_that_was_cut_knows_its_size(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"{}\n" * 9)
    journal = Journal(path, 6)
    size = journal.settle()
    journal.close()
    assert size == 6


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def after_step(number, what, monkeypatch):
    original = loop.Trainer.update

    def update(self, progress):
        original(self, progress)
        if progress.step == number:
            what()

    monkeypatch.setattr(loop.Trainer, "update", update)


@pytest.mark.parametrize("then", [None, 11])
def test_rows_past_the_last_checkpoint_are_written_once(tmp_path, monkeypatch, then):
    """Killed when the row of step 12 is on the disk and the last checkpoint is of step 10; then, perhaps, a signal that
    saves before that row is written again."""
    recipe = small_recipe(14, "training.save_every=10", "training.validate_every=14")
    run.train(recipe, tmp_path / "calm", talk=False)
    child = os.fork()
    if child == 0:
        after_step(13, lambda: os._exit(9), monkeypatch)
        run.train(recipe, tmp_path / "run", talk=False)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    if then is not None:
        with monkeypatch.context() as patch:
            after_step(then, terminate, patch)
            assert run.train(recipe, tmp_path / "run", resume=True, talk=False) == signal.SIGTERM
    run.train(recipe, tmp_path / "run", resume=True, talk=False)
    assert digests(tmp_path / "run") == digests(tmp_path / "calm")


def test_more_patience_lets_a_stopped_run_go_on(tmp_path, monkeypatch):
    original = loop.Trainer.__init__

    def scripted(self, *arguments):
        original(self, *arguments)
        self.validate = lambda: {"loss": 1.0, "bleu": 1.0}

    monkeypatch.setattr(loop.Trainer, "__init__", scripted)
    changes = ("training.validate_every=1", "training.patience=1")
    run.train(own_recipe(tmp_path, 9, *changes), tmp_path / "run", talk=False)
    assert rows_of(tmp_path / "run", "valid_loss")[-1]["step"] == 2
    run.train(own_recipe(tmp_path, 9, changes[0], "training.patience=4"), tmp_path / "run", resume=True, talk=False)
    assert rows_of(tmp_path / "run", "valid_loss")[-1]["step"] == 5


def test_held_out_references_are_the_lines_of_the_file(tmp_path):
    recipe = own_recipe(tmp_path, 1, "data.held_out=6", "data.tokenizer.size=8", valid=False)
    valid = preparation.prepare(recipe, tmp_path, lambda _: None).valid
    assert {target for _, target in valid} <= {line.strip() for line in TARGETS}


def test_a_run_does_not_go_on_with_other_rows(tmp_path):
    recipe = own_recipe(tmp_path, 2)
    run.train(own_recipe(tmp_path, 1), tmp_path / "run", talk=False)
    (tmp_path / "target").write_text("\n".join(reversed([line.strip() for line in TARGETS])) + "\n")
    with pytest.raises(UserError):
        run.train(recipe, tmp_path / "run", resume=True, talk=False)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_precision_is_the_recipes(tmp_path, monkeypatch, precision):
    seen, original = set(), Objective.forward

    def forward(self, examples):
        seen.add(torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16)
        return original(self, examples)

    monkeypatch.setattr(Objective, "forward", forward)
    run.train(own_recipe(tmp_path, 2, f"training.precision={precision}"), tmp_path / "run", talk=False)
    assert seen == {precision == "bfloat16"}


def test_the_first_weights_are_a_function_of_the_seed(tmp_path):
    first = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        torch.rand(len(first) + 1)  # what happened before does not matter
        run.train(own_recipe(tmp_path, 1, f"training.seed={seed}"), tmp_path / name, talk=False)
        first[name] = load_file(tmp_path / name / "model" / "model.safetensors")["encoder.embed.weight"]
    assert first["a"].equal(first["b"])
    assert not first["a"].equal(first["c"])
