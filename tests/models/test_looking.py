"""Attention that is shown is attention that was used: every recipe, in a small form, against what its computation did."""

import numpy as np
import pytest
import torch
from citizens import BODIES, batch_of, spread
from recipes_by_shape import CHAINS, DESCRIBERS, LABELLERS, TEXTS, WRITERS
from test_recipes import sizes
from tiny import SETTINGS, tiny

from regard.data.batching import Batch, Column
from regard.data.tokenizers import END
from regard.insight.maps import ATTENTION_MAPS
from regard.models import build, configure
from regard.models.looking import all_weights
from regard.nn.attention import Attention, attention
from regard.nn.attention.pairs import Dot
from regard.nn.attention.scopes import LocalPredictive, mask
from regard.nn.attention.selections import Soft
from regard.nn.copying import COPIES
from regard.nn.transformer.experts import Experts
from regard.recipe import built_in, override, read_values

VOCABULARY, LABELS = 40, 4
LENGTHS = {"source": 6, "target": 5}


def shapes(name):
    """What is read and what is written, as `build` takes it."""
    if name in DESCRIBERS:
        from regard.data.fields import Shape

        return Shape("image", (64, 64, int(read_values(name)["data"]["fields"]["source"]["channels"]))), VOCABULARY
    return (VOCABULARY,) if name in TEXTS else (VOCABULARY, LABELS) if name in (*LABELLERS, *CHAINS) else (VOCABULARY,) * 2


def small(name):
    """A recipe's model with few layers and numbers, and weights large enough for attention to choose."""
    values = read_values(name)
    if name in (*WRITERS, *DESCRIBERS):
        values = override(values, sizes(values))
    elif name in TEXTS:
        values = override(values, ["model.decoder.embedding_size=16", "model.decoder.hidden_size=24"])
    elif name in LABELLERS:
        values = override(values, ["model.encoder.embedding_size=24", "model.encoder.input=null"])
    torch.manual_seed(5)
    model = build(configure(values["model"]), *shapes(name)).eval()
    for parameter in model.parameters():
        parameter.data.mul_(1.5)
    return model


def row(model, name):
    """A batch of one row."""
    columns = {side: sentence(length) for side, length in LENGTHS.items() if side in type(model).Config.columns}
    if name in DESCRIBERS:
        columns["source"] = Column(torch.randint(0, 256, (1, *shapes(name)[0].sizes), dtype=torch.uint8))
    if "tags" in type(model).Config.columns:
        columns["tags"] = Column(torch.tensor([[1, 2, 3, 4, 1]]), torch.tensor([5]))
    if "label" in type(model).Config.columns:
        columns["label"] = Column(torch.tensor([2]), times=0)
    if model.copies_words:
        columns["copies"] = Column(torch.tensor([[4, VOCABULARY, VOCABULARY + 1, 5, VOCABULARY, 0]]), size=VOCABULARY + 2)
    return Batch(columns)


def sentence(length, vocabulary=VOCABULARY):
    words = torch.randint(4, vocabulary, (1, length - 1))
    return Column(torch.cat([words, torch.tensor([[END]])], dim=1), torch.tensor([length]))


class Witness:
    """What attentions did while a model computed: what came of them, and how they weighed where that was done step by step."""

    def __init__(self, monkeypatch):
        self.tasks, self.steps = [], []
        attend, bind_mix = attention.attend, attention.bind_mix

        def watched(task, *rest):
            found = attend(task, *rest)
            self.tasks.append((task, found.context))
            return found

        def bound(values, heads):
            read, used = bind_mix(values, heads), []
            self.steps.append(used)
            return lambda weights: used.append(weights) or read(weights)

        monkeypatch.setattr(attention, "attend", watched)
        monkeypatch.setattr(attention, "bind_mix", bound)

    @property
    def stepped(self):
        return [torch.cat(used, dim=2) for used in self.steps if used]


def softmax(task):
    """The weights of one attention in NumPy, where scores are what decides."""
    query, keys = (side.double().numpy() for side in (task.query, task.keys.expand(-1, task.query.shape[1], -1, -1)))
    if isinstance(task.pair, Dot):
        scores = task.pair.scale / task.selection.temperature * query @ keys.swapaxes(-1, -2)
    else:
        vector = task.pair.score_vector.double().detach().numpy()[:, None, None]
        scores = (np.tanh(query[:, :, :, None] + keys[:, :, None]) * vector).sum(-1) / task.selection.temperature
    scores = scores if task.bias is None else scores + task.bias.double().numpy()
    hidden = ~(mask(task.key_range, task.seen) & torch.ones(scores.shape, dtype=torch.bool)).numpy()
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def plain(task):
    near = task.key_range.centre is not None
    return type(task.selection) is Soft and not near and getattr(task.pair, "activation", "tanh") == "tanh"


