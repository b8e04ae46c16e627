"""Processes find each other, whatever killed ones left behind; what the first one finds, an error too, reaches all."""

import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from torch import distributed

from regard.errors import PeerError
from regard.training import distributed as ours

PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
SCRIPT = str(Path(__file__).with_name("joining.py"))


def start(store, rank, path, what):
    """As torchrun starts a process that is to use torchrun's own store, which outlives it."""
    environment = {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": store.port,
        "TORCHELASTIC_USE_AGENT_STORE": True, "OMP_NUM_THREADS": 1,
    }  # fmt: skip
    words = {key: str(value) for key, value in environment.items()}
    return subprocess.Popen([sys.executable, SCRIPT, str(path), what], env={**os.environ, **words}, **PIPES)


def attempt(store, folder, what):
    """What both ranks have seen. The first comes well before the second, so that it finds what a killed one has left behind."""
    paths = [folder / f"{what}-{rank}.json" for rank in (0, 1)]
    processes = [start(store, rank, path, what) for rank, path in enumerate(paths)]
    for process in processes:
        process.stdout.readline()
    try:
        for process in processes:
            process.stdin.write(b"join\n")
            process.stdin.flush()
            time.sleep(1)
        for process in processes:
            process.communicate(timeout=100)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads(path.read_text()) if path.exists() else None for path in paths]


def test_a_second_attempt_joins_and_errors_reach_all(tmp_path):
    store = distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    assert attempt(store, tmp_path, "dies") == ["PeerError", None]
    first, other = attempt(store, tmp_path, "lives")
    assert first["shared"] == other["shared"] == "7"
    assert first["mistake"] == other["mistake"] == "UserError: no such file"
    assert first["mistake_in_turn"] == other["mistake_in_turn"] == "UserError: no such file"
    assert (first["bug"], other["bug"]) == ("KeyError: 'key'", "PeerError: the first process failed: KeyError: 'key'")
    assert (first["in_turn"], other["in_turn"]) == ("0", "1")
    assert (first["waits_long"], other["waits_long"]) == (True, True)


def met(store, world):
    parts = {}
    threads = [Thread(target=lambda rank=rank: parts.update({rank: ours.meet(store, rank, world)})) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [parts[rank] for rank in range(world)]


def test_a_meeting_is_in_a_new_part_of_the_store():
    store = distributed.HashStore()
    store.set("regard/call/1", "of a process that was killed")
    before = met(store, 3)
    before[0].set("address", "of a process that was killed")
    assert before[2].get("address") == b"of a process that was killed"
    after = met(store, 3)
    assert not any(part.check(["address"]) for part in after)
    after[1].set("address", "mine")
    assert after[0].get("address") == after[2].get("address") == b"mine"


def test_nobody_waits_long_for_a_process_that_never_comes(monkeypatch):
    monkeypatch.setattr(ours, "JOIN", timedelta(seconds=0.1))
    with pytest.raises(PeerError, match="only 1 of 2 processes came"):
        ours.meet(distributed.HashStore(), 0, 2)
