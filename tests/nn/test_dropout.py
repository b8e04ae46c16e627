import pytest
import torch

from regard.nn.dropout import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_each_element_is_dropped_with_the_rate_and_the_mean_is_kept(rate):
    outputs = Dropout(rate)(torch.ones(401, 503))
    number = outputs.numel()
    deviation = (rate * (1 - rate) / number) ** 0.5
    assert abs(outputs.eq(0).float().mean().item() - rate) < 5 * deviation
    torch.testing.assert_close(outputs[outputs != 0], torch.full_like(outputs[outputs != 0], 1 / (1 - rate)), rtol=1e-3, atol=0)
    rows = outputs.eq(0).float().mean(dim=0)  # no column is favoured
    assert (rows - rate).abs().max() < 6 * (rate * (1 - rate) / len(outputs)) ** 0.5


def test_neighbours_are_dropped_independently():
    dropped = Dropout(0.5)(torch.ones(1 << 18)).eq(0).double() - 0.5
    for distance in range(1, 9):
        assert abs((dropped[distance:] * dropped[:-distance]).mean().item()) < 5 * 0.25 / 2**9


def test_gradients_pass_where_values_do():
    inputs = torch.randn(7, 13, requires_grad=True)
    outputs = Dropout(0.3)(inputs)
    outputs.sum().backward()
    torch.testing.assert_close(inputs.grad, torch.where(outputs == 0, 0.0, outputs.detach() / inputs.detach()))


def test_the_seed_decides_and_evaluation_drops_nothing():
    layer, inputs = Dropout(0.5), torch.randn(33)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(layer(inputs))
    assert results[0].equal(results[1])
    assert not results[0].equal(results[2])
    assert layer.eval()(inputs).equal(inputs)
    assert Dropout(0.0)(inputs).equal(inputs)


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("training", [True, False])
def test_what_is_dropped_and_added_is_the_sum_of_both(rate, training):
    layer, (total, inputs) = Dropout(rate).train(training), torch.randn(2, 7, 13, requires_grad=True)
    torch.manual_seed(3)
    expected = total + layer(inputs)
    torch.manual_seed(3)
    found = layer.added(total, inputs)
    torch.testing.assert_close(found, expected)
    both = [torch.autograd.grad(each.square().sum(), (total, inputs), retain_graph=True) for each in (found, expected)]
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other)
