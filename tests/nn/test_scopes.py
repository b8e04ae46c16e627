"""What each scope lets a query see, against loops over all places; the convolution of `compressed` against PyTorch's."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from regard.nn.attention import SCOPES, Attention
from regard.nn.attention.scopes import ScopeQueries, gaussian, mask

LENGTHS = [7, 3, 1, 0]
BATCH, HEADS, TARGET, SOURCE, SIZE = len(LENGTHS), 2, 9, 7, 4
WINDOWS = (1, 2, 3)

# place of the query, place of the key, length of the source, window, where the step before looked, centre -> seen
PLACES = {
    "global": lambda i, j, length, window, before, centre: True,
    "causal": lambda i, j, length, window, before, centre: j <= i,
    "local_m": lambda i, j, length, window, before, centre: abs(j - min(i, length - 1)) <= window,
    "local_p": lambda i, j, length, window, before, centre: abs(j - centre) <= window,
    "blocks": lambda i, j, length, window, before, centre: j // window == min(i, length - 1) // window,
    "compressed": lambda i, j, length, window, before, centre: True,
    "monotonic": lambda i, j, length, window, before, centre: j >= before,
}


def in_the_past(name, i, j, window):
    return j <= i if name != "compressed" else (j // window + 1) * window - 1 <= i  # the last of j's block


def seen_places(name, lengths, heads, target, source, window, causal=False, before=None, centre=None):
    """Which places of the memory each query sees: [batch heads target source], by a loop."""
    seen = np.zeros((len(lengths), heads, target, source), dtype=bool)
    for batch, head, i, j in np.ndindex(*seen.shape):
        last = 0 if before is None else before[batch, head, i]
        around = 0.0 if centre is None else centre[batch, head, i]
        near = PLACES[name](i, j, lengths[batch], window, last, around)
        past = not causal or in_the_past(name, i, j, window)
        seen[batch, head, i, j] = j < lengths[batch] and near and past
    return seen


def predicted(scope, queries, known):
    """p_t = S σ(v · tanh(W q_t)): [batch heads target] (Luong et al. 2015, eq. 9)."""
    inner = np.tanh(queries.detach().numpy() @ scope.project.weight.detach().numpy().T)
    share = 1 / (1 + np.exp(-inner @ scope.predict.weight.detach().numpy().T))
    return (known[..., None] * share).swapaxes(1, 2)


def test_every_scope_has_an_oracle():
    assert PLACES.keys() == SCOPES.keys()


def built(name, window, causal, heads=HEADS):
    scope = SCOPES[name](SIZE, SIZE, heads, window, causal).double()
    for parameter in scope.parameters():
        parameter.data.normal_()
    return scope


def some_queries(batch=BATCH, heads=HEADS, target=TARGET, source=SOURCE):
    places = torch.arange(target).expand(batch, -1)
    return ScopeQueries(torch.randn(batch, target, SIZE).double(), places, torch.randint(source, (batch, heads, target)))


def visible_of(lengths, source):
    return torch.arange(source) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SCOPES)
def test_a_scope_shows_what_its_rule_says(name, causal):
    visible, asked = visible_of(LENGTHS, SOURCE), some_queries()
    for window in WINDOWS:
        scope = built(name, window, causal)
        key_range = scope.key_range(asked, torch.tensor(LENGTHS))
        _, counts = scope.compress(torch.zeros(BATCH, SOURCE, SIZE).double(), visible)
        shown = mask(key_range, counts).expand(BATCH, HEADS, TARGET, -1)
        ours = scope.expand(shown.double(), visible) > 0
        known = asked.places.numpy() + 1 if causal else np.array(LENGTHS)[:, None]
        centre = predicted(scope, asked.queries, known) if name == "local_p" else None
        rule = name, LENGTHS, HEADS, TARGET, SOURCE, window, causal or name == "causal", asked.reached.numpy(), centre
        np.testing.assert_array_equal(ours.numpy(), seen_places(*rule), f"window {window}")


@pytest.mark.parametrize("window", WINDOWS)
def test_predictive_attention_weighs_by_a_gaussian(window):
    scope, asked = built("local_p", window, False), some_queries()
    key_range = scope.key_range(asked, torch.tensor(LENGTHS))
    centre = predicted(scope, asked.queries, np.array(LENGTHS)[:, None])
    np.testing.assert_allclose(key_range.centre.detach().numpy(), centre, rtol=1e-12)
    near = gaussian(key_range, SOURCE).detach().numpy()
    for batch, head, i, j in np.ndindex(*near.shape):
        expected = np.exp(-((j - centre[batch, head, i]) ** 2) / (2 * (window / 2) ** 2))
        np.testing.assert_allclose(near[batch, head, i, j], expected, rtol=1e-9)


def test_no_other_scope_has_a_gaussian():
    reaches = {name: built(name, 2, False).key_range(some_queries(), torch.tensor(LENGTHS)) for name in SCOPES}
    assert [name for name, key_range in reaches.items() if gaussian(key_range, SOURCE) is not None] == ["local_p"]


def test_bfloat16_predicts_places_beyond_256():
    """It has 8 bits: 257 would be 256, and every second place far out would get its neighbour's weight."""
    scope, length = built("local_p", 4, False, heads=1).float(), torch.tensor([600])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        key_range = scope.key_range(
            ScopeQueries(torch.full((1, 1, SIZE), 0.01), torch.zeros(1, 1, dtype=torch.long), None), length
        )
        near = gaussian(key_range, 600)[0, 0, 0]
    place = torch.arange(600).double()
    expected = torch.exp(-((place - key_range.centre.double()) ** 2) / (2 * 2.0**2))[0, 0]
    assert key_range.centre.item() > 256
    torch.testing.assert_close(near.double(), expected, rtol=1e-3, atol=1e-6)  # float32 of places up to 600


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("source", [1, 6, 7])
def test_compression_is_a_strided_convolution(window, source):
    scope, memory = built("compressed", window, False), torch.randn(BATCH, source, SIZE).double()
    visible = visible_of([min(length, source) for length in LENGTHS], source)
    ours, counts = scope.compress(memory, visible)
    clean = functional.pad((memory * visible[..., None]).mT, (0, -source % window))
    kernel = scope.squeeze.weight.view(SIZE, window, SIZE).mT
    torch.testing.assert_close(ours.mT, functional.conv1d(clean, kernel, scope.squeeze.bias, stride=window))
    blocks = [any(row[at : at + window]) for row in visible.tolist() for at in range(0, source, window)]
    assert counts.flatten().tolist() == blocks


