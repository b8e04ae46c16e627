"""Memory for weights: copies that do not touch each other, and that are given back."""

import gc
import mmap
import weakref

import pytest
import torch

from regard.engine.pages import BLOCK, CURRENT, LINE, Pages, laid_out, large_pages


@pytest.fixture(params=["large", "none"], autouse=True)
def system(request, monkeypatch):
    """One that has large pages, and one that does not know of them."""
    if request.param == "none":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    with large_pages():
        yield request.param


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int8])
def test_copies_are_equal_and_lie_side_by_side(dtype):
    given = [torch.randint(-99, 99, (rows, 7, 3), dtype=dtype).transpose(0, 2) for rows in (1, 5, 64)]
    found = [laid_out(one) for one in given]
    for one, other in zip(found, given, strict=True):
        assert one.equal(other)
        assert one.is_contiguous()
        other.zero_()
        assert one.any()


def test_an_empty_one_and_one_that_is_larger_than_a_block():
    assert laid_out(torch.zeros(3, 0)).shape == (3, 0)
    small, large = laid_out(torch.ones(5)), laid_out(torch.full((BLOCK + 1,), 2, dtype=torch.uint8))
    assert laid_out(torch.full((5,), 3.0)).eq(3).all()
    assert small.eq(1).all()
    assert large.eq(2).all()


def test_what_is_laid_out_for_one_batch_lies_where_others_lay():
    own = CURRENT.get()
    assert own is not None
    used = own.used
    before = CURRENT.set(None)
    assert laid_out(torch.ones(5)).eq(1).all()
    CURRENT.reset(before)
    assert own.used == used


def test_a_block_is_handed_out_by_lines_and_given_back(system):
    own = Pages()
    if system == "none":
        assert own.take(8) is None
        return
    first, second = own.take(LINE + 1), own.take(8)
    assert first is not None
    assert second is not None
    assert second.data_ptr() - first.data_ptr() == 2 * LINE
    before = weakref.ref(own.block)
    rest = own.take(BLOCK)
    del first
    gc.collect()
    assert before() is not None  # `second` lies in it
    del second
    gc.collect()
    assert before() is None
    assert rest is not None
