"""Two processes: sums over a save, over a resume, over uneven batches; a signal to one stops both."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import rank_kills
import ranks
from small import small_recipe
from two_ranks import train

from regard import run
from regard.recipe import to_yaml
from regard.training.journal import read_journal

CHANGES = (
    "model.encoder.dropout=0", "model.decoder.dropout=0", "training.schedule=constant", "training.warmup=0",
    "training.validate_every=100",
)  # fmt: skip


def two_ranks(directory, recipe, alone=None):
    Path(f"{directory}.yaml").write_text(to_yaml(recipe))
    assert ranks.two(lambda rank: train(directory, rank, alone)) == [0, 0]


def losses(directory):
    rows = [row for row in read_journal(directory / "journal.jsonl") if "loss" in row]
    return {(row["step"], name): row[name] for row in rows for name in row if name not in ("step", "lr", "tokens")}


def test_a_save_between_two_rows_changes_nothing(tmp_path):
    """What the other process has summed is handed to the first at a save, and counted once."""
    parts = ("training.penalties.coverage=1", "training.penalties.doubly_stochastic=1")
    recipe = small_recipe(6, *CHANGES, *parts, "training.log_every=3", "training.save_every=2")
    run.train(recipe, tmp_path / "one", talk=False)
    two_ranks(tmp_path / "two", recipe)
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)


def test_both_ranks_see_the_gradient_of_the_whole_batch(tmp_path):
    """Adam hides a gradient's size from the weights; its moments tell."""
    from safetensors.torch import load_file

    recipe = small_recipe(2, *CHANGES, "training.clip=1000000")
    run.train(recipe, tmp_path / "one", talk=False)
    two_ranks(tmp_path / "two", recipe)
    ours, theirs = (
        load_file(tmp_path / name / "checkpoints" / "step-000000002" / "optimizer.safetensors") for name in ("two", "one")
    )
    for name, moment in theirs.items():
        if name.endswith("/exp_avg"):
            assert (ours[name] - moment).norm() <= 0.01 * moment.norm() + 1e-7, name


@pytest.mark.slow
def test_a_resume_counts_the_window_once(tmp_path):
    two_ranks(tmp_path / "calm", small_recipe(6, *CHANGES, "training.log_every=6"))
    two_ranks(tmp_path / "cut", small_recipe(4, *CHANGES, "training.log_every=6"))
    two_ranks(tmp_path / "cut", small_recipe(6, *CHANGES, "training.log_every=6"))
    assert losses(tmp_path / "cut") == pytest.approx(losses(tmp_path / "calm"), abs=1e-9)


@pytest.mark.parametrize("rank", [1, 0])
def test_a_signal_to_one_rank_stops_both_and_makes_no_model(tmp_path, rank):
    two_ranks(tmp_path / "run", small_recipe(6, *CHANGES), (rank, 3))
    assert max((tmp_path / "run" / "checkpoints").glob("step-*")).name == "step-000000003"
    assert not (tmp_path / "run" / "model").exists()
    assert (tmp_path / "run.0").read_text() == "15"


@pytest.mark.slow
def test_kills_of_a_rank_change_nothing(tmp_path):
    """torchrun starts both again; they join, go on, and end with the same bytes."""
    words = [sys.executable, str(Path(rank_kills.__file__)), "--kills", "4", "--seed", "3", "--updates", "60"]
    row = json.loads(subprocess.run(words, check=True, capture_output=True, text=True, timeout=1200).stdout)
    assert (row["kills"], row["hangs"], row["failed_jobs"], row["equal_bytes"]) == (4, 0, 0, True)
