import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run side by side; results do not depend on it, times do

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(autouse=True)
def same_numbers_every_run():
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False  # as regard.models.device.choose_device does
