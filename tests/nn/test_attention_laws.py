"""The laws of attention, for every score x scope x selection x heads x values that the tables allow."""

import itertools

import jaxtyping
import numpy as np
import pytest
import torch
from test_scopes import predicted, seen_places, visible_of
from test_selections import SELECTED
from torch.autograd.graph import saved_tensors_hooks

from regard.nn.attention import ACTIVATIONS, SCOPES, SCORES, SELECTIONS, Attention, AttentionState
from regard.nn.attention.attention import gather

LENGTHS = np.array([5, 5, 3, 3, 1, 1, 0, 0])  # two hypotheses of each of four sentences, the last of which is empty
SENTENCES, WIDTH, TARGET, SOURCE, SIZE, WINDOW = 4, 2, 3, 5, 6, 2
VISIBLE = visible_of(LENGTHS[::WIDTH], SOURCE)


def in_time(score, scope):
    """`make test` takes every score with two scopes and every scope with two scores; the other pairs wait."""
    soon = score in ("additive", "general") or scope in ("global", "local_p")
    return pytest.param(score, scope, marks=() if soon else pytest.mark.slow)


ALL = pytest.mark.parametrize(("score", "scope"), [in_time(*pair) for pair in itertools.product(SCORES, SCOPES)])


@pytest.fixture(autouse=True)
def without_shape_checks(monkeypatch):
    """The other files check shapes; here, where the same lines run thousands of times, they would take minutes."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    monkeypatch.setattr(jaxtyping, "jaxtyped", lambda **_: lambda function: function)


@pytest.fixture(autouse=True)
def noise_is_all_alike(monkeypatch):
    """So that what is drawn is what is best, in whatever order it is drawn; test_selections.py looks at the noise itself."""
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda self: self.fill_(1.0))


def settings(score, scope):
    for selection, heads, values in itertools.product(SELECTIONS, (1, 2), (None, 4)):
        yield {"score": score, "scope": scope, "selection": selection, "heads": heads, "values": values}


def built(**options):
    attention = Attention(SIZE, SIZE, window=WINDOW, softness=0.0, longest=SOURCE, **options).double()
    for parameter in attention.parameters():
        parameter.data.normal_()
    return attention


def some_inputs():
    """Queries of all hypotheses, and what the sentences say."""
    query, memory = torch.randn(SENTENCES * WIDTH, TARGET, SIZE), torch.randn(SENTENCES, SOURCE, SIZE)
    return query.double().requires_grad_(), memory.double().requires_grad_()


def results(context, weights, choice):
    return [context, weights] if choice is None else [context, weights, choice.log_prob, choice.entropy]


def at_once(attention, query, memory):
    """Each hypothesis with a copy of its sentence."""
    prepared = attention.prepare(*(part.repeat_interleave(WIDTH, dim=0) for part in (memory, VISIBLE)))
    return results(*attention(query, prepared, return_weights=True))


def in_steps(attention, query, memory):
    """The hypotheses of a sentence share it, one step after the other."""
    prepared = attention.prepare(memory, VISIBLE)
    step, state, steps = attention.bind(prepared), attention.start(prepared), []
    state = AttentionState(*(part.repeat_interleave(WIDTH, dim=0) for part in state))
    for row in query.unbind(1):
        steps.append(step(row, state))
        state = steps[-1].attention_state
    return results(*gather(steps))


def gradients(outcome, slopes, leaves):
    total = sum((result * slope).sum() for result, slope in zip(outcome, slopes, strict=True))
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)


@ALL
def test_steps_equal_all_at_once_and_nothing_hidden_is_read(score, scope):
    """Values, draws and all gradients, though the steps read a memory that differs where it is hidden."""
    for options in settings(score, scope):
        attention, (query, memory) = built(**options), some_inputs()
        noisy = torch.where(VISIBLE[..., None], memory, memory + 1.0).detach().requires_grad_()
        ours, steps = at_once(attention, query, memory), in_steps(attention, query, noisy)
        slopes = [torch.randn_like(result) for result in ours]
        ours += gradients(ours, slopes, [query, memory, *attention.parameters()])
        steps += gradients(steps, slopes, [query, noisy, *attention.parameters()])
        for one, other in zip(ours, steps, strict=True):
            assert one.isfinite().all(), options
            assert torch.allclose(one, other, rtol=1e-7, atol=1e-10), options  # float64; quicker than assert_close


def seen_by(attention, scope, heads, query, weights):
    """What a loop over all places says is seen, and the Gaussian of what local-p predicts (1 elsewhere)."""
    before, centre, near = np.zeros((len(LENGTHS), heads, TARGET), dtype=int), None, 1.0
    before[..., 1:] = weights.argmax(-1)[..., :-1]
    if scope == "local_p":
        centre = predicted(attention.scope, query, LENGTHS[:, None])
        near = np.exp(-((np.arange(SOURCE) - centre[..., None]) ** 2) / (2 * (WINDOW / 2) ** 2))
    return seen_places(scope, LENGTHS, heads, TARGET, SOURCE, WINDOW, before=before, centre=centre), near


def together(scope, places):
    """Of the things that are looked at: the places themselves, or blocks of them."""
    return np.add.reduceat(places, range(0, SOURCE, WINDOW), axis=-1) if scope == "compressed" else places


def definition(attention, selection, query, keys, seen):
    """select(scores) of what is seen, 0 elsewhere."""
    scores = np.where(seen, attention.score(query, keys).detach().numpy(), -np.inf)
    scores[~seen.any(-1)] = 0.0
    return SELECTED[selection](scores) * seen


def values_of(attention, memory, visible, heads):
    """The memory itself for every head, or what is projected from it, shared out."""
    memory = attention.scope.compress(memory, visible)[0]
    if attention.project_value is None:
        return memory[:, None].expand(-1, heads, -1, -1)
    projected = torch.nn.functional.linear(memory, attention.project_value.weight)
    return torch.stack(projected.chunk(heads, dim=-1), dim=1)


@ALL
def test_weights_are_the_defined_distribution_over_what_is_seen(score, scope):
    """Nothing falls elsewhere, a hard choice is one place, and who sees nothing reads nothing and teaches nothing."""
    visible = visible_of(LENGTHS, SOURCE)
    for options in settings(score, scope):
        attention, (query, memory) = built(**options), some_inputs()
        memory = memory.repeat_interleave(WIDTH, dim=0)
        prepared = attention.prepare(memory, visible)
        context, weights, choice = attention(query, prepared, return_weights=True)
        looks = weights.detach().numpy()
        places, near = seen_by(attention, scope, options["heads"], query, looks)
        seen, parts = together(scope, places) > 0, together(scope, looks / near)
        expected = definition(attention, options["selection"], query, prepared.keys, seen)
        assert np.allclose(parts, expected, rtol=1e-7, atol=1e-9), options
        assert (looks[~places] == 0).all(), options
        assert np.allclose(parts.sum(-1), seen.any(-1), rtol=0, atol=1e-9), options
        assert not attention.selection.hard or np.isin(parts.round(9), [0, 1]).all(), options
        read = torch.from_numpy(expected * near) @ values_of(attention, memory, visible, options["heads"])
        assert torch.allclose(context, read.transpose(1, 2).flatten(2), rtol=1e-7, atol=1e-9), options
        blind = [result[LENGTHS == 0].sum() for result in results(context, weights, choice)]
        assert blind[0] == blind[1] == 0, options
        told = [one for one in blind if one.requires_grad]
        for gradient in torch.autograd.grad(told, [query, memory, *attention.parameters()], allow_unused=True):
            assert gradient is None or gradient.eq(0).all(), options


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("score", SCORES)
def test_hypotheses_that_share_a_sentence_have_a_coverage_each(score, selection):
    attention, (query, memory) = built(score=score, selection=selection, heads=2, values=4, coverage=True), some_inputs()
    for one, other in zip(at_once(attention, query, memory), in_steps(attention, query, memory), strict=True):
        torch.testing.assert_close(one, other)


@ALL
def test_gradients_of_the_plain_path(score, scope):
    attention, (query, memory) = built(score=score, scope=scope, heads=2, values=4), some_inputs()

    def run(query, memory, *_):
        return attention(query, attention.prepare(memory, VISIBLE), path="plain").context

    assert torch.autograd.gradcheck(run, [query[::WIDTH], memory, *attention.parameters()], fast_mode=True)


def kept_bytes(attention, way, *inputs):
    """What is kept for the way back, parameters aside: each piece of memory once."""
    own, kept = {parameter.untyped_storage().data_ptr() for parameter in attention.parameters()}, []
    with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        assert way(*inputs).context.requires_grad
    sizes = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in kept}
    return sum(size for place, size in sizes.items() if place not in own)


def keeps_little(**options):
    """Less than [target, source, size] numbers for each sentence: all at once, step by step, and with coverage."""
    batch, target, source, size = 2, 6, 29, 64
    query, memory = torch.randn(batch, target, size, requires_grad=True), torch.randn(batch, source, size, requires_grad=True)
    for coverage in (False, True):
        attention = Attention(size, size, heads=2, values=size, window=3, coverage=coverage, **options)
        prepared = attention.prepare(memory, visible_of([source, 9], source))
        for way in [attention.one_by_one] if coverage else [attention, attention.one_by_one]:
            assert kept_bytes(attention, way, query, prepared) < 4 * batch * target * source * size, options


@ALL
def test_nothing_of_target_times_source_times_size_is_kept(score, scope):
    for selection in SELECTIONS:
        keeps_little(score=score, scope=scope, selection=selection)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_no_activation_keeps_more(activation):
    keeps_little(score="network", activation=activation)
