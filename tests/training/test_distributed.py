"""Two processes and one give the same losses; only the first writes."""

import subprocess
import sys

import pytest
from small import small_recipe

from regard import run
from regard.corpora import CORPORA
from regard.corpora.latin import LATIN
from regard.recipe import to_yaml
from regard.training.journal import read_journal

CHANGES = ("model.encoder.dropout=0", "model.decoder.dropout=0", "training.log_every=1", "training.validate_every=4")


def losses(directory):
    rows = read_journal(directory / "journal.jsonl")
    return [row["loss"] for row in rows if "loss" in row], [row["valid_loss"] for row in rows if "valid_loss" in row]


@pytest.mark.slow  # test_two_ranks.py compares gradients of one rank and two
def test_two_ranks_and_one_rank_give_the_same_losses(tmp_path, monkeypatch):
    monkeypatch.setitem(CORPORA, "latin", LATIN)  # as other processes know it
    recipe = tmp_path / "small.yaml"
    recipe.write_text(to_yaml(small_recipe(8, *CHANGES)))
    words = ["train", str(recipe), "--quiet", "-r"]  # torchrun itself takes words that begin with --run
    run.train(small_recipe(8, *CHANGES), tmp_path / "one", talk=False)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "regard"]
    subprocess.run([*torchrun, *words, str(tmp_path / "two")], check=True, timeout=200)
    for one, two in zip(losses(tmp_path / "one"), losses(tmp_path / "two"), strict=True):
        assert len(one) == len(two) > 1
        assert two == pytest.approx(one, abs=1e-5)
    assert (tmp_path / "two" / "model" / "config.json").exists()
    assert len(list((tmp_path / "two" / "events").iterdir())) == 1
