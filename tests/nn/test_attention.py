"""Every score against its equation in NumPy; additive scores without a tanh; coverage; errors for people."""

import math

import numpy as np
import pytest
import torch

from regard.errors import UserError
from regard.models import configure
from regard.nn.attention import ACTIVATIONS, SCORES, SELECTIONS, Attention, mix
from regard.nn.attention import additive as additive_scores
from regard.nn.attention.additive import additive, bind_additive
from regard.nn.attention.pairs import Network
from regard.nn.attention.scores import DotScore

QUERY, SIZE, LONGEST = 6, 8, 19


def array(tensor):
    return tensor.detach().double().numpy()


def share(vector, head, heads):
    """A head's part of a vector."""
    return np.split(vector, heads)[head]


def joined(score, q, k):
    return array(score.project.weight) @ np.concatenate([q, k])


def dot(score, q, k, j, head):
    return share(q, head, score.heads) @ share(k, head, score.heads)


def cosine(score, q, k, j, head):
    q, k = share(q, head, score.heads), share(k, head, score.heads)
    return math.exp(array(score.sharpness)[head]) * (q @ k) / math.sqrt((q @ q) * (k @ k))


def projected(score, q, k, j, head):
    sides = (
        share(array(layer.weight) @ x, head, score.heads) for layer, x in ((score.project_query, q), (score.project_key, k))
    )
    return np.dot(*sides) / math.sqrt(SIZE / score.heads)


def bahdanau(score, q, k, j, head):
    inner = array(score.project_query.weight) @ q + array(score.project_key.weight) @ k
    return array(score.score_vector)[head] @ np.tanh(share(inner, head, score.heads))


PLAIN_ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "identity": lambda x: x,
}
EQUATIONS = {
    "dot": dot,
    "scaled": lambda score, q, k, j, head: dot(score, q, k, j, head) / math.sqrt(QUERY / score.heads),
    "general": lambda score, q, k, j, head: q @ np.split(array(score.project_key.weight), score.heads)[head] @ k,
    "projected": projected,
    "cosine": cosine,
    "location": lambda score, q, k, j, head: (array(score.rows)[head] @ q)[j],
    "additive": bahdanau,
    "concat": lambda score, q, k, j, head: (
        array(score.score_vector)[head] @ np.tanh(share(joined(score, q, k), head, score.heads))
    ),
    "network": lambda score, q, k, j, head: (
        array(score.score_vector)[head]
        @ PLAIN_ACTIVATIONS[score.activation](share(joined(score, q, k) + array(score.bias), head, score.heads))
    ),
}


def test_every_score_and_activation_has_an_oracle():
    assert EQUATIONS.keys() == SCORES.keys()
    assert PLAIN_ACTIVATIONS.keys() == ACTIVATIONS.keys()


def memory_size(name):
    return QUERY if issubclass(SCORES[name], DotScore) else 5


def built(name, heads, activation="tanh"):
    score = SCORES[name](QUERY, memory_size(name), SIZE, heads, activation, LONGEST).double()
    for parameter in score.parameters():
        parameter.data.normal_()
    return score


