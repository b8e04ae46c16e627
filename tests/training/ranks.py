"""Processes as torchrun starts them, by forks of this one: it has imported torch, which takes each new process seconds.

`test_distributed.py` starts them with torchrun itself.
"""

import os
import signal
import time
import traceback

from torch import distributed

PATIENCE = 150  # seconds, before processes that wait for each other are ended


def store():
    """As torchrun's own, which outlives the processes that it starts."""
    return distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)


def environment(port, rank):
    variables = {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }  # fmt: skip
    return {key: str(value) for key, value in variables.items()}


def fork(port, rank, action):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.environ.update(environment(port, rank))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        action(rank)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def two(action, given=None):
    """action(rank) in two processes; the exit code of each."""
    meeting = given or store()
    left = {fork(meeting.port, rank, action): rank for rank in (0, 1)}
    codes, end = [None, None], time.monotonic() + PATIENCE
    while left:
        child, status = os.waitpid(next(iter(left)), os.WNOHANG)
        if child:
            codes[left.pop(child)] = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > end:
            for process in left:
                os.kill(process, signal.SIGKILL)
        else:
            time.sleep(0.02)
    return codes
