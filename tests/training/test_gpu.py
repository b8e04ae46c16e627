"""Training on a GPU: resume goes on, the model decodes alike on both kinds of device."""

import numpy as np
import pytest
import tasks
import torch
from small import small_recipe

import regard
from regard import preparation, run
from regard.models import build, configure
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.scan import scan
from regard.recipe import Recipe, override, parse
from regard.training.capture import Captured
from regard.training.cast_weights import CastWeights
from regard.training.checkpoint import Progress
from regard.training.display import Display
from regard.training.distributed import Group
from regard.training.feed import StoreFeed
from regard.training.journal import read_journal
from regard.training.loop import Trainer
from regard.training.watch import FiniteCheck

pytestmark = pytest.mark.gpu


@pytest.fixture
def deterministic_alone(monkeypatch):
    """`training.deterministic` holds for the whole process: the tests that follow do not ask for it."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic_alone")
def test_a_resumed_run_goes_on_where_it_stopped(tmp_path):
    """With training.deterministic the losses are those of a run that was not interrupted."""
    changes = ("training.device=cuda", "training.deterministic=true", "training.log_every=1")
    run.train(small_recipe(20, *changes), tmp_path / "whole", talk=False)
    run.train(small_recipe(10, *changes, "training.schedule=constant"), tmp_path / "parts", talk=False)
    run.train(small_recipe(20, *changes, "training.schedule=constant"), tmp_path / "parts", resume=True, talk=False)
    run.train(small_recipe(20, *changes, "training.schedule=constant"), tmp_path / "other", talk=False)
    parts, other = (read_journal(tmp_path / name / "journal.jsonl") for name in ("parts", "other"))
    losses = [[row["loss"] for row in rows if "loss" in row] for rows in (parts, other)]
    assert losses[0] == losses[1]


def test_both_devices_decode_alike(tmp_path):
    run.train(small_recipe(60, "training.device=cuda"), tmp_path / "run", talk=False)
    texts = ["servus in horto laborat .", "Caecilius est in atrio ."]
    assert regard.load(tmp_path / "run", "cpu").generate(texts) == regard.load(tmp_path / "run", "cuda").generate(texts)


def both_ways(recipe, folder):
    """Losses and gradients of thirty batches of six shapes, computed directly and replayed; and what was recorded."""
    whole = preparation.with_corpus(recipe, folder)
    prepared = preparation.prepare(whole, folder, lambda text: None)
    model = build(configure(recipe.model), *prepared.shapes).cuda()
    ways = [
        Trainer(
            model,
            StoreFeed(prepared.store, prepared.plan, model.writes),
            training,
            folder,
            Group(0, 1, torch.device("cuda")),
            dict,
        )
        for training in (recipe.training.model_copy(update={"capture": capture}) for capture in (False, True))
    ]
    assert [way.replay is None for way in ways] == [True, False]
    pairs = []
    for step in range(30):
        rows, found = prepared.plan.batch(step % 6), []
        for trainer in ways:
            trainer.objective.train()
            loss = trainer.backward(rows, 100, step)
            found.append([loss.float(), *(parameter.grad.clone() for parameter in model.parameters())])
            model.zero_grad(set_to_none=True)
        pairs.append(found)
    return pairs, ways[1].replay.captured


DRY = "training.device=cuda", "model.encoder.dropout=0", "model.decoder.dropout=0"


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["model.decoder.context=input_feeding"],
        ["model.decoder.copy_words=added", "data.tokenizer.size=60"],
        ["model.decoder.copy_words=gated", "training.label_smoothing=0.1"],
    ],
)
def test_a_replayed_step_has_the_gradients_of_a_direct_one(tmp_path, options):
    """Rows and columns that only make shapes recur change nothing; nor does the graph, whichever batch it was recorded with."""
    pairs, captured = both_ways(small_recipe(20, *DRY, *options), tmp_path)
    for found in pairs:
        for direct, replayed in zip(*found, strict=True):
            torch.testing.assert_close(replayed, direct, rtol=1e-3, atol=1e-5)  # other sizes of products, other order of sums
    assert captured.recordings
    assert not captured.refused


def long_text(folder, capture, *changes):
    """A language model of one long text whose state goes on from window to window."""
    folder.mkdir(exist_ok=True)
    values = tasks.recipe("long_texts", tasks.write(folder, "long_texts", tasks.ROWS * 8), updates=24, log_every=1)
    words = [
        "data.batch_tokens=24",
        "training.device=cuda",
        f"training.capture={str(capture).lower()}",
        "model.decoder.cell=lstm",
    ]
    return parse(Recipe, override(values, [*words, *changes]))


def test_windows_are_replayed_as_they_are_computed_and_hand_their_state_on(tmp_path, monkeypatch):
    kept, begin = [], Trainer.__init__

    def remember(self, *given):
        begin(self, *given)
        kept.append(self)

    monkeypatch.setattr(Trainer, "__init__", remember)
    losses = []
    for capture in (False, True):
        run.train(long_text(tmp_path / f"{capture} data", capture), tmp_path / str(capture), talk=False)
        losses.append([row["loss"] for row in read_journal(tmp_path / str(capture) / "journal.jsonl") if "loss" in row])
    direct, replayed = kept
    assert direct.replay is None
    assert replayed.replay.captured.recordings
    assert not replayed.replay.captured.refused
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    found, expected = (one.model.carried[1:] for one in (replayed, direct))  # lane 0 is that of rows which only fill up a batch
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)
    assert expected.abs().sum() > 0


@pytest.mark.parametrize(
    "changes", [[], ["model.decoder.weight_drop=0.3", "model.decoder.locked=true", "model.decoder.dropout=0.2"]]
)
def test_what_goes_on_in_one_process_is_recorded_again(tmp_path, changes):
    """Training, use and training again."""
    recipe = long_text(tmp_path / "data", True, *changes)
    run.train(recipe, tmp_path / "run", talk=False)
    regard.load(tmp_path / "run", "cuda").continue_(["a b"], max_length=4)
    longer = parse(Recipe, override(recipe.model_dump(mode="json"), ["training.updates=48"]))
    run.train(longer, tmp_path / "run", resume=True, talk=False)
    rows = read_journal(tmp_path / "run" / "journal.jsonl")
    assert max(row["step"] for row in rows if "loss" in row) == 48


HEADS = {"attention": {"heads": 2}, "hidden_size": 32, "feedforward_size": 64, "layers": 2, "dropout": 0.0}
TRANSFORMER = {
    "encoder": {"kind": "transformer", **HEADS},
    "decoder": {"kind": "transformer", **HEADS, "cross_attention": {"heads": 2}},
}


@pytest.mark.parametrize("name", ["recurrent", "transformer"])
def test_a_replayed_step_in_16_bits_has_the_gradients_of_a_direct_one(tmp_path, name):
    """Autocast rounds weights where they are used, a replayed step all at once."""
    recipe = small_recipe(20, *DRY, "training.precision=bfloat16")
    recipe = recipe if name == "recurrent" else recipe.model_copy(update={"model": TRANSFORMER})
    pairs, captured = both_ways(recipe, tmp_path)
    for found in pairs:
        whole = torch.cat([gradient.flatten() for gradient in found[0]]).norm()
        for direct, replayed in zip(*found, strict=True):
            assert (direct - replayed).norm() < 0.03 * direct.norm() + 1e-3 * whole
    assert captured.recordings


@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if getattr(cell, "twin", None) is not None])
def test_rounded_weights_scan_as_autocast_rounds_them(name):
    """Of a size that cuDNN computes: matrices come in 16 bits, biases do not."""
    cell = CELLS[name](1024, 1024).cuda()
    leaves = CastWeights(Scanned(cell), torch.bfloat16)
    inputs = torch.randn(4, 6, 1024, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        ours, theirs = leaves(inputs), Scanned(cell)(inputs)
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=0.02, atol=0.02)
    gradients = torch.autograd.grad(ours.float().square().sum(), leaves.tensors)
    expected = torch.autograd.grad(theirs.float().square().sum(), list(cell.parameters()))
    for one, other in zip(gradients, expected, strict=True):
        assert (one.float() - other).norm() < 0.05 * other.norm() + 1e-3


class Scanned(torch.nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, inputs):
        return scan(self.cell, inputs, path="library")[0]


def test_a_step_that_is_not_finite_is_left_out_and_told_later(tmp_path):
    """The optimizer's kernel leaves it out, so nothing waits; which rows it was is known soon after."""
    recipe = small_recipe(20, "training.device=cuda")
    whole = preparation.with_corpus(recipe, tmp_path / "run")
    prepared = preparation.prepare(whole, tmp_path / "run", lambda text: None)
    model = build(configure(recipe.model), *prepared.shapes).cuda()
    group = Group(0, 1, torch.device("cuda"))
    trainer = Trainer(model, StoreFeed(prepared.store, prepared.plan, model.writes), recipe.training, tmp_path, group, dict)
    trainer.journal, trainer.display = None, Display(20, 0, None, False)
    first, plain, seen = next(model.parameters()), trainer.backward, []

    def backward(rows, tokens, step):
        loss = plain(rows, tokens, step)
        if progress.step == 3:
            first.grad.fill_(torch.nan)
        return loss

    trainer.backward, progress = backward, Progress()
    for step in range(1, 6):
        progress.step = step
        before = [parameter.clone() for parameter in model.parameters()]
        trainer.update(progress)
        seen.append(all(map(torch.equal, before, model.parameters())))
    trainer.settle(progress, all_of_them=True)
    assert seen == [False, False, True, False, False]
    assert (progress.skipped, progress.skipped_in_a_row) == (1, 0)
    assert trainer.optimizer.state[first]["step"].item() == 4


