"""Under torchrun: one message for one mistake, a clean stop for a signal, and no traceback of ours."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import SMALL

from regard.cli.ranks import first_to_tell
from regard.training.interruption import Interruption

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "regard", "train"]


def start(*words):
    hear = {"start_new_session": True, "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*TORCHRUN, *map(str, words)], env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes, **hear)


def ended(job):
    """What both ranks and torchrun have said."""
    try:
        return job.communicate(timeout=200)[0]
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)


def of_ours(said):
    """Lines of a traceback through our code."""
    return [line for line in said.splitlines() if line.lstrip().startswith("File ") and "/regard/" in line]


MISTAKES = {"training.updats=3": "unknown key", "data.corpus.name=latine": "data.corpus.name: unknown corpus"}


@pytest.mark.parametrize(
    "mistake", [next(iter(MISTAKES)), *(pytest.param(key, marks=pytest.mark.slow) for key in [*MISTAKES][1:])]
)
def test_a_mistake_gets_one_message(tmp_path, mistake):
    """Each process finds it: the first when the recipe is read, the second before anything is written."""
    job = start("demo", "-r", tmp_path / "run", mistake)
    said = ended(job)
    assert job.returncode == 1
    assert said.count(f"error: {MISTAKES[mistake]}") == 1, said
    assert f"traceback : {MISTAKES[mistake]}" in said  # torchrun's summary, which comes last, gives it again
    assert not of_ours(said)


@pytest.mark.slow
def test_each_process_brings_the_parts_of_one_s_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from regard.training.schedules import SCHEDULES, Schedule\n"
        "SCHEDULES['mine'] = Schedule(lambda step, warmup, updates: 1 / step)\n"
    )
    words = ["demo", "-r", tmp_path / "run", *SMALL, "training.updates=2", "training.schedule=mine"]
    job = start(*words, "--import", tmp_path / "mine.py")
    said = ended(job)
    assert job.returncode == 0, said
    job = start(*words, "--resume", "training.updates=3")
    said = ended(job)
    assert said.count("error: training.schedule: unknown schedule 'mine'") == 1, said


def test_the_first_to_fail_tells(tmp_path, monkeypatch):
    handler = signal.getsignal(signal.SIGTERM)
    try:
        for rank, told in ((1, True), (0, False)):
            (tmp_path / str(rank)).mkdir()
            monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / str(rank) / "error.json"))
            assert first_to_tell("no such file") is told
            reason = json.loads((tmp_path / str(rank) / "error.json").read_text())
            assert reason["message"]["message"] == "no such file"
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "gone" / "0" / "error.json"))
        assert first_to_tell("no such file")
        monkeypatch.delenv("TORCHELASTIC_ERROR_FILE")
        assert first_to_tell("no such file")
    finally:
        signal.signal(signal.SIGTERM, handler)


def to_the_last_rank(job):
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGTERM)


def as_a_terminal(job):
    """Ctrl-C reaches every process of a terminal, and torchrun passes it on besides."""
    os.killpg(job.pid, signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize(("send", "whole"), [(to_the_last_rank, True), (as_a_terminal, False)])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, send, whole):
    """Without torchrun's traceback where torchrun itself got no signal; with one, it ends as it likes (1, or an abort)."""
    run = tmp_path / "run"
    job = start("demo", "-r", run, *SMALL, "training.validate_every=100000", "training.updates=100000")
    end = time.monotonic() + 200
    while job.poll() is None and not any(run.glob("checkpoints/step-*")) and time.monotonic() < end:
        time.sleep(0.05)
    send(job)
    said = ended(job)
    step = max(run.glob("checkpoints/step-*")).name.removeprefix("step-").lstrip("0")
    command = f"torchrun --standalone --nproc-per-node 2 -m regard train -r {run} --resume"
    assert f"stopped at step {step}; continue with `{command}`" in said
    assert (job.returncode == 0) is whole
    assert ("Traceback" in said) is not whole
    assert not of_ours(said)


def test_a_ctrl_c_that_torchrun_passes_on_does_not_leave_at_once(monkeypatch):
    alone = Interruption()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "some")
    one_of_many = Interruption()
    for interruption, calm in ((alone, 1), (one_of_many, 2)):
        for _ in range(calm):
            interruption.handle(signal.SIGINT, None)
        with pytest.raises(KeyboardInterrupt):
            interruption.handle(signal.SIGINT, None)


MAIN = "import atexit, regard.cli; atexit.register(print, 'teardown'); regard.cli.main()"


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["no-such-verb"], 2)])
@pytest.mark.parametrize("ranks", [True, False])
def test_under_torchrun_a_process_ends_without_the_teardown_in_which_gloo_may_abort(words, code, ranks):
    environment = {**os.environ, "TORCHELASTIC_RUN_ID": "1"} if ranks else os.environ
    ended = subprocess.run([sys.executable, "-c", MAIN, *words], env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == code
    assert "regard" in ended.stdout + ended.stderr  # what was printed has come through the pipe
    assert ("teardown" in ended.stdout) == (not ranks)
