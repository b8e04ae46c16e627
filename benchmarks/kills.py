"""SIGKILL at random moments, half of them inside a save: every restart must go on, and the end must be the same bytes.

python benchmarks/kills.py --kills 40
"""

import argparse
import hashlib
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.utils import tensorboard  # noqa: F401 - imported before the forks, so that each life starts at once

from regard import run
from regard.recipe import Recipe, override, parse, read_values

torch.set_num_threads(1)
SMALL = [
    "data.corpus.size=300", "data.batch_tokens=256", "training.save_every=2", "training.log_every=3",
    "training.validate_every=20", "training.average=2", "model.encoder.hidden_size=12", "model.decoder.hidden_size=16",
    "model.decoder.attention.size=8",
]  # fmt: skip


def small_recipe(updates: int, *changes: str) -> Recipe:
    return parse(Recipe, override(read_values("demo"), [*SMALL, f"training.updates={updates}", *changes]))


def life(recipe: Recipe, directory: Path) -> int:
    """A child that trains to the end unless it is killed; its process id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run.train(recipe, directory, resume=True, talk=False)
            status = 0
        finally:
            os._exit(status)
    return child


def ended(child: int) -> int | None:
    """The exit status of a child that has ended."""
    pid, status = os.waitpid(child, os.WNOHANG)
    return None if pid == 0 else os.waitstatus_to_exitcode(status)


def wait_for_a_save(child: int, directory: Path, chance: random.Random) -> int | None:
    """Until a checkpoint is being written, and a moment more."""
    while (status := ended(child)) is None:
        if any((directory / "checkpoints").glob(".tmp-*")) or any((directory / "best").glob(".tmp-*")):
            time.sleep(chance.uniform(0, 0.004))
            return ended(child)
    return status


def wait_a_while(child: int, directory: Path, chance: random.Random) -> int | None:
    """At most until it has saved twice, so that a fast machine leaves as much to kill as a slow one."""
    end, saved = time.monotonic() + chance.uniform(0.0, 1.2), set[str]()
    while time.monotonic() < end and len(saved) < 3:  # the first is that of the life before
        if (status := ended(child)) is not None:
            return status
        saved.add(max((path.name for path in (directory / "checkpoints").glob("step-*")), default=""))
        time.sleep(0.002)
    return ended(child)


def digests(directory: Path) -> dict[str, str]:
    newest = max((directory / "checkpoints").glob("step-*"))
    files = [*sorted(newest.iterdir()), directory / "journal.jsonl", directory / "model" / "model.safetensors"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def torment(recipe: Recipe, directory: Path, kills: int, chance: random.Random) -> dict[str, int]:
    """Kill and restart until `kills` lives have ended so, then let the last one finish."""
    counts = {"kills": 0, "inside_a_save": 0, "failed_restarts": 0}
    while True:
        child = life(recipe, directory)
        if counts["kills"] >= kills:
            counts["failed_restarts"] += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
            return counts
        saving = counts["kills"] % 2 == 0
        status = wait_for_a_save(child, directory, chance) if saving else wait_a_while(child, directory, chance)
        if status is not None:
            counts["failed_restarts"] += status != 0
            return counts
        inside = any((directory / "checkpoints").glob(".tmp-*")) or any((directory / "best").glob(".tmp-*"))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        counts["kills"] += 1
        counts["inside_a_save"] += inside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    recipe = small_recipe(arguments.updates)
    with tempfile.TemporaryDirectory() as folder:
        calm, hunted, begin = Path(folder) / "calm", Path(folder) / "hunted", time.monotonic()
        run.train(recipe, calm, talk=False)
        counts = torment(recipe, hunted, arguments.kills, random.Random(arguments.seed))
        same = digests(calm) == digests(hunted)
    row = {
        "benchmark": "kills",
        **counts,
        "equal_bytes": same,
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - begin, 1),
    }
    print(json.dumps(row))
    if counts["failed_restarts"] or not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
