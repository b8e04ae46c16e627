"""What one of two processes sees of the other; a file gets it."""

import json
import os
import time

import torch
from torch import distributed

from regard.errors import UserError
from regard.training.distributed import WAIT, group


def caught(action):
    try:
        return repr(action())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def mistake():
    raise UserError("no such file")


def dies(processes):
    if not processes.first:
        os._exit(1)
    processes.sum(torch.zeros(1))


def lives(processes):
    backend = distributed.group.WORLD._get_backend(processes.device)
    return {
        "shared": caught(lambda: processes.share(lambda: processes.rank + 7)),
        "mistake": caught(lambda: processes.share(mistake)),
        "bug": caught(lambda: processes.share(lambda: {}["key"])),
        "in_turn": caught(lambda: processes.in_turn(lambda: processes.rank)),
        "mistake_in_turn": caught(lambda: processes.in_turn(mistake)),
        "waits_long": backend.options._timeout == WAIT,
    }


def seen(rank, what, path):
    """The first comes well before the second, so that it finds what a killed one has left behind."""
    time.sleep(rank)
    try:
        with group("cpu") as processes:
            result = {"dies": dies, "lives": lives}[what](processes)
    except UserError as error:
        result = type(error).__name__
    path.write_text(json.dumps(result))
