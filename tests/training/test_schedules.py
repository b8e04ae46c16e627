"""Learning rates against torch's own schedulers, and against the paper's formula."""

import pytest
import torch

from regard.training.schedules import SCHEDULES


def torch_rates(scheduler, steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule, rates = scheduler(optimizer), []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


ORACLES = {
    "constant": lambda: torch_rates(lambda o: torch.optim.lr_scheduler.LinearLR(o, start_factor=0.1, total_iters=9), 50),
    "cosine": lambda: (
        [step / 10 for step in range(1, 10)]
        + torch_rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=41), 41)
    ),
    "inverse_sqrt": lambda: [min(step**-0.5, step * 10**-1.5) * 10**0.5 for step in range(1, 51)],  # eq. 3, peak 1
    "linear": lambda: (
        [step / 10 for step in range(1, 10)]
        + torch_rates(lambda o: torch.optim.lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=41), 41)
    ),
    "plateau": lambda: ORACLES["constant"](),
}


def test_every_schedule_has_an_oracle():
    assert ORACLES.keys() == SCHEDULES.keys()


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates(name):
    ours = [SCHEDULES[name](step, 10, 50) for step in range(1, 51)]
    assert ours == pytest.approx(ORACLES[name](), abs=1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_warm_up_starts_at_the_peak(name):
    assert SCHEDULES[name](1, 0, 50) == pytest.approx(1.0, abs=2e-3)
