"""Recipes and overrides as nobody should write them, taken as far as the first update: accepted, or refused in one message.

python benchmarks/fuzz_recipes.py --cases 1000 --seed 1
"""

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from recipe_mutations import Case, Values, some_case

from regard import preflight
from regard.cli.train import build_recipe
from regard.drafting import Files
from regard.errors import UserError
from regard.models import build, configure
from regard.recipe import built_in, parse, plain, read, to_yaml

torch.set_num_threads(1)
preflight.free_memory = lambda: 16 * 10**9  # the same everywhere, and so are the counts
SECONDS = 10  # of one core, or ten times as many by the clock: more is a hang
MEGABYTES = 4000  # more is a MemoryError, which is a traceback
BLOCK = 50  # cases of one process
LONGEST = 2500  # characters of a message
SMALL = 2_000_000  # parameters that are really built


class Outcome(NamedTuple):
    verdict: str  # accepted, refused, traceback or hang
    message: str
    seconds: float
    megabytes: float
    small: bool = False


def bases() -> list[Values]:
    """Every built-in recipe with all its defaults, so that every key can be hit."""
    found = []
    for name in built_in():
        recipe = read(name)
        values = recipe.model_copy(update={"model": configure(recipe.model).model_dump(mode="json")}).model_dump(mode="json")
        found.append(values)
    return found


def prepare(case: Case, folder: Path) -> tuple[Path, dict[str, str]]:
    path = folder / "case.yaml"
    path.write_text(case.text, encoding="utf-8", errors="replace", newline="")
    for name in ("source", "target"):
        (folder / name).write_text("".join(f"{name} {word} a b c\n" for word in range(30)), encoding="utf-8")
    return path, {name: str(folder / name) for name in ("source", "target")} if case.files else {}


def attempt(case: Case, folder: Path) -> bool:
    """What `regard train` does before the first update, data aside. Whether the model was small enough to be really built."""
    path, files = prepare(case, folder)
    recipe = build_recipe(str(path), None, False, Files(files, {}, {}), case.overrides, None, False)
    config = configure(recipe.model)
    recipe = recipe.model_copy(update={"model": config.model_dump(mode="json")})
    preflight.check(recipe)
    again = parse(type(recipe), plain(to_yaml(recipe), "recipe.yaml"))  # what a resumed run reads
    assert again == recipe, "the resolved recipe does not read back as itself"
    shapes = [recipe.data.tokenizer.size] * len(config.columns)
    outline = preflight.fitting(config, shapes, torch.device("cpu"))
    small = sum(parameter.numel() for parameter in outline.parameters()) < SMALL
    if small:
        torch.manual_seed(recipe.training.seed)
        build(config, *shapes)
    return small


class TooLongError(BaseException):
    """A case that takes too long."""


def give_up(number: int, frame: object) -> None:
    raise TooLongError


def measured(case: Case, folder: Path) -> Outcome:
    before, begin, small, message = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time(), False, ""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        small, verdict = attempt(case, folder), "accepted"
    except UserError as error:
        message = str(error)
        verdict = "refused" if message.isprintable() and len(message) <= LONGEST else "traceback"
    except TooLongError:
        verdict = "hang"
    except BaseException as error:  # whatever it is, nobody meant it
        verdict, message = "traceback", f"{type(error).__name__}: {error}"
    signal.setitimer(signal.ITIMER_PROF, 0)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return Outcome(verdict, message, time.process_time() - begin, grown / 1024, small)


def work(cases: list[Case], folder: Path, report: Path) -> None:
    """In a process of its own: a row for each case, as soon as it is known."""
    signal.signal(signal.SIGPROF, give_up)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEGABYTES * 2**20,) * 2)
    with report.open("w", encoding="utf-8") as file:
        for case in cases:
            file.write(json.dumps(measured(case, folder)) + "\n")
            file.flush()


def outcomes(cases: list[Case], folder: Path) -> list[Outcome]:
    """Block by block; a process that dies or hangs outside Python's reach takes one case with it."""
    found: list[Outcome] = []
    while len(found) < len(cases):
        block, report = cases[len(found) : len(found) + BLOCK], folder / "report"
        report.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            try:
                work(block, folder, report)
            finally:
                os._exit(0)
        status = wait(child, report)
        rows = (
            [Outcome(*json.loads(line)) for line in report.read_text(encoding="utf-8").splitlines()] if report.exists() else []
        )
        found += rows
        if len(rows) < len(block):
            found.append(Outcome("hang" if status is None else "traceback", f"the process ended with {status}", SECONDS, 0.0))
    return found


def wait(child: int, report: Path) -> int | None:
    """Its exit code; None if nothing was heard of it for too long, and it was ended."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        heard = report.stat().st_mtime if report.exists() else time.time()
        if time.time() - heard > 10 * SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.02)


def by_command_line(case: Case, outcome: Outcome, folder: Path) -> str:
    """The verdict of a real `regard train`; what was accepted makes one update."""
    path, files = prepare(case._replace(files=outcome.verdict == "accepted" or case.files), folder)
    words = [*case.overrides, *(["training.updates=1", "training.device=cpu"] if outcome.verdict == "accepted" else [])]
    options = [f"--{name}={file}" for name, file in files.items()]
    with tempfile.TemporaryDirectory(dir=folder) as run:
        command = [sys.executable, "-m", "regard", "train", *options, "--run", f"{run}/run", "--", str(path), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30 * SECONDS, errors="replace", cwd=folder)
        except subprocess.TimeoutExpired:
            return "hang"
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    told = done.returncode == 0 or (done.returncode == 2 and len(errors) == 1)
    return "told" if told and "Traceback" not in done.stderr else f"traceback: {done.returncode} {done.stderr[-2000:]}"


def was_refused(outcome: Outcome) -> bool:
    return outcome.verdict == "refused"


def fuzz(number: int, seed: int, commands: int = 0, tell: Callable[[str], object] = lambda text: None) -> dict[str, Any]:
    """The row that is printed."""
    recipes = bases()
    cases = [some_case(index, seed, recipes) for index in range(number)]
    with tempfile.TemporaryDirectory() as name:
        found = outcomes(cases, Path(name))
        halves = [[index for index, one in enumerate(found) if test(one)] for test in (lambda one: one.small, was_refused)]
        sampled = [index for half in halves for index in random.Random(seed).sample(half, min(commands // 2, len(half)))]
        for index in sampled:
            verdict = by_command_line(cases[index], found[index], Path(name))
            if verdict != "told":
                found[index] = found[index]._replace(verdict=verdict.partition(":")[0], message=verdict)
    for index, one in enumerate(found):
        if one.verdict in ("traceback", "hang") or one.seconds > 3:
            tell(f"case {index}: {one.verdict}, {one.seconds:.1f} s: {one.message[:3000]}")
    counts = Counter(one.verdict for one in found)
    return {
        "benchmark": "fuzz_recipes", "cases": number, "accepted": counts["accepted"], "refused": counts["refused"],
        "tracebacks": counts["traceback"], "hangs": counts["hang"], "commands": len(sampled),
        "slowest_seconds": round(max(one.seconds for one in found), 2),
        "largest_megabytes": round(max(one.megabytes for one in found)),
        "longest_message": max(len(one.message) for one in found), "seed": seed,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", type=int, default=20, help="cases that go through the command line too")
    arguments = parser.parse_args()
    row = fuzz(arguments.cases, arguments.seed, arguments.commands, lambda text: print(text, file=sys.stderr))
    print(json.dumps(row))
    if row["tracebacks"] or row["hangs"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
