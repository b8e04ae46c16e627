"""Equal budgets and one list of choices."""

import pytest
import torch

from regard.lab.budget import count, size_for
from regard.lab.predictor import Predictor
from regard.lab.search import CLIPS, RATES, SCALES, best, choices
from regard.nn.recurrent.cells import CELLS


@pytest.mark.parametrize("cell", CELLS)
def test_parameters_are_counted_as_the_model_has_them(cell):
    assert count(cell, 11, 7) == sum(parameter.numel() for parameter in Predictor(cell, 11, 7).parameters())


@pytest.mark.parametrize("cell", CELLS)
def test_no_other_size_comes_closer(cell):
    """A budget a little under or over what a size takes means that size, and any budget means the closest."""
    for size in (5, 33):
        assert [size_for(cell, 40, count(cell, 40, size) + off) for off in (-2, 0, 2)] == [size] * 3
    found = size_for(cell, 40, 41_234)
    misses = {size: abs(count(cell, 40, size) - 41_234) for size in range(found - 3, found + 4)}
    assert misses[found] == min(misses.values())


def test_a_budget_too_small_gives_the_smallest_model():
    assert size_for("gru", 100, 1) == 1


@pytest.mark.parametrize("trials", [1, 3, 20])
def test_choices_cover_their_ranges(trials):
    found = choices(trials)
    assert found == choices(trials)
    assert found != choices(trials, seed=2)
    for values, (low, high) in zip(zip(*found, strict=True), (RATES, SCALES, CLIPS), strict=True):
        assert all(low * 0.99 <= value <= high * 1.01 for value in values)
    edges = torch.logspace(*torch.tensor(RATES).log10().tolist(), trials + 1).tolist()
    for choice, low, high in zip(found, edges, edges[1:], strict=False):
        assert low * 0.99 <= choice.learning_rate <= high * 1.01


def test_the_best_has_the_lowest_loss_and_divergence_is_worst():
    assert best([{"valid": loss} for loss in (3.0, None, 1.5, 2.0)]) == 2
    assert best([{"valid": None}, {"valid": 1e9}]) == 1
    assert best([{"valid": None}, {"valid": None}]) == 0


def test_the_scale_is_of_matrices_only():
    model = Predictor("lstm", 5, 4)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    model.scale(0.5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, before[name] * (0.5 if parameter.dim() > 1 else 1.0))
