"""Self-attention against loops over all pairs, with every scope and score; growing sequences against whole ones."""

import numpy as np
import pytest
import torch
from test_attention import EQUATIONS, LONGEST, QUERY, SIZE, array

from regard.errors import UserError
from regard.nn.attention import SCOPES, SCORES, Attention, QueryPositions, SelfAttention, StepPosition

TIME, HEADS = 7, 2
LENGTHS = torch.tensor([7, 3, 1])
KINDS = [name for name, scope in SCOPES.items() if not scope.moves]


def built(score="projected", scope="global", causal=False, window=2):
    options = {"score": score, "size": SIZE, "heads": HEADS, "values": QUERY, "longest": LONGEST}
    attention = Attention(QUERY, QUERY, scope=scope, window=window, causal=causal, **options)
    return SelfAttention(attention).double().eval()


def some(time=TIME):
    return torch.randn(len(LENGTHS), time, QUERY).double()


def stretches(attention, row):
    """What there is to look at in a row of states: (vector, its first place, its last)."""
    scope, width = attention.scope, attention.scope.window
    if not scope.compresses:
        return [(state, j, j) for j, state in enumerate(row)]
    padded = np.concatenate([row, np.zeros((-len(row) % width, QUERY))])
    blocks = padded.reshape(-1, width * QUERY) @ array(scope.squeeze.weight).T + array(scope.squeeze.bias)
    return [(block, number * width, (number + 1) * width - 1) for number, block in enumerate(blocks)]


def centre(attention, query, head, known):
    scope = attention.scope
    inner = array(scope.predict.weight)[head] @ np.tanh(array(scope.project.weight) @ query)
    return known / (1 + np.exp(-inner))


def sees(name, window, i, j, around):
    rules = {
        "local_m": abs(j - i) <= window,
        "local_p": around is not None and abs(j - around) <= window,
        "blocks": j // window == i // window,
    }
    return rules.get(name, True)


def one_read(attention, name, score, row, i, prefix):
    """What query i of a row reads: all heads side by side."""
    causal, window, query = attention.scope.causal, attention.scope.window, row[i]
    latest = max(i, prefix - 1)
    found = []
    for head in range(HEADS):
        around = centre(attention, query, head, latest + 1 if causal else len(row)) if name == "local_p" else None
        kept = [
            (number, vector, first)
            for number, (vector, first, last) in enumerate(stretches(attention, row))
            if (not causal or last <= latest) and sees(name, window, i, first, around)
        ]
        value = np.split(array(attention.project_value.weight), HEADS)[head]
        if not kept:
            found.append(np.zeros(len(value)))
            continue
        scores = np.array([EQUATIONS[score](attention.score, query, vector, number, head) for number, vector, _ in kept])
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        if around is not None:
            weights = weights * np.exp([-((place - around) ** 2) / (2 * (window / 2) ** 2) for _, _, place in kept])
        found.append(sum(weight * (value @ vector) for weight, (_, vector, _) in zip(weights, kept, strict=True)))
    return np.concatenate(found)


def follows(own, name, score, states, lengths, prefix=None, look=False):
    visible = None if lengths is None else torch.arange(states.shape[1]) < lengths[:, None]
    ours = array(own(states, visible, look, QueryPositions(prefix=prefix)).context)
    for number, row in enumerate(array(states)):
        whole = row if lengths is None else row[: lengths[number]]
        for i in range(len(whole)):
            known = 0 if prefix is None else int(prefix[number])
            expected = one_read(own.attention, name, score, whole, i, known)
            np.testing.assert_allclose(ours[number, i], expected, rtol=1e-8, atol=1e-10, err_msg=f"row {number}, query {i}")


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("window", [2, 20])
@pytest.mark.parametrize("name", KINDS)
def test_every_scope_is_its_rule(name, window, look):
    """Both ways with padding; causal; causal but for a prefix that is read both ways. Windows within and beyond."""
    follows(built(scope=name, window=window), name, "projected", some(), LENGTHS, look=look)
    own = built(scope=name, window=window, causal=True)
    follows(own, name, "projected", some(), None, look=look)
    follows(own, name, "projected", some(), None, torch.tensor([5, 2, 0]), look)
    follows(own, name, "projected", some(1), None, look=look)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("score", SCORES)
def test_every_score_is_its_equation(score, causal):
    follows(built(score, causal=causal), "global", score, some(), None if causal else LENGTHS)
    follows(built(score, "compressed", causal), "compressed", score, some(), None if causal else LENGTHS)


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_no_place_of_the_future_reaches_the_past(name, look):
    """Each place is changed in turn: what came before it stays, to the last bit. Compression has no way round."""
    own, states = built(scope=name, causal=True, window=3), some()
    before = own(states, None, look).context
    for place in range(TIME):
        changed = states.clone()
        changed[:, place:] += 10 * torch.randn(len(LENGTHS), TIME - place, QUERY).double()
        after = own(changed, None, look).context
        assert before[:, :place].equal(after[:, :place])
        if name != "compressed" or place >= 5:  # before, there is one whole block at most, and no choice
            assert not before[:, place].equal(after[:, place])


