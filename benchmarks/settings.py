"""A recipe on a real data set, in several settings side by side, judged on test rows that no run has seen.

    REGARD_DATA=../shared/data python benchmarks/settings.py django code-copy --jobs 2 "" "model.decoder.copy_words=added"

Each setting is one word of the shell: overrides with spaces between them. A JSON row for each, as `choices.py` prints them.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from choices import SETS, tried

from regard.overrides import override
from regard.recipe import read_values


def settings_of(recipe: str, words: list[str]) -> list[tuple[str, dict[str, Any]]]:
    return [(f"{recipe} {one}".strip(), override(read_values(recipe), one.split())) for one in words]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=list(SETS), metavar="SET")
    parser.add_argument("recipe")
    parser.add_argument("settings", nargs="*", default=[""])
    parser.add_argument("--rows", type=int, help="test rows to score")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    given = parser.parse_intermixed_args()
    with ProcessPoolExecutor(given.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        points = settings_of(given.recipe, given.settings or [""])
        asked = [pool.submit(tried, (given.set, *point, given.rows, given.threads)) for point in points]
        for done in as_completed(asked):
            print(json.dumps(done.result()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
