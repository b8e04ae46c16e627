"""Every kind of positions against its paper's formula, in plain NumPy float64."""

import math

import numpy as np
import pytest
import torch

from regard.errors import UserError
from regard.nn.attention import Attention, QueryPositions, SelfAttention
from regard.nn.positions import JOINS, POSITIONS, bucket

SIZE, HEADS, PART, TIME = 8, 2, 4, 7
PLACES = torch.arange(TIME)[None]


def built(name, **options):
    return POSITIONS[name](SIZE, HEADS, PART, longest=TIME, distance=3, **options).double()


def vectors(time=TIME):
    return torch.randn(3, HEADS, time, PART).double()


def sinusoid(places, size):
    """p_2i = sin(t / 10000^(2i/d)), p_2i+1 = cos(t / 10000^(2i/d))"""
    found = np.zeros((len(places), size))
    for row, place in enumerate(places):
        for column in range(size):
            angle = place / 10000 ** ((column - column % 2) / size)
            found[row, column] = math.cos(angle) if column % 2 else math.sin(angle)
    return found


ABSOLUTE = {
    "sinusoid": lambda positions: sinusoid(range(TIME), SIZE),
    "sinusoid_halves": lambda positions: sinusoid(range(TIME), SIZE)[:, [*range(0, SIZE, 2), *range(1, SIZE, 2)]],
    "learned": lambda positions: positions.vectors.detach().numpy(),
    "index": lambda positions: np.arange(TIME)[:, None] / 100,
}


def close(ours, expected, rtol=1e-6, atol=1e-6):
    """Sines and cosines are of float32, whatever reads them."""
    np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("name", ABSOLUTE)
def test_words_know_where_they_stand(name, join):
    positions, words = built(name, join=join), torch.randn(3, TIME, SIZE).double()
    place, word = ABSOLUTE[name](positions), words.numpy()
    expected = word + place
    if join == "concatenated":
        both = np.concatenate([word, np.broadcast_to(place, (3, *place.shape))], axis=-1)
        expected = both @ positions.merge.weight.detach().numpy().T + positions.merge.bias.detach().numpy()
    close(positions.embed(words, PLACES), expected)


@pytest.mark.parametrize("size", [5, 6, 64])
def test_sinusoids_of_far_places_and_odd_sizes(size):
    """Whole, and as steps of rows that have got to different places: the nearest numbers of float32."""
    places = [0, 1, 255, 1000, 11_000, 16_777, 20_000]
    whole = POSITIONS["sinusoid"](size).encode(torch.tensor([places]))[0]
    steps = POSITIONS["sinusoid"](size).encode(torch.tensor(places)[:, None])[:, 0]
    assert whole.dtype == torch.float32
    assert steps.equal(whole)
    close(whole, sinusoid(places, size), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in POSITIONS if name not in ABSOLUTE])
def test_the_others_are_no_part_of_what_is_read(name):
    words = torch.randn(3, TIME, SIZE).double()
    assert built(name).embed(words, PLACES) is words


def test_learned_positions_refuse_places_that_they_do_not_know():
    built("learned").check(TIME)
    with pytest.raises(UserError, match=f"know {TIME} places, and a sequence has {TIME + 1} tokens: raise `longest`"):
        built("learned").check(TIME + 1)


@pytest.mark.parametrize("name", [name for name in POSITIONS if name != "learned"])
def test_no_other_kind_has_a_limit(name):
    built(name).check(10**6)


def shaw(positions, queries, i, j, row, head):
    """q_i · a_clip(j - i) / √d"""
    step = max(-3, min(3, j - i))
    return queries[row, head, i] @ positions.vectors.detach().numpy()[step + 3] / math.sqrt(PART)


def buckets(positions, queries, i, j, row, head):
    return positions.numbers.detach().numpy()[bucket_of(j - i, 32, 3, both=not positions.causal), head]


def alibi(positions, queries, i, j, row, head):
    """Slopes 2^(-8/n), 2^(-16/n) ..."""
    return -(2 ** (-8 * (head + 1) / HEADS)) * abs(i - j)


BIASES = {"shaw": shaw, "buckets": buckets, "alibi": alibi}


def bucket_of(step, count, distance, both):
    """Raffel et al. 2020: one bucket a distance at first, then buckets that grow like powers, the last without end."""
    start = 0
    if both:
        count //= 2
        start, far = (count if step > 0 else 0), abs(step)
    else:
        far = max(0, -step)
    half = count // 2
    if far < half:
        return start + far
    limit = max(distance, half + 1)
    for number in range(half, count - 1):  # bucket b begins where half (limit / half)^((b - half) / (count - half)) does
        if far < half * (limit / half) ** ((number + 1 - half) / (count - half)):
            return start + number
    return start + count - 1