@pytest.mark.parametrize("name", KINDS)
def test_a_prefix_is_read_both_ways_and_no_further(name):
    own, states, prefix = built(scope=name, causal=True, window=4), some(), torch.tensor([4, 4, 4])
    before = own(states, None, where=QueryPositions(prefix=prefix)).context
    changed = states.clone()
    changed[:, 3] += 10
    assert not torch.isclose(before[:, 0], own(changed, None, where=QueryPositions(prefix=prefix)).context[:, 0]).all()
    changed = states.clone()
    changed[:, 4:] += 10
    assert before[:, :4].equal(own(changed, None, where=QueryPositions(prefix=prefix)).context[:, :4])


def grown(own, begun, lengths, more, prefix=None):
    """`begun` is read at once up to each row's length, `more` step by step; what the steps read and where they looked."""
    visible = torch.arange(begun.shape[1]) < lengths[:, None]
    cache = own.keep(begun, own.attention.prepare(begun, visible), lengths)
    reads = []
    for time, state in enumerate(more.unbind(dim=1)):
        where = QueryPositions((lengths + time)[:, None], prefix)
        moment = StepPosition(where, begun.shape[1] + time + 1, ragged=True, return_weights=True)
        one, cache = own.step(state[:, None], cache, moment)
        reads.append(one)
    return reads


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("window", [3, 20])
@pytest.mark.parametrize("name", KINDS)
def test_ragged_rows_grow_as_if_each_were_alone(name, window, two_way):
    """Rows of 4, 1 and 3 states that are read at once, and five steps of each."""
    own, lengths = built(scope=name, causal=True, window=window), torch.tensor([4, 1, 3])
    begun, more = some(4), some(5)
    reads = grown(own, begun, lengths, more, lengths if two_way else None)
    for row, length in enumerate(lengths.tolist()):
        whole = torch.cat([begun[row, :length], more[row]])[None]
        alone = own(whole, None, True, QueryPositions(prefix=lengths[row : row + 1] if two_way else None))
        for time, one in enumerate(reads):
            torch.testing.assert_close(one.context[row, 0], alone.context[0, length + time])
            weights = alone.weights[0, :, length + time]
            torch.testing.assert_close(one.weights[row, :, 0, : length + time + 1], weights[:, : length + time + 1])


@pytest.mark.parametrize("score", SCORES)
def test_every_score_steps_from_nothing(score):
    own, states = built(score, causal=True), some()
    cache, expected = own.open(states[:, :0]), own(states, None).context
    for time, state in enumerate(states.unbind(dim=1)):
        moment = StepPosition(QueryPositions(torch.full((len(states), 1), time)), time + 1)
        one, cache = own.step(state[:, None], cache, moment)
        torch.testing.assert_close(one.context[:, 0], expected[:, time])


@pytest.mark.parametrize(("scope", "known"), [("global", LONGEST), ("compressed", 2 * LONGEST)])
def test_a_score_of_places_ends_where_it_knows_no_more(scope, known):
    """Whole or step by step; where two states are made one, twice as late."""
    own, states = built("location", scope, causal=True), some(known + 1)
    own(states[:, :known], None)
    grown(own, states[:, : known - 1], torch.tensor([known - 1] * 3), states[:, known - 1 : known])
    with pytest.raises(UserError, match=f"knows {LONGEST} places"):
        own(states, None)
    with pytest.raises(UserError, match=f"knows {LONGEST} places"):
        grown(own, states[:, :known], torch.tensor([known] * 3), states[:, known:])


def test_a_row_of_padding_reads_nothing():
    for name in KINDS:
        read = built(scope=name)(some(), torch.zeros(3, TIME, dtype=torch.bool), return_weights=True)
        assert read.context.eq(0).all()
        assert read.weights.eq(0).all()


@pytest.mark.parametrize("bias", [False, True])
def test_one_product_for_all_three_is_three_products(bias):
    """Values and gradients, with biases where they are asked for."""
    own = SelfAttention(Attention(QUERY, QUERY, score="projected", heads=HEADS, values=QUERY, bias=bias)).double()
    score, states = own.attention.score, some().requires_grad_()
    layers = score.project_query, score.project_key, own.attention.project_value
    for layer in layers:
        assert (layer.bias is not None) is bias
    projected = own.project(states, None)
    ours = projected.queries, projected.prepared.keys, projected.prepared.values
    plain = tuple(
        torch.nn.functional.linear(states, layer.weight, layer.bias).unflatten(-1, (HEADS, -1)).mT for layer in layers
    )
    leaves = [states, *own.parameters()]
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other.permute(0, 3, 1, 2))
    sides = (sum(number * part.square().sum() for number, part in enumerate(side, 1)) for side in (ours, plain))
    for one, other in zip(*(torch.autograd.grad(side, leaves) for side in sides), strict=True):
        torch.testing.assert_close(one, other)
