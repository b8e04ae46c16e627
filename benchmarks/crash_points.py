"""Death before every file event of a run (a file opened for writing, a rename, a folder made or removed), then a resume: every
restart must go on, and the end must be the same bytes with nothing left behind. Then a bit flipped in every file of a model
and of a run: a model is refused by the name of the file, a run ends with the same bytes or says what is damaged.

python benchmarks/crash_points.py --workers 2
"""

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kills import digests, life, small_recipe

import regard
from regard import run
from regard.errors import UserError
from regard.recipe import Recipe

EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
UPDATES = 36


def is_write(event: str, arguments: tuple[Any, ...], directory: str) -> bool:
    if event not in EVENTS or not isinstance(arguments[0], str | bytes | os.PathLike):
        return False
    writing = event != "open" or (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR) != 0)
    return writing and os.fsdecode(arguments[0]).startswith(directory)


def count_down(directory: Path, events: int | None, total: list[int]) -> None:
    """Kill this process before its event of that number, or count them all."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if is_write(event, arguments, str(directory)):
            if total[0] == events:
                os.kill(os.getpid(), signal.SIGKILL)
            total[0] += 1

    sys.addaudithook(hook)


def in_child(action: Callable[[], None]) -> int:
    """The exit status of an action in a process of its own."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_events(recipe: Recipe, directory: Path) -> int:
    answer = directory.with_name("events")

    def counted() -> None:
        total = [0]
        count_down(directory, None, total)
        run.train(recipe, directory, talk=False)
        answer.write_text(str(total[0]))

    assert in_child(counted) == 0
    return int(answer.read_text())


def crash(recipe: Recipe, directory: Path, event: int, calm: dict[str, str]) -> str:
    """What went wrong, if anything, after death before this event."""

    def dies() -> None:
        count_down(directory, event, [0])
        run.train(recipe, directory, talk=False)

    try:
        if in_child(dies) != -signal.SIGKILL:
            return f"event {event}: did not die"
        if os.waitstatus_to_exitcode(os.waitpid(life(recipe, directory), 0)[1]):
            return f"event {event}: the restart failed"
        if digests(directory) != calm:
            return f"event {event}: other bytes"
        left = [path.name for path in directory.rglob(".tmp-*")]
        return f"event {event}: left {left}" if left else ""
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def flip_model(model: Path, place: Path, number: int) -> str:
    """A flipped bit in one of a model's files: it must be refused, by the name of the file."""
    files = sorted(path.relative_to(model) for path in model.rglob("*") if path.is_file() and path.stat().st_size)
    name = files[number % len(files)]
    shutil.copytree(model, place)
    try:
        flip(place / name, random.Random(number))
        regard.load(place, "cpu")
        return f"flip {number}: {name} was loaded"
    except UserError as error:
        return "" if name.name in str(error) else f"flip {number}: {name} is not named by {error}"
    finally:
        shutil.rmtree(place)


def flip_run(recipe: Recipe, finished: Path, place: Path, number: int, calm: dict[str, str]) -> str:
    """A flipped bit in one of a run's files, and a resume: the same bytes, or a message that names what is damaged."""
    files = sorted(path.relative_to(finished) for path in finished.rglob("*") if path.is_file() and path.stat().st_size)
    name = files[number % len(files)]
    shutil.copytree(finished, place)
    flip(place / name, random.Random(number))
    said = io.StringIO()

    def resumed() -> None:
        with contextlib.redirect_stderr(said):
            try:
                run.train(recipe, place, resume=True, talk=False)
            except UserError as error:
                said.write(str(error))
        if digests(place) != calm and not said.getvalue():
            raise SystemExit(1)

    try:
        return f"flip {number}: {name} changed the result" if in_child(resumed) else ""
    finally:
        shutil.rmtree(place, ignore_errors=True)


def together(workers: int, jobs: Iterable[Callable[[], str]]) -> tuple[int, list[str]]:
    """Each worker is a process that forks its own children: a process with threads should not."""
    todo, children, problems = list(jobs), [], list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for worker in range(workers):
            child = os.fork()
            if child == 0:
                found = [job() for job in todo[worker::workers]]
                (Path(folder) / str(worker)).write_text(json.dumps([problem for problem in found if problem]))
                os._exit(0)
            children.append(child)
        for worker, child in enumerate(children):
            os.waitpid(child, 0)
            problems += json.loads((Path(folder) / str(worker)).read_text())
    return len(todo), problems


def report(name: str, count: int, problems: list[str], begin: float) -> bool:
    row = {"benchmark": name, "points": count, "failures": len(problems), "first": problems[:5]}
    print(json.dumps({**row, "seconds": round(time.monotonic() - begin, 1)}), flush=True)
    return bool(problems)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="die before every n-th event only")
    parser.add_argument("--flips", type=int, default=306)
    arguments = parser.parse_args()
    recipe = small_recipe(UPDATES, "training.validate_every=6", "data.corpus.size=120")
    with tempfile.TemporaryDirectory() as folder:
        base, begin = Path(folder), time.monotonic()
        events = count_events(recipe, base / "calm")
        calm = digests(base / "calm")
        points = range(0, events, arguments.every)
        crashes = (lambda event=event: crash(recipe, base / f"crash-{event}", event, calm) for event in points)
        failed = report("crash_points", *together(arguments.workers, crashes), begin)
        model, numbers = base / "calm" / "model", range(arguments.flips)
        models = (lambda number=number: flip_model(model, base / f"model-{number}", number) for number in numbers)
        failed |= report("flips_of_a_model", *together(1, models), begin)
        place = base / "calm"
        runs = (lambda number=number: flip_run(recipe, place, base / f"run-{number}", number, calm) for number in numbers)
        failed |= report("flips_of_a_run", *together(arguments.workers, runs), begin)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
