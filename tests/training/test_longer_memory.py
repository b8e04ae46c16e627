"""A memory that goes on after the source's last word (ByteNet's): copying, penalties and rewards still know the words."""

import math

import pytest
import torch
from kinds import small
from small import small_recipe
from test_penalties import EXAMPLES, LENGTHS, LINKS, SOURCE, WORDS, in_a_loop
from torch.nn import functional

from regard import run
from regard.data.batching import reading
from regard.models.penalties import PENALTIES
from regard.nn.copying import COPIES
from regard.training.journal import read_journal
from regard.training.objective import Objective

ENCODER = {"kind": "bytenet", "embedding_size": 5, "hidden_size": 4, "dilations": [1, 2], "sets": 1, "stretch": 1.6, "extra": 2}
DECODERS = {
    "recurrent": {"kind": "recurrent", "embedding_size": 5, "hidden_size": 6, "attention": {"score": "general"}},
    "transformer": {"kind": "transformer", "hidden_size": 8, "feedforward_size": 12, "layers": 1, "attention": {"heads": 2},
                    "cross_attention": {"heads": 2}},
}  # fmt: skip
ENDS = [math.ceil(1.6 * length + 2) for length in LENGTHS.tolist()]
COPIED = torch.tensor([[10, 4, 0], [6, 0, 0]]), 11  # the model knows 9 words; end marks offer nothing


def built(name, **options):
    return small({"encoder": ENCODER, "decoder": {**DECODERS[name], **options}})


@torch.no_grad()
@pytest.mark.parametrize("name", DECODERS)
def test_only_places_of_words_are_copied(name):
    """p(w) ∝ e^(u_w) + Σ_{j: x_j = w} e^(o · tanh(W h_j)) over the words j of the source, whole or step by step."""
    model = built(name, copy_words="added")
    batch = reading(SOURCE, LENGTHS, *COPIED)
    memory = model.encode(batch)
    assert memory.visible.sum(1).tolist() == ENDS
    steps = model.teacher_forced(batch, WORDS)
    found = model.decoder.logits(steps)
    outputs, keys = model.decoder.finished(steps.outputs), torch.tanh(model.decoder.copy_words.project_key(memory.states))
    for row, i in ((row, i) for row in range(2) for i in range(3)):
        total = [0.0] * COPIED[1]
        for word, logit in enumerate(model.decoder.output(outputs[row, i]).tolist()):
            total[word] += math.exp(logit)
        for j, word in enumerate(COPIED[0][row].tolist()):
            total[word] += math.exp(outputs[row, i] @ keys[row, j]) if word else 0.0
        torch.testing.assert_close(found[row, i].exp(), torch.tensor(total), rtol=1e-4, atol=1e-5)
    step, state = model.start(memory)
    for i, tokens in enumerate(WORDS.unbind(1)):
        logits, _, state = step(tokens, state)
        torch.testing.assert_close(logits, found[:, i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("name", DECODERS)
def test_penalties_are_of_all_places_and_links_of_words(name, penalty):
    model = built(name)
    weights = model.teacher_forced(EXAMPLES, WORDS, return_weights=True).weights
    links = functional.pad(LINKS, (0, weights.shape[-1] - LINKS.shape[-1]))
    told = Objective(model, 0.0, penalties={penalty: 0.3})(EXAMPLES).parts
    expected = 0.3 * in_a_loop(penalty, weights, torch.tensor(ENDS), links)
    torch.testing.assert_close(told[penalty].double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("risk", [[], ["training.risk.candidates=2", "decoding.max_length=6"]])
def test_a_run_with_all_of_them(tmp_path, risk):
    changes = [f"training.penalties.{name}=0.5" for name in PENALTIES] + [f"model.decoder.copy_words={next(iter(COPIES))}"]
    recipe = small_recipe(1, "data.corpus.size=40", "training.log_every=1", *changes, *risk)
    recipe.model["encoder"] = {"kind": "bytenet", "embedding_size": 8, "hidden_size": 6, "dilations": [1], "sets": 1}
    run.train(recipe, tmp_path / "run", talk=False)
    assert PENALTIES.keys() <= read_journal(tmp_path / "run" / "journal.jsonl")[0].keys()
