"""The kernels of a decoding step on a GPU, beside their formulas in float64. interpreted_steps.py tries them on a CPU."""

import pytest
import step_trials as trials
import torch

pytestmark = pytest.mark.gpu
BOTH = pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])


@BOTH
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("size", [20, 64])
def test_attention(width, size, kind):
    trials.try_past(width, size=size, device="cuda", kind=kind)
    trials.try_sentence(width, size=size, device="cuda", kind=kind)


@BOTH
@pytest.mark.parametrize("rows", [1, 2, 19, 64])
@pytest.mark.parametrize("sizes", [(512, 1536), (2048, 512), (4100, 40), (1024, 40), (48, 5000)])
def test_products(rows, sizes, kind):
    if kind is torch.float32 and rows > 2:
        return  # a library's are faster
    small = {name: "layer" for name, size in (("norm", sizes[0]), ("other", sizes[1])) if size <= 1024}
    for how in ({}, {"relu": True, "adds": False}, small):
        trials.try_product(rows, *sizes, device="cuda", kind=kind, **how)


@BOTH
@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize(
    ("batch", "width", "count", "vocabulary"), [(3, 5, 10, 32000), (20, 5, 10, 32000), (64, 1, 2, 5003), (2, 4, 8, 130)]
)
def test_the_best_words(batch, width, count, vocabulary, least, kind):
    trials.try_best(batch, width, count, vocabulary, least, device="cuda", kind=kind)


@BOTH
@pytest.mark.parametrize("least", [False, True])
def test_greedy_steps_and_words(least, kind):
    for rows in (7, 70):  # few programs, and many
        trials.try_greedily(rows, 32000, least, device="cuda", kind=kind)
    trials.try_enter(512, device="cuda", kind=kind)
    trials.try_no_number(least, device="cuda", kind=kind)
