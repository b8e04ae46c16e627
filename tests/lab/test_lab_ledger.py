"""Finished trials are kept, whatever happens."""

import json
import os

import pytest

from regard.errors import DamagedError, UserError
from regard.lab.ledger import Ledger, agree


def fill(path, count):
    """Serve trials 1 to `count`; which of them had to be run."""
    run = []
    ledger = Ledger(path, ("cell", "number"))
    for number in range(1, count + 1):
        row = ledger.once({"cell": "gru", "number": number}, lambda number=number: run.append(number) or {"test": number / 7})
        assert row == {"cell": "gru", "number": number, "test": number / 7}
    assert ledger.served == count
    ledger.close()
    return run


def test_nothing_is_run_twice(tmp_path):
    path = tmp_path / "trials.jsonl"
    assert fill(path, 3) == [1, 2, 3]
    assert fill(path, 5) == [4, 5]
    assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == [1, 2, 3, 4, 5]


def test_wherever_the_file_is_cut_the_rest_is_run_again(tmp_path):
    path = tmp_path / "trials.jsonl"
    fill(path, 3)
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends)
        assert fill(path, 3) == list(range(kept + 1, 4))
        assert path.read_bytes() == whole


def test_a_row_is_on_the_disk_before_the_next_begins(tmp_path, monkeypatch):
    path, synced = tmp_path / "trials.jsonl", []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    ledger = Ledger(path, ("number",))
    ledger.once({"number": 1}, dict)
    assert path.read_text() == '{"number": 1}\n'
    assert synced == [len(path.read_bytes())]
    with pytest.raises(ZeroDivisionError):
        ledger.once({"number": 2}, lambda: {"test": 1 / 0})
    ledger.close()
    assert path.read_text() == '{"number": 1}\n'


def test_damage_in_the_middle_is_told(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_text('{"number": 1}\n{"numb\n{"number": 3}\n')
    with pytest.raises(DamagedError, match=r"trials.jsonl: line 2 is no row"):
        Ledger(path, ("number",))


def test_other_facts_are_refused(tmp_path):
    path = tmp_path / "setting.json"
    agree(path, {"updates": 3, "sizes.arith.batch": 4})
    agree(path, {"updates": 3, "sizes.arith.batch": 4})
    with pytest.raises(UserError, match=r"was begun with updates=3, not 5; take another --out"):
        agree(path, {"updates": 5, "sizes.arith.batch": 4})
    with pytest.raises(UserError, match=r"was begun with sizes.arith.batch=4, not None"):
        agree(path, {"updates": 3})
