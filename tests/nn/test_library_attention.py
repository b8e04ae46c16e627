"""PyTorch's own attention: which numbers a CPU gives it, and rows that see nothing."""

import pytest
import torch

from regard.nn.attention.attend import AttentionTask, attend
from regard.nn.attention.pairs import Dot
from regard.nn.attention.scopes import KeyRange
from regard.nn.attention.selections import Soft


def exact(query, keys, values):
    return (0.5 * query.double() @ keys.double().mT).softmax(dim=-1) @ values.double()


def test_autocast_on_a_cpu_attends_in_float32():
    query, keys, values = torch.randn(3, 2, 4, 5, 8).bfloat16()
    task = AttentionTask(Dot(0.5), query, keys, values, torch.ones(2, 5, dtype=torch.bool), KeyRange(), Soft())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = attend(task, path="library").context
    torch.testing.assert_close(found, exact(query, keys, values).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seen", [0, 3])
def test_a_row_that_sees_nothing_reads_nothing(seen):
    query, keys, values = torch.randn(3, 2, 4, 5, 8)
    visible = torch.arange(5) < torch.tensor([[5], [seen]])
    found = attend(AttentionTask(Dot(0.5), query, keys, values, visible, KeyRange(), Soft()), path="library").context
    torch.testing.assert_close(found[0], exact(query, keys, values)[0].float())
    expected = exact(query[1], keys[1, :, :seen], values[1, :, :seen]).float() if seen else torch.zeros(4, 5, 8)
    torch.testing.assert_close(found[1], expected)
