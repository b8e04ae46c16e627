"""Sealed directories: whole or absent, and every damage refused by the name of the file."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from regard.data.sealed import MANIFEST, lock, sealed, sweep, verify
from regard.errors import DamagedError, UserError


def write(target: Path, text: str = "hello") -> Path:
    with sealed(target, {"rows": 3, "name": "ä"}) as folder:
        (folder / "a.txt").write_text(text)
        (folder / "inner").mkdir()
        (folder / "inner" / "b.bin").write_bytes(bytes(range(256)))
        (folder / "empty").touch()
    return target


def leftovers(parent: Path) -> list[str]:
    return [path.name for path in parent.iterdir() if path.name.startswith(".tmp-")]


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def test_facts_come_back(tmp_path):
    assert verify(write(tmp_path / "x")) == {"rows": 3, "name": "ä"}
    assert leftovers(tmp_path) == []


def test_facts_are_taken_at_the_end(tmp_path):
    facts = {}
    with sealed(tmp_path / "x", facts):
        facts["rows"] = 7
    assert verify(tmp_path / "x") == {"rows": 7}


def test_a_relative_target(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert verify(write(Path("x")))["rows"] == 3


@pytest.mark.parametrize("name", ["a.txt", "inner/b.bin", MANIFEST])
def test_every_bit_flip_is_refused(tmp_path, name):
    path = write(tmp_path / "x") / name
    good = path.read_bytes()
    flips = [(byte, bit) for byte in range(len(good)) for bit in range(8)]
    for byte, bit in random.Random(1).sample(flips, min(len(flips), 1500)):
        bad = bytearray(good)
        bad[byte] ^= 1 << bit
        path.write_bytes(bad)
        with pytest.raises(DamagedError, match=path.name.replace(".", r"\.")):
            verify(tmp_path / "x")
    path.write_bytes(good)
    verify(tmp_path / "x")


@pytest.mark.parametrize("name", ["a.txt", "inner/b.bin", MANIFEST])
def test_every_truncation_is_refused(tmp_path, name):
    path = write(tmp_path / "x") / name
    good = path.read_bytes()
    for size in range(len(good)):
        path.write_bytes(good[:size])
        with pytest.raises(DamagedError, match=path.name):
            verify(tmp_path / "x")


@pytest.mark.parametrize("name", ["a.txt", "inner/b.bin", "empty", MANIFEST])
def test_a_missing_file_is_refused(tmp_path, name):
    path = write(tmp_path / "x") / name
    path.unlink()
    with pytest.raises(DamagedError, match=path.name):
        verify(tmp_path / "x")


@pytest.mark.parametrize("name", ["more", "inner/more"])
def test_an_extra_file_is_refused(tmp_path, name):
    (write(tmp_path / "x") / name).touch()
    with pytest.raises(DamagedError, match="more: does not belong here"):
        verify(tmp_path / "x")


def test_a_link_is_refused(tmp_path):
    path = write(tmp_path / "x") / "a.txt"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match=r"a\.txt: not a plain file"):
        verify(tmp_path / "x")


@pytest.mark.parametrize("text", ["", "[]", "1", "null", "{}", '{"seal": "x"}', "[" * 100_000, '{"format": 1' + "0" * 5000])
def test_a_manifest_of_nonsense_is_refused(tmp_path, text):
    (write(tmp_path / "x") / MANIFEST).write_text(text)
    with pytest.raises(DamagedError, match=MANIFEST):
        verify(tmp_path / "x")


def test_no_directory_is_refused(tmp_path):
    with pytest.raises(DamagedError, match=MANIFEST):
        verify(tmp_path / "nothing")


def test_an_error_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), sealed(tmp_path / "x", {}) as folder:
        (folder / "a.txt").write_text(f"half {1 / 0}")
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_the_older_one(tmp_path):
    write(tmp_path / "x", "old")
    with pytest.raises(KeyError), sealed(tmp_path / "x", {}):
        raise KeyError
    verify(tmp_path / "x")
    assert (tmp_path / "x" / "a.txt").read_text() == "old"


def test_a_newer_one_replaces_it(tmp_path):
    write(tmp_path / "x", "old")
    write(tmp_path / "x", "new")
    verify(tmp_path / "x")
    assert (tmp_path / "x" / "a.txt").read_text() == "new"
    assert leftovers(tmp_path) == []


def test_a_killed_writer_leaves_nothing_at_the_target(tmp_path):
    code = """
        import sys, time
        from pathlib import Path
        from regard.data.sealed import sealed
        with sealed(Path(sys.argv[1]), {}) as folder:
            (folder / "a.txt").write_text("half")
            print("ready", flush=True)
            time.sleep(60)
    """
    with run(code, tmp_path / "x") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        sweep(tmp_path)
        assert len(leftovers(tmp_path)) == 1  # its writer lives
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "x").exists()
    sweep(tmp_path)
    assert leftovers(tmp_path) == []


def test_sweep_puts_back_what_was_being_replaced(tmp_path):
    write(tmp_path / "x").rename(tmp_path / ".tmp-999999999~x")
    (tmp_path / ".tmp-999999999-x").mkdir()
    (tmp_path / "other").mkdir()
    sweep(tmp_path)
    verify(tmp_path / "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "x"]


def test_sweep_takes_what_carries_our_own_id_but_is_not_ours(tmp_path):
    (tmp_path / f".tmp-{os.getpid()}-y").mkdir()
    with sealed(tmp_path / "x", {}) as folder:
        sweep(tmp_path)
        assert leftovers(tmp_path) == [folder.name]


def test_a_second_process_is_locked_out(tmp_path):
    code = """
        import sys
        from pathlib import Path
        from regard.data.sealed import lock
        from regard.errors import UserError
        try:
            with lock(Path(sys.argv[1])):
                print("mine")
        except UserError as error:
            print(error)
    """
    with lock(tmp_path / "run"), run(code, tmp_path / "run") as process:
        assert process.communicate()[0] == f"{tmp_path / 'run'}: in use by process {os.getpid()}\n"
    with run(code, tmp_path / "run") as process:
        assert process.communicate()[0] == "mine\n"


def test_a_lock_is_not_taken_twice(tmp_path):
    with lock(tmp_path), pytest.raises(UserError, match=str(os.getpid())), lock(tmp_path):
        pass