def expected_bias(name, positions, queries, places, source):
    found = np.zeros((*queries.shape[:3], source))
    for row, head, query, j in np.ndindex(*found.shape):
        plain = queries[:, :, query : query + 1].numpy()
        i = places[min(row, len(places) - 1)][query]
        found[row, head, query, j] = BIASES[name](positions, np.repeat(plain, i + 1, axis=2), i, j, row, head)
    return found


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", BIASES)
def test_what_pairs_of_places_add_to_scores(name, causal):
    positions, queries = built(name, causal=causal), vectors()
    ours = positions.bias(queries, PLACES, TIME).expand(3, -1, -1, -1)
    close(ours, expected_bias(name, positions, queries, PLACES.tolist(), TIME))


@pytest.mark.parametrize("name", BIASES)
def test_rows_may_have_got_to_different_places(name):
    positions, queries, places = built(name, causal=True), vectors(1), torch.tensor([[6], [0], [3]])
    close(positions.bias(queries, places, TIME), expected_bias(name, positions, queries, places.tolist(), TIME))


def test_every_kind_has_an_oracle():
    assert {*ABSOLUTE, *BIASES, "rotary", "none"} == POSITIONS.keys()
    assert {name for name, kind in POSITIONS.items() if kind.absolute} == ABSOLUTE.keys()
    assert {name for name, kind in POSITIONS.items() if kind.relative} == {*BIASES, "rotary"}


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("count", "distance"), [(32, 128), (32, 20), (8, 3)])
def test_buckets_grow_like_powers(count, distance, both):
    steps = torch.arange(-200, 201)
    expected = [bucket_of(step, count, distance, both) for step in steps.tolist()]
    assert bucket(steps, count, distance, both).tolist() == expected
    assert max(expected) == count - 1


def test_rotary_positions_multiply_by_a_complex_number_of_length_1():
    """(x_2i + i x_2i+1) e^(i t θ), θ = 10000^(-2i/d)"""
    queries = vectors()
    plain = queries.numpy()
    turned = (plain[..., 0::2] + 1j * plain[..., 1::2]) * np.exp(
        1j * np.arange(TIME)[:, None] / 10000 ** (np.arange(0, PART, 2) / PART)
    )
    ours = built("rotary").turn(queries, PLACES)
    close(ours[..., 0::2], turned.real)
    close(ours[..., 1::2], turned.imag)


def test_rotary_scores_know_how_far_apart_and_no_more():
    rotary, query, key = built("rotary"), vectors(1), vectors(1)

    def score(i, j):
        return (rotary.turn(query, torch.tensor([[i]])) * rotary.turn(key, torch.tensor([[j]]))).sum()

    for far in (100, 20_000):
        torch.testing.assert_close(score(5, 3), score(5 + far, 3 + far), rtol=1e-7, atol=1e-7)
    assert not torch.isclose(score(5, 3), score(3, 5), rtol=1e-3)


def test_rotary_positions_want_pairs():
    with pytest.raises(UserError, match="take an even number a head"):
        POSITIONS["rotary"](9, 3)


@pytest.mark.parametrize("path", ["plain", "library"])
@pytest.mark.parametrize("name", POSITIONS)
def test_attention_adds_and_turns_what_positions_say(name, path):
    """softmax((turn(U h) · turn(W h) / √d + bias(U h)) / τ) V h, with a causal mask, by both paths of a CPU."""
    attention = Attention(SIZE, SIZE, score="projected", heads=HEADS, values=SIZE, causal=True, temperature=0.5).double()
    positions, states = built(name, causal=True), torch.randn(3, TIME, SIZE).double()
    where = QueryPositions(positions=positions if positions.relative else None)
    own = SelfAttention(attention)
    projected = own.project(states, None, where)
    found = attention.read(projected.queries, states, projected.prepared, path == "plain", path, where).context
    queries, keys, values = (
        (states @ layer.weight.T).unflatten(-1, (HEADS, PART)).transpose(1, 2)
        for layer in (attention.score.project_query, attention.score.project_key, attention.project_value)
    )
    bias = positions.bias(queries, PLACES, TIME)
    scores = positions.turn(queries, PLACES) @ positions.turn(keys, PLACES).mT / math.sqrt(PART)
    scores = scores + (0 if bias is None else bias) + torch.full((TIME, TIME), -math.inf).triu(1)
    torch.testing.assert_close(found, ((scores / 0.5).softmax(dim=-1) @ values).transpose(1, 2).flatten(2))
