"""Training that begins with how frequent words are: what is counted, who is refused, and what becomes of the states."""

import json
from collections import Counter
from math import log
from random import Random

import pytest
import torch

import regard
from regard import run
from regard.errors import UserError
from regard.nn.attention import Attention
from regard.recipe import Recipe, override, parse
from regard.run_directory import HELD_OUT

LINES = ["b a", "b", "c b a", "b b"]
SIZES = {"embedding_size": 4, "hidden_size": 6}


def recipe(directory, model, *changes, lines=LINES, train=("source", "target")):
    for name in train:
        (directory / name).write_text("".join(f"{line}\n" for line in lines))
    files = {name: str(directory / name) for name in train if name != "tags"}
    files |= {"columns": {"tags": str(directory / "tags")}} if "tags" in train else {}
    values = {
        "data": {"train": files, "tokenizer": {"kind": "word"}, "held_out": 1},
        "model": model,
        "training": {"updates": 1, "learning_rate": 1e-9, "frequencies": True, "validate_every": 100},
    }
    return parse(Recipe, override(values, list(changes)))


TRANSLATES = {"encoder": SIZES, "decoder": SIZES}
TRANSFORMER = {"kind": "transformer", "hidden_size": 8}


@pytest.mark.parametrize(
    ("model", "train"),
    [
        (TRANSLATES, ("source", "target")),
        ({"encoder": SIZES, "decoder": {**SIZES, "tied": True, "copy_words": "added"}}, ("source", "target")),
        ({"encoder": TRANSFORMER, "decoder": {**TRANSFORMER, "output_bias": True}}, ("source", "target")),
        ({"kind": "language_model", "decoder": SIZES}, ("target",)),
        ({"kind": "language_model", "decoder": SIZES, "window": 3}, ("target",)),
    ],
    ids=["translates", "copies", "transformer", "continues", "reads_on"],
)
def test_the_output_layer_begins_with_log_p_of_the_rows_that_are_trained_on(model, train, tmp_path):
    run.train(recipe(tmp_path, model, train=train), tmp_path / "run", talk=False)
    trained = regard.load(tmp_path / "run")
    (aside,) = (json.loads(line) for line in (tmp_path / "run" / HELD_OUT).read_text().splitlines())
    rows = list(LINES)
    rows.remove(aside["target"])
    tokenizer = trained.fields["target"].tokenizer
    counts = Counter(word for row in rows for word in row.split())
    total, size = sum(counts.values()) + len(rows), len(tokenizer)
    bias = trained.model.decoder.output.bias.detach()
    for word in "abc":
        (token,) = tokenizer.encode([word])[0]
        assert float(bias[token]) == pytest.approx(log((counts[word] + 1) / (total + size)), abs=1e-5)
    assert float(bias.exp().sum()) == pytest.approx(1, abs=1e-5)


def test_a_run_that_goes_on_does_not_begin_again(tmp_path, capsys):
    changes = ["training.save_every=1", "training.frequencies=true"]
    for updates, resume in ((1, False), (2, True)):
        made = recipe(tmp_path, TRANSLATES, *changes, f"training.updates={updates}")
        run.train(made, tmp_path / "run", resume=resume)
        told = capsys.readouterr()
        assert ("begins with how frequent its" in told.out + told.err) == (not resume)


@pytest.mark.parametrize(
    "model",
    [
        {"kind": "tagger", "encoder": SIZES},
        {"encoder": TRANSFORMER, "decoder": TRANSFORMER},
    ],
    ids=["no words", "no bias"],
)
def test_a_model_without_a_bias_for_words_is_refused_before_it_is_trained(model, tmp_path):
    train = ("source", "tags" if "kind" in model else "target")
    with pytest.raises(UserError, match=r"training\.frequencies: the model has no layer over words with a bias"):
        run.train(recipe(tmp_path, model, train=train), tmp_path / "run", talk=False)


def test_states_of_the_decoder_do_not_all_become_one(tmp_path, monkeypatch):
    """Words as frequent as words are (Zipf), said again: |mean of s|² / mean of |s|² of the states that ask."""
    asked, read = [], Attention.read
    monkeypatch.setattr(
        Attention, "read", lambda self, queries, query, *rest: asked.append(query) or read(self, queries, query, *rest)
    )
    random, words = Random("zipf"), [f"w{rank}" for rank in range(1, 121)]
    rows = [" ".join(random.choices(words, [1 / rank for rank in range(1, 121)], k=6)) for _ in range(400)]
    sizes = {"embedding_size": 24, "hidden_size": 48}

    def constant(frequencies):
        changes = ["training.updates=60", "training.learning_rate=0.01", "training.warmup=10", "data.batch_tokens=512"]
        name = f"run-{frequencies}"
        changes.append(f"training.frequencies={frequencies}".lower())
        made = recipe(tmp_path, {"encoder": sizes, "decoder": {**sizes, "context": "after_cell"}}, *changes, lines=rows)
        run.train(made, tmp_path / name, talk=False)
        asked.clear()
        regard.load(tmp_path / name).align([(row, row) for row in rows[:40]])
        queries = torch.cat([query.flatten(0, 1) for query in asked])
        return float(queries.mean(dim=0).square().sum() / queries.square().sum(dim=1).mean())

    assert constant(False) > 0.7
    assert constant(True) < 0.55


def test_weights_that_know_them_already_are_not_begun_with(tmp_path):
    """They would be read over the bias, and nobody told."""
    run.train(recipe(tmp_path, TRANSLATES), tmp_path / "run", talk=False)
    made = recipe(tmp_path, TRANSLATES, f"training.start_from={tmp_path / 'run'}")
    with pytest.raises(UserError, match=r"training\.frequencies: the weights of training\.start_from know them"):
        run.train(made, tmp_path / "again", talk=False)
