"""Where a model lives."""

import torch

from regard.errors import UserError

DEVICES = ("auto", "cpu", "cuda")


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    if name not in DEVICES:
        raise UserError(f"unknown device {name!r}; choose from {', '.join(DEVICES)}")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' was asked for and this machine has none; take 'auto' or 'cpu'")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32: cuDNN's scans would round their inputs to 10 bits
    return torch.device("cuda", local_rank % torch.cuda.device_count())
