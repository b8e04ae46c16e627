"""The largest scores, found in pieces, against PyTorch's own."""

import pytest
import torch

from regard.decoding.largest import LONG, PIECE, largest, top

SIZES = [5, LONG - 1, LONG, LONG + 1, 16 * PIECE + 255, 41 * PIECE, 41 * PIECE + 7]


@pytest.mark.parametrize("size", SIZES)
def test_the_largest_and_where_it_stands(size):
    scores = torch.randn(300, size)
    scores[torch.arange(size % 290), -1 - torch.arange(size % 290) % size] = 9.0  # also behind the last piece
    for found, expected in zip(largest(scores), scores.max(dim=-1), strict=True):
        assert found.equal(expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 2, 10])
def test_the_largest_of_many(size, count):
    scores = torch.randperm(40 * size).view(40, size).float()
    scores[:7] -= 1e9
    scores[7:9, 3:] = float("-inf")
    count = min(count, size)
    best, index = top(scores, count)
    expected = scores.topk(count).values
    assert best.equal(expected)
    assert scores.gather(1, index).equal(expected)
    assert all(len(set(row)) == count for row in index.tolist())


def test_of_equal_ones_the_first():
    scores = torch.zeros(40, LONG + 3)
    scores[0, 700:] = scores[1, -2:] = scores[2, 255:257] = 1.0
    assert largest(scores)[1].tolist() == [700, LONG + 1, 255, *[0] * 37]


@pytest.mark.parametrize("place", [0, 3000, LONG + 2])
def test_what_is_no_number_is_told(place):
    scores = torch.randn(40, LONG + 3)
    scores[1, place] = float("nan")
    assert largest(scores)[0].isnan().tolist() == [False, True, *[False] * 38]
    assert top(scores, 2)[0].isnan().any(dim=1).tolist() == [False, True, *[False] * 38]


def test_rows_that_lie_apart():
    scores = torch.randn(LONG, 60).T
    assert largest(scores)[1].equal(scores.argmax(dim=1))
