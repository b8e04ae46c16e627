"""Poolings beside plain sums, of rows alone and of padded ones."""

import numpy as np
import pytest
import torch
from test_attention import EQUATIONS, LONGEST, QUERY, SIZE, array

from regard.nn.attention import SCORES, Attention
from regard.nn.pooling import POOLINGS, AttentionPooling

STATES, LENGTHS = torch.randn(3, 5, QUERY, generator=torch.Generator().manual_seed(1)), [5, 2, 1]
VISIBLE = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
PLAIN = {
    "mean": lambda states: states.mean(0),
    "max": lambda states: np.stack([max(column) for column in states.T]),
    "last": lambda states: states[-1],
    "ends": lambda states: np.concatenate([states[0], states[-1]]),
}


def looking(score, heads):
    def build(query, memory):
        return Attention(query, memory, score=score, size=SIZE, heads=heads, longest=LONGEST)

    return build


def test_every_pooling_has_an_oracle():
    assert PLAIN.keys() | {"attention"} == POOLINGS.keys()


@pytest.mark.parametrize("name", PLAIN)
def test_a_pooling_is_that_of_what_is_no_padding(name):
    pool = POOLINGS[name](QUERY, looking("dot", 1))
    found = pool(STATES, VISIBLE)
    assert found.shape == (3, pool.output_size)
    noisy = torch.where(VISIBLE[..., None], STATES, torch.tensor(9.0))
    torch.testing.assert_close(pool(noisy, VISIBLE), found)
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(array(found[row]), PLAIN[name](array(STATES[row, :length])), rtol=1e-6)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("score", SCORES)
def test_a_learned_query_looks_by_every_score(score, heads):
    """Σ_j softmax_j(score(q, h_j)) h_j of each head, side by side."""
    pool = AttentionPooling(QUERY, looking(score, heads))
    for parameter in pool.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    found, query = pool(STATES, VISIBLE), array(pool.query[0, 0])
    assert found.shape == (3, pool.output_size)
    for row, length in enumerate(LENGTHS):
        states = array(STATES[row, :length])
        for head, context in enumerate(np.split(array(found[row]), heads)):
            scores = np.array([EQUATIONS[score](pool.attention.score, query, k, j, head) for j, k in enumerate(states)])
            weights = np.exp(scores - scores.max())
            np.testing.assert_allclose(context, weights / weights.sum() @ states, rtol=1e-4, atol=1e-5)
    assert pool.known_places == (LONGEST if score == "location" else None)
