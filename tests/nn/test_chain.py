"""The linear chain beside all sequences of labels, counted one by one; and its gradients beside those of that sum."""

import math
from itertools import pairwise, product

import pytest
import torch

from regard.nn.chain import LinearChain

LABELS, LENGTHS = 3, [5, 3, 1, 0]
VISIBLE = torch.arange(5) < torch.tensor(LENGTHS)[:, None]


@pytest.fixture
def chain():
    made = LinearChain(LABELS).double()
    for parameter in made.parameters():
        parameter.data = torch.randn_like(parameter)
    return made


@pytest.fixture
def emissions():
    return torch.randn(4, 5, LABELS, dtype=torch.double, requires_grad=True)


def scores(chain, emissions):
    """s(y) of every y of one row."""
    found = {}
    for path in product(range(LABELS), repeat=len(emissions)):
        found[path] = sum(emissions[at, label] for at, label in enumerate(path))
        found[path] = found[path] + sum(chain.transitions[before, after] for before, after in pairwise(path))
        found[path] = found[path] + (chain.begins[path[0]] + chain.finishes[path[-1]] if path else torch.zeros(()))
    return found


def rows(emissions):
    return [(row, emissions[row, :length]) for row, length in enumerate(LENGTHS) if length]


def test_scores_and_their_sum_are_those_of_all_paths(chain, emissions):
    total = chain.log_partition(emissions, VISIBLE)
    assert total[3] == 0
    for row, seen in rows(emissions):
        every = scores(chain, seen)
        torch.testing.assert_close(total[row], torch.stack(list(every.values())).logsumexp(0))
        for path, score in every.items():
            labels = torch.full((4, 5), 7)  # what stands in hidden positions is no label
            labels[row, : len(path)] = torch.tensor(path)
            visible = VISIBLE & (torch.arange(4) == row)[:, None]
            torch.testing.assert_close(chain.score(emissions, labels, visible)[row], score)


def test_gradients_are_those_of_the_plain_sum(chain, emissions):
    weights = [*chain.parameters(), emissions]
    ours = torch.autograd.grad(chain.log_partition(emissions, VISIBLE).sum(), weights)
    plain = sum(torch.stack(list(scores(chain, seen).values())).logsumexp(0) for _, seen in rows(emissions))
    for one, other in zip(ours, torch.autograd.grad(plain, weights), strict=True):
        torch.testing.assert_close(one, other)


def test_the_best_path_is_the_best_of_all(chain, emissions):
    best = chain.best(emissions, VISIBLE)
    for row, seen in rows(emissions):
        every = scores(chain, seen)
        path = max(every, key=every.get)
        assert tuple(best.labels[row, : len(seen)].tolist()) == path
        torch.testing.assert_close(best.scores[row], every[path])
    assert best.scores[3] == 0


def test_marginals_add_up_the_paths_that_pass(chain, emissions):
    found = chain.marginals(emissions, VISIBLE)
    for row, seen in rows(emissions):
        every = {path: math.exp(score.item()) for path, score in scores(chain, seen).items()}
        for at, label in product(range(len(seen)), range(LABELS)):
            passing = sum(chance for path, chance in every.items() if path[at] == label)
            assert found[row, at, label].item() == pytest.approx(passing / sum(every.values()))


def test_long_rows_of_large_scores_stay_finite():
    chain, emissions = LinearChain(4), 1e4 * torch.randn(2, 300, 4)
    visible = torch.arange(300) < torch.tensor([[300], [120]])
    best = chain.best(emissions, visible)
    assert chain.log_partition(emissions, visible).isfinite().all()
    torch.testing.assert_close(chain.score(emissions, best.labels, visible), best.scores)
