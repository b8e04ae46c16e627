"""Law 8 for recipes of language models and taggers: each learns a little, saves, loads back and says the same."""

import pytest
import torch
from recipes_by_shape import CHAINS, TEXTS

import regard
from regard import run
from regard.corpora import CORPORA, write
from regard.recipe import Recipe, override, parse, read_values
from regard.training.journal import read_journal

SMALL = ["training.updates=30", "training.validate_every=15", "training.save_every=15", "training.log_every=10",
         "training.warmup=3", "training.learning_rate=0.01", "training.average=1", "training.patience=null",
         "training.threads=1"]  # fmt: skip
SIZES = ["model.decoder.embedding_size=16", "model.decoder.hidden_size=24"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def trained(name, device, folder):
    """On a little of its own corpus; one that has none reads a generated text, with blank lines in it."""
    values, changes = read_values(name), [*SMALL, *(SIZES if name in TEXTS else []), f"training.device={device}"]
    if "corpus" in values["data"]:
        changes.append("data.corpus.size=200")
    else:
        text = write(CORPORA["latin"], folder, size=200, joint=True)["train"]["target"]
        text.write_text(text.read_text().replace(".\n", ".\n\n"))
        changes += [f"data.train.text={text}", f"data.valid.text={text}", "data.batch_tokens=512"]
    changes += ["training.precision=float32"] if device == "cpu" else []
    run.train(parse(Recipe, override(values, changes)), folder / "run", talk=False)
    return regard.load(folder / "run", device), regard.load(folder / "run" / "model", device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*TEXTS, *CHAINS])
def test_a_recipe_learns_saves_loads_and_says_the_same(name, device, tmp_path):
    model, again = trained(name, device, tmp_path)
    losses = [row["loss"] for row in read_journal(tmp_path / "run" / "journal.jsonl") if "loss" in row]
    assert losses[-1] < losses[0]
    if name in CHAINS:
        for one, other in zip(model.distributions(["a b c d"]), again.distributions(["a b c d"]), strict=True):
            torch.testing.assert_close(one, other)
        return
    assert [one.log_prob for one in model.score(["a b", "c"])] == [one.log_prob for one in again.score(["a b", "c"])]
    assert [one.tokens for one in model.continue_("a", 2, max_length=9)] == [
        one.tokens for one in again.continue_("a", 2, max_length=9)
    ]


def test_the_language_model_of_words_keeps_its_budget():
    """WikiText-2 has 33,278 words, <eos> among them."""
    with torch.device("meta"):
        model = regard.models.build(regard.models.configure(read_values("merity2018")["model"]), 33_282)
    assert sum(parameter.numel() for parameter in model.parameters()) <= 24_000_000