def test_padding_reaches_no_compressed_memory():
    scope, memory, visible = (
        built("compressed", 3, False),
        torch.randn(BATCH, SOURCE, SIZE).double(),
        visible_of(LENGTHS, SOURCE),
    )
    noisy = torch.where(visible[..., None], memory, 99.0)
    assert scope.compress(noisy, visible)[0].equal(scope.compress(memory, visible)[0])


@pytest.mark.parametrize("name", SCOPES)
def test_weights_are_told_of_the_memory_as_it_was(name):
    """Only `compressed` has to share weights out: alike among those of a block that are there."""
    scope, visible = built(name, 3, False), visible_of(LENGTHS, SOURCE)
    _, counts = scope.compress(torch.zeros(BATCH, SOURCE, SIZE).double(), visible)
    weights = torch.rand(BATCH, HEADS, TARGET, counts.shape[1]).double() * counts[:, None, None]
    told = scope.expand(weights, visible)
    if name != "compressed":
        assert told.equal(weights)
        return
    for batch, head, i, j in np.ndindex(*told.shape):
        block = range(j // 3 * 3, min(j // 3 * 3 + 3, SOURCE))
        there = sum(place < LENGTHS[batch] for place in block)
        expected = weights[batch, head, i, j // 3].item() / there if j < LENGTHS[batch] else 0.0
        assert told[batch, head, i, j].item() == pytest.approx(expected)


@pytest.mark.parametrize("name", SCOPES)
def test_nothing_of_the_future_reaches_a_causal_query(name):
    """What is read of a sequence does not change when the sequence goes on: neither what comes nor how much of it."""
    for window in WINDOWS:
        attention = Attention(SIZE, SIZE, score="projected", heads=HEADS, scope=name, window=window, causal=True).double()
        whole = torch.randn(2, SOURCE, SIZE).double()
        everything = attention(whole, attention.prepare(whole)).context
        for known in (1, 4, 6):
            part = whole[:, :known]
            torch.testing.assert_close(attention(part, attention.prepare(part)).context, everything[:, :known])
