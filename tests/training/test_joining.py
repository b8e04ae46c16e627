"""Processes find each other, whatever killed ones left behind; what the first one finds, an error too, reaches all."""

import json
from datetime import timedelta
from threading import Thread

import pytest
import ranks
from joining import seen
from torch import distributed

from regard.errors import PeerError
from regard.training import distributed as ours


def attempt(store, folder, what):
    """What both ranks have seen."""
    paths = [folder / f"{what}-{rank}.json" for rank in (0, 1)]
    ranks.two(lambda rank: seen(rank, what, paths[rank]), store)
    return [json.loads(path.read_text()) if path.exists() else None for path in paths]


def test_a_second_attempt_joins_and_errors_reach_all(tmp_path):
    store = ranks.store()
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