def follows_its_equation(score, name, target, source):
    query, memory = torch.randn(2, target, QUERY).double(), torch.randn(2, source, memory_size(name)).double()
    ours = array(score(query, score.prepare(memory)))
    assert ours.shape == (2, score.heads, target, source)
    for batch, head, i, j in np.ndindex(*ours.shape):
        expected = EQUATIONS[name](score, array(query[batch, i]), array(memory[batch, j]), j, head)
        np.testing.assert_allclose(ours[batch, head, i, j], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", SCORES)
def test_scores_follow_their_equation(name, heads):
    for target, source in [(1, 1), (3, 5), (2, 17)]:
        follows_its_equation(built(name, heads), name, target, source)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_network_score_takes_any_activation(activation, heads):
    follows_its_equation(built("network", heads, activation), "network", 3, 5)


def some(*shapes, kind=torch.float64):
    return [torch.randn(*shape, dtype=kind, requires_grad=True) for shape in shapes]


def same_gradients(ours, plain, leaves, **tolerance):
    noise = torch.randn_like(plain)
    torch.testing.assert_close(ours, plain, **tolerance)
    gradients = [torch.autograd.grad((way * noise).sum(), leaves, retain_graph=True) for way in (ours, plain)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_additive_scores_of_every_way_equal_the_formula(activation, monkeypatch):
    """The formula without a tanh, and some queries at a time (two here, and one in the last part)."""
    for batch, heads, target, source in [(1, 1, 1, 1), (2, 1, 3, 17), (3, 2, 9, 2)]:
        query, keys, score_vector = some((batch, heads, target, 5), (batch, heads, source, 5), (heads, 5))
        monkeypatch.setitem(additive_scores.CHUNK, "cpu", 2 * keys.numel())
        ours = bind_additive(keys, score_vector, activation)(query)
        same_gradients(ours, additive(query, keys, score_vector, activation), [query, keys, score_vector])


def test_additive_scores_used_at_many_steps_add_their_gradients_up():
    keys, score_vector, *queries = some((2, 2, 4, 5), (2, 5), *[(2, 2, 1, 5)] * 6)
    bound = bind_additive(keys, score_vector)
    ours = torch.cat([bound(query).tanh() for query in queries], dim=2)
    plain = torch.cat([additive(query, keys, score_vector).tanh() for query in queries], dim=2)
    same_gradients(ours, plain, [keys, score_vector, *queries])


def test_additive_gradcheck():
    arguments = some((2, 2, 2, 3), (2, 2, 4, 3), (2, 3))
    assert torch.autograd.gradcheck(lambda query, keys, score_vector: bind_additive(keys, score_vector)(query), arguments)


@pytest.mark.parametrize("largest", [19.0, 21.0, 300.0])
def test_additive_scores_are_finite_and_right_far_out(largest):
    """In float32, where e^{2 q} e^{2 k} would be 0 · ∞, no number, beyond 44."""
    query = torch.tensor([-largest, largest, 15.0, -largest]).view(1, 1, 1, 4).requires_grad_()
    for far in (largest, 19.0, 1.0):
        keys = torch.tensor([far, far, -15.5, -far]).view(1, 1, 1, 4).requires_grad_()
        score_vector = torch.randn(1, 4, requires_grad=True)
        same_gradients(
            bind_additive(keys, score_vector)(query),
            additive(query, keys, score_vector),
            [query, keys, score_vector],
            rtol=1e-5,
            atol=1e-5,
        )


def test_values_read_at_many_steps_add_their_gradients_up():
    values, *steps = some((2, 4, 3), (2, 1, 4), (2, 1, 4), (2, 2, 4))
    read = mix(values)
    ours, plain = (torch.cat([way(step).tanh() for step in steps], dim=1) for way in (read, lambda step: step @ values))
    same_gradients(ours, plain, [values, *steps])


def covered_scores(attention, query, keys, coverage):
    """e_ij = v · φ(q_i + k_j + w c_ij), or s q_i · k_j + c_ij Σ w, of one step; s = 1 / √3 of the two that are scaled."""
    pair, weight = attention.score.pair, attention.covered
    if not isinstance(pair, Network):
        scale = 3**-0.5 if isinstance(attention.score, SCORES["scaled"] | SCORES["projected"]) else 1.0
        return scale * torch.einsum("bhd,bhsd->bhs", query, keys) + coverage * weight.sum(-1)[:, None]
    inner = query[:, :, None] + keys + coverage[..., None] * weight[:, None]
    return (ACTIVATIONS[pair.activation](inner) * pair.score_vector[:, None]).sum(-1)


@pytest.mark.parametrize("name", SCORES)
def test_coverage_tells_scores_what_has_been_looked_at(name):
    attention = Attention(QUERY, QUERY, score=name, heads=2, coverage=True).double()
    assert attention.covered.eq(0).all()  # at first it makes no difference
    attention.covered.data.normal_()
    query, memory = some((3, 4, QUERY), (3, 5, QUERY))
    visible = torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    read = attention(query, attention.prepare(memory, visible))
    queries, keys = attention.score.bind_query()(query), attention.score.prepare(memory)
    coverage, looks = torch.zeros(3, 2, 5).double(), []
    for i in range(4):
        scores = covered_scores(attention, queries[:, :, i], keys, coverage)
        looks.append(scores.masked_fill(~visible[:, None], -torch.inf).softmax(-1))
        coverage = coverage + looks[-1]
    weights = torch.stack(looks, dim=2)
    context = torch.einsum("bhts,bsd->bthd", weights, memory).flatten(2)
    torch.testing.assert_close(read.weights, weights)
    same_gradients(read.context, context, [query, memory, attention.covered])


@pytest.mark.parametrize("name", [name for name in SCORES if name not in ("general", "location")])
def test_heads_that_cannot_share_a_size_are_refused(name):
    with pytest.raises(UserError, match="4 heads cannot share a size of 6"):
        SCORES[name](6, 6, 6, heads=4)


@pytest.mark.parametrize("name", ["general", "location"])
def test_heads_that_share_nothing_need_no_divisor(name):
    assert (
        SCORES[name](6, 6, heads=4)(torch.randn(1, 2, 6), SCORES[name](6, 6, heads=4).prepare(torch.randn(1, 3, 6))).shape[1]
        == 4
    )


def test_values_that_heads_cannot_share_are_refused():
    with pytest.raises(UserError, match="4 heads cannot share 6 values"):
        Attention(8, 8, heads=4, values=6)


@pytest.mark.parametrize("name", [name for name, score in SCORES.items() if issubclass(score, DotScore)])
def test_dot_products_of_different_sizes_are_refused(name):
    with pytest.raises(UserError, match=f"the {name} score needs .* of one size, not 6 and 8.*'general'"):
        SCORES[name](6, 8)


def test_a_source_beyond_the_last_place_is_refused():
    score = SCORES["location"](6, 6, longest=3)
    with pytest.raises(UserError, match=r"knows 3 places, and a source has 4 tokens: raise .*\.longest"):
        score.prepare(torch.randn(1, 4, 6))


def test_an_unknown_activation_is_refused():
    with pytest.raises(UserError, match="unknown activation 'tahn'; choose from tanh"):
        SCORES["network"](6, 6, activation="tahn")


@pytest.mark.parametrize(
    ("key", "slip", "meant"),
    [("score", "additve", "additive"), ("scope", "local_n", "local_"), ("selection", "sparsmax", "sparsemax"),
     ("activation", "relo", "relu")],
)  # fmt: skip
def test_a_recipe_with_an_unknown_name_is_told_which_was_meant(key, slip, meant):
    with pytest.raises(UserError, match=meant) as error:
        configure({"decoder": {"attention": {key: slip}}})
    assert slip in str(error.value)


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_recipe_needs_a_temperature_above_zero(name):
    with pytest.raises(UserError, match="temperature"):
        configure({"decoder": {"attention": {"selection": name, "temperature": 0.0}}})


def test_no_states_yet_have_no_keys_and_values():
    """A decoder that has written nothing: one product for both has no numbers to tell its shape by."""
    attention = Attention(8, 8, score="projected", heads=2, values=8)
    _, key_map = attention.score.together()
    shares, joint = attention.project(torch.zeros(3, 0, 8), key_map, attention.project_value)
    assert [tuple(share.shape) for share in shares] == [(3, 2, 0, 4)] * 2
    assert tuple(joint.shape) == (3, 0, 2, 2, 4)
