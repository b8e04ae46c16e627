"""Rivals take turns, round by round, on a machine that others use too: medians of interleaved samples."""

import json
import statistics
import time
from collections.abc import Callable


def race(rivals: dict[str, Callable[[], object]], rounds: int = 15) -> dict[str, float]:
    """Median seconds of each rival; one unmeasured round first."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for number in range(rounds + 1):
        for name, action in rivals.items():
            begin = time.perf_counter()
            action()
            if number:
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def report(benchmark: str, ours: str, rival: str, medians: dict[str, float], **facts: object) -> None:
    """One JSON row; `ratio` says how many times faster ours is than the rival."""
    row = {"benchmark": benchmark, **facts, "ms": round(medians[ours] * 1e3, 3), "rival": rival}
    row |= {"rival_ms": round(medians[rival] * 1e3, 3), "ratio": round(medians[rival] / medians[ours], 2)}
    print(json.dumps(row), flush=True)
