"""`joining.py OUT dies|lives`: one of two processes, as torchrun starts them. It joins when told; OUT gets what it has seen."""

import json
import os
import sys
from pathlib import Path

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


def seen():
    print("here", flush=True)
    sys.stdin.readline()
    with group("cpu") as processes:
        return {"dies": dies, "lives": lives}[sys.argv[2]](processes)


try:
    result = seen()
except UserError as error:
    result = type(error).__name__
Path(sys.argv[1]).write_text(json.dumps(result))
