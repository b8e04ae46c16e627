"""SIGKILL to one of two ranks under `torchrun --max-restarts`: every restart must join and go on, to the same bytes at the end.

python benchmarks/rank_kills.py --kills 40
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kills import digests, small_recipe

from regard.recipe import to_yaml

Job = subprocess.Popen[bytes]
LIMIT = 240.0  # seconds without a sign of life


class Hang(Exception):
    """A job has shown no sign of life for too long."""


class Hunted(NamedTuple):
    kills: int
    hung: bool
    failed: bool


def launch(recipe: Path, directory: Path, restarts: int) -> Job:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = ["--max-restarts", str(restarts), "-m", "regard", "train", str(recipe), "--resume", "--quiet", "-r", str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with Path(f"{directory}.log").open("wb") as log:
        return subprocess.Popen([*torchrun, *words], env=environment, stdout=log, stderr=log, start_new_session=True)


def ranks(job: Job) -> list[int]:
    """The process ids of the ranks that live."""
    try:
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        return [int(child) for child in children if b"regard" in Path(f"/proc/{child}/cmdline").read_bytes()]
    except OSError:  # one has just gone
        return []


def new_pair(job: Job, seen: set[int]) -> list[int] | None:
    living = ranks(job)
    return living if len(living) == 2 and not seen & set(living) else None


def newest(directory: Path) -> Path | None:
    return max((directory / "checkpoints").glob("step-*"), default=None)


def wait(job: Job, sign: Callable[[], Any]) -> Any:
    """The sign, once there is one; None if the job ends before."""
    end = time.monotonic() + LIMIT
    while job.poll() is None:
        if seen := sign():
            return seen
        if time.monotonic() > end:
            raise Hang
        time.sleep(0.01)
    return None


def time_to_first_save(job: Job, directory: Path) -> float:
    """Seconds from the start of two ranks to their first checkpoint."""
    wait(job, lambda: len(ranks(job)) == 2)
    begin = time.monotonic()
    wait(job, lambda: newest(directory))
    return time.monotonic() - begin


def kill_ranks(job: Job, directory: Path, kills: int, start: float, chance: random.Random) -> int:
    """Half of the kills fall anywhere between the start of the ranks and their first save, half soon after it."""
    seen: set[int] = set()
    for count in range(kills):
        pair = wait(job, lambda: new_pair(job, seen)) or []
        seen.update(pair)
        before = newest(directory)
        if chance.random() < 0.5:
            time.sleep(chance.uniform(0.0, start))
        else:
            wait(job, lambda before=before: newest(directory) != before)
            time.sleep(chance.uniform(0.0, 0.5))
        victims = sorted(set(pair) & set(ranks(job)))
        if not victims:  # the run has come to its end
            return count
        os.kill(chance.choice(victims), signal.SIGKILL)
    return kills


def hunt(recipe: Path, directory: Path, kills: int, start: float, chance: random.Random) -> Hunted:
    """One job, with as many restarts as kills: a restart that fails for another reason is one too many."""
    done, job = 0, launch(recipe, directory, kills)
    try:
        done = kill_ranks(job, directory, kills, start, chance)
        wait(job, lambda: None)
        return Hunted(done, False, job.returncode != 0)
    except Hang:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        return Hunted(done, True, True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--kills-per-job", type=int, default=20)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance, begin, jobs, equal = random.Random(arguments.seed), time.monotonic(), [], True
    with tempfile.TemporaryDirectory() as folder:
        recipe, calm = Path(folder) / "recipe.yaml", Path(folder) / "calm"
        recipe.write_text(to_yaml(small_recipe(arguments.updates, "training.save_every=5")), encoding="utf-8")
        undisturbed = launch(recipe, calm, 0)
        start = time_to_first_save(undisturbed, calm)
        if undisturbed.wait(LIMIT) != 0:
            raise SystemExit(Path(f"{calm}.log").read_text())
        while (left := arguments.kills - sum(job.kills for job in jobs)) > 0:
            directory = Path(folder) / f"hunted-{len(jobs)}"
            jobs.append(hunt(recipe, directory, min(left, arguments.kills_per_job), start, chance))
            if jobs[-1].failed:
                print(Path(f"{directory}.log").read_text()[-4000:], file=sys.stderr)
                break
            equal &= digests(directory) == digests(calm)
    row = {
        "benchmark": "rank_kills",
        "kills": sum(job.kills for job in jobs),
        "jobs": len(jobs),
        "hangs": sum(job.hung for job in jobs),
        "failed_jobs": sum(job.failed for job in jobs),
        "equal_bytes": equal,
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - begin, 1),
    }
    print(json.dumps(row))
    if row["failed_jobs"] or not equal:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