def test_gradients_are_clipped_by_the_optimizers_kernel():
    """The first moments of Adam, (1 - β1) g, are those of gradients of norm `clip`, or of those that were shorter
    (without a limit all are)."""
    for clip, length in ((0.5, 0.5), (100.0, 5.0), (float("inf"), 5.0)):
        weight = torch.nn.Parameter(torch.zeros(2, device="cuda"))
        weight.grad = torch.tensor([3.0, 4.0], device="cuda")
        optimizer = torch.optim.AdamW([weight], betas=(0.9, 0.98), fused=True)
        FiniteCheck(optimizer).step(1, np.arange(1), 1, weight.sum(), weight.grad.norm(), clip)
        torch.testing.assert_close(optimizer.state[weight]["exp_avg"].cpu(), 0.1 * length * torch.tensor([0.6, 0.8]))


def test_graphs_of_many_shapes_share_their_memory():
    """As much as the largest needs, not as all together."""
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).cuda()
    captured = Captured(lambda rows: model(rows).square().sum(), model.parameters(), keep=16)
    reserved = []
    for rows in range(8192, 8192 - 16 * 8, -16):
        for _ in range(3):
            captured(torch.randn(rows, 512, device="cuda"))
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    assert len(captured.recordings) == 8
    inputs = 7 * 16 * 2**20  # each graph keeps its own; one set of activations has 8 x 16 MiB, both ways
    assert reserved[-1] < reserved[0] + inputs + 64 * 2**20