def blocks(weights, count):
    """Of merged keys: what fell on all places of one."""
    width = -(-weights.shape[-1] // count)
    padded = np.pad(weights, ((0, 0), (0, 0), (0, width * count - weights.shape[-1])))
    return padded.reshape(*weights.shape[:2], count, width).sum(-1)


def explains(weights, task, context):
    """Whether an attention that gave this context can have had these weights."""
    heads, steps, _ = weights.shape
    if (heads, steps) != context.shape[1:3] or weights.shape[-1] < task.keys.shape[2]:
        return False
    merged = blocks(weights, task.keys.shape[2])
    mixed = merged @ task.heads_values[0].double().numpy()
    return np.allclose(mixed, context[0].double().numpy(), rtol=1e-3, atol=1e-4 * float(context.abs().max()))


@pytest.mark.parametrize("name", built_in())
@torch.no_grad()
def test_the_attention_shown_is_the_attention_used(name, monkeypatch):
    model = small(name)
    batch = row(model, name)
    random, witness = torch.get_rng_state(), Witness(monkeypatch)
    before = model.loss(batch).total
    monkeypatch.undo()
    shown = all_weights(model, batch)
    numbers = [one.weights.double().numpy() for one in shown]
    assert all(one.kind in ATTENTION_MAPS for one in shown)
    for task, context in witness.tasks:
        same = [weights for weights in numbers if explains(weights, task, context)]
        assert same, f"nothing shown gives what an attention of {tuple(task.query.shape)} gave"
        if plain(task) and task.keys.shape[2] == same[0].shape[-1]:
            assert any(np.allclose(weights, softmax(task)[0], atol=1e-4) for weights in same)
    for used in witness.stepped:
        used = used[0].double().numpy()
        assert any(one.shape == used.shape and np.allclose(one, used, atol=1e-5) for one in numbers) or used.ndim != 3
    assert bool(witness.tasks or witness.stepped) <= bool(shown)
    assert model.loss(batch).total.equal(before)
    assert torch.get_rng_state().equal(random)


@pytest.mark.parametrize("name", built_in())
@torch.no_grad()
def test_rows_are_distributions(name):
    model = small(name)
    for one in all_weights(model, row(model, name)):
        assert one.weights.ge(0).all()
        sums = one.weights.double().sum(dim=-1)
        scopes = [part.scope for part in model.modules() if isinstance(part, Attention)]
        nothing_yet = one.kind.endswith("recurrence") or any(scope.compresses for scope in scopes)
        near = any(isinstance(scope, LocalPredictive) for scope in scopes)  # weights times a Gaussian
        whole = ((sums - 1).abs() < 1e-4) | ((sums == 0) & nothing_yet) | ((sums < 1) & near)
        assert whole.all(), (one.kind, sums)


@torch.no_grad()
def test_experts_shown_are_those_of_the_gate():
    """G(x) = softmax over the highest scores of x W_g, 0 elsewhere  (Shazeer et al. 2017, eq. 3 and 5)."""
    options = {"experts": {"number": 5, "chosen": 2, "every": 1}, **BODIES["transformer"]}
    model = spread(build(configure({"kind": "classifier", "encoder": options}), 9, LABELS).eval())
    mixtures, read = [one for one in model.modules() if isinstance(one, Experts)], []
    for one in mixtures:
        one.register_forward_pre_hook(lambda module, given: read.append(given[0][0]))
    shown = [one for one in all_weights(model, batch_of("classifier", rows=[0])) if one.kind == "encoder_experts"]
    assert [one.layer for one in shown] == [1, 2]
    for mixture, one, states in zip(mixtures, shown, read[-2:], strict=True):
        scores = (states.double() @ mixture.gate.choose.weight.double().T).numpy()
        kept = scores >= np.sort(scores, axis=1)[:, -2:-1]
        odds = np.exp(scores) * kept
        np.testing.assert_allclose(one.weights[0], odds / odds.sum(1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("way", COPIES)
@torch.no_grad()
def test_copies_shown_are_the_probability_of_words_that_can_only_be_copied(way):
    model = tiny({**SETTINGS["gru-additive-into_cell"], "copy_words": way}, scale=2.0)
    words = torch.tensor([[4, VOCABULARY, VOCABULARY + 1, 5, VOCABULARY, 0]])
    columns = {"source": sentence(6, 9), "target": sentence(5, 9), "copies": Column(words, size=VOCABULARY + 2)}
    (shown,) = [one.weights[0] for one in all_weights(model, Batch(columns)) if one.kind == "copy"]
    chances = model(Batch(columns), model.read_words(Batch(columns)))[0].softmax(-1)
    for word in (VOCABULARY, VOCABULARY + 1):
        torch.testing.assert_close(shown[:, :-1][:, words[0] == word].sum(-1), chances[:, word])
    torch.testing.assert_close(shown[:, :-1].sum(1), 1 - shown[:, -1])


@pytest.mark.parametrize("reverse", [False, True])
@torch.no_grad()
def test_a_tape_shown_makes_the_states_that_follow(reverse):
    """h_t = tanh(A [x_t; c_{t-1}] + b) with c_t = Σ α_ti h_i: by the weights shown, in the order in which words are read."""
    encoder = tiny({"cell": "tanh_attention"}, layers=1, scale=3.0, bidirectional=False, reverse=reverse).encoder
    (words,), (cell,) = sentence(6, 9)[:1], encoder.stack.layers[0].cells
    states = encoder(words, torch.tensor([6])).states[0]
    ((_, layer, weights),) = encoder.attention_weights(words)
    inputs = encoder.embed(words)[0]
    if reverse:
        states, inputs, weights = states.flip(0), inputs.flip(0), weights.flip(1, 2)
    after = torch.tanh(cell.from_input(inputs)[1:, : cell.hidden_size] + cell.from_context(weights[0] @ states)[:-1])
    torch.testing.assert_close(after, states[1:])
    assert layer == 1
    assert not weights[0].triu(1).any()


@pytest.mark.parametrize("cell", ["lstm_tape", "tanh_attention"])
@torch.no_grad()
def test_the_tape_of_a_decoder_begins_with_the_state_it_started_from(cell):
    model = tiny({**SETTINGS[f"{cell}-additive-into_cell"]}, layers=1, scale=2.0)
    batch = Batch({"source": sentence(6, 9), "target": sentence(5, 9)})
    (tape,) = [one.weights[0] for one in all_weights(model, batch) if one.kind == "decoder_recurrence"]
    assert tape.shape == (5, 6)
    assert tape[0, 0] > 0
    assert not tape.triu(1 if cell == "lstm_tape" else 2).any()
