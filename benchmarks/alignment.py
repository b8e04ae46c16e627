"""Word alignments from attention on the Canadian Hansards: 100,000 training pairs, 447 pairs aligned by hand.

    REGARD_DATA=DIR python benchmarks/alignment.py additive general --device cuda

For each score, a model from English to French and one back are trained; then, guided by what the two of the best score agree
on, both again (`--rounds 2`: and again by what these agree on). Heads, shifts, thresholds and the way to join are chosen on
the 37 dev pairs. Prints JSON rows as they come: error rates on the test set, of each direction by a word's own step and by
the next, of both joined, of what was chosen.
"""

import argparse
import gzip
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.data.links import Links, flip, flip_gold, format_links, read_links
from regard.data.symmetrise import SYMMETRISATIONS
from regard.decoding.directions import Directions, Join, agreed, symmetrised
from regard.decoding.forcing import TeacherForced
from regard.decoding.load import load_generator
from regard.decoding.reading import Alignment, Pair
from regard.evaluation.alignment import AlignmentScore, alignment_error_rate
from regard.models.directory import Reading
from regard.recipe import Recipe, parse
from regard.run import train

SIDES = {"en-fr": ("en", "fr.ascii"), "fr-en": ("fr.ascii", "en")}
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
JOINS: dict[str, Join] = {name: symmetrised(name) for name in SYMMETRISATIONS}
JOINS |= {f"agree {threshold}": agreed(threshold) for threshold in THRESHOLDS}


class Hansards:
    """The data set, and what is written beside it."""

    def __init__(self, data: Path, scratch: Path, count: int) -> None:
        self.folder, self.scratch = data / "wordalign_gold", scratch
        for side in ("en", "fr.ascii"):
            with gzip.open(self.folder / f"enfr_hansards.train.{side}.gz", "rt", encoding="utf-8") as lines:
                (scratch / f"train.{side}").write_text("".join(itertools.islice(lines, count)), encoding="utf-8")
        flipped = [flip_gold(links) for links in self.gold("dev")]
        (scratch / "dev.fr-en").write_text(lines_of(flipped), encoding="utf-8")
        (scratch / "dev.en-fr").write_text(lines_of(self.gold("dev")), encoding="utf-8")

    def pairs(self, split: str) -> list[Pair]:
        """English and French."""
        paths = [self.path(split, side) for side in SIDES["en-fr"]]
        return list(zip(*(path.read_text(encoding="utf-8").splitlines() for path in paths), strict=True))

    def path(self, split: str, side: str) -> Path:
        return self.scratch / f"train.{side}" if split == "train" else self.folder / f"enfr_hansards.{split}.{side}"

    def gold(self, split: str) -> list[Links]:
        return read_links(self.folder / f"enfr_hansards.{split}.align")

    def sides(self, split: str, direction: str) -> dict[str, str]:
        source, target = SIDES[direction]
        return {"source": str(self.path(split, source)), "target": str(self.path(split, target))}


def lines_of(gold: Sequence[Links]) -> str:
    return "".join(f"{format_links(*links)}\n" for links in gold)


def recipe(hansards: Hansards, direction: str, score: str, options: argparse.Namespace, guide: Path | None) -> Recipe:
    updates = options.guided_updates if guide else options.updates
    rows: dict[str, Any] = hansards.sides("train", direction)
    valid = hansards.sides("dev", direction) | {"alignment": str(hansards.scratch / f"dev.{direction}")}
    layer = {"cell": "gru", "embedding_size": options.embedding, "dropout": options.dropout}
    attention = {"score": score, "temperature": options.temperature}
    values = {
        "data": {
            "train": rows | ({"alignment": str(guide)} if guide else {}),
            "valid": valid,
            "tokenizer": {"kind": options.tokenizer, "size": options.vocabulary},
            "batch_tokens": options.batch_tokens,
        },
        "model": {
            "encoder": {**layer, "hidden_size": options.hidden // 2},
            "decoder": {**layer, "hidden_size": options.hidden, "attention": attention, "context": options.context},
        },
        "training": {
            "updates": updates, "learning_rate": options.learning_rate, "schedule": "cosine", "warmup": updates // 10,
            "precision": options.precision, "device": options.device, "validate_by": "loss", "validate_every": updates,
            "save_every": updates, "log_every": 100, "patience": None, "capture": options.capture,
            "frequencies": options.frequencies,
            **({"penalties": {"guided": options.guided}} if guide else {}),
        },
        "decoding": {"batch_tokens": options.batch_tokens},
    }  # fmt: skip
    return parse(Recipe, values)


def trained_both(
    hansards: Hansards, score: str, options: argparse.Namespace, guides: dict[str, Path] | None = None, number: int = 0
) -> tuple[TeacherForced, TeacherForced]:
    """A model of each direction, English to French first."""
    found = []
    for direction in SIDES:
        run = hansards.scratch / f"{score}-{direction}-{number}"
        begin = time.perf_counter()
        guide = guides[direction] if guides else None
        train(recipe(hansards, direction, score, options, guide), run, talk=options.talk)
        found.append(load_generator(run, options.device))
        seconds = round(time.perf_counter() - begin, 1)
        show("trained", None, score=score, guided=number, direction=direction, seconds=seconds)
    return found[0], found[1]


def show(what: str, rates: AlignmentScore | None, **facts: object) -> None:
    values = {} if rates is None else {name: round(value, 4) for name, value in rates._asdict().items()}
    print(json.dumps({"benchmark": f"alignment/{what}", **facts, **values}), flush=True)


def report(hansards: Hansards, models: tuple[TeacherForced, TeacherForced], **facts: object) -> tuple[float, str]:
    """All rates on the test set; what to join both by, chosen on dev, and its rate there."""
    pairs, gold = hansards.pairs("test"), hansards.gold("test")
    for direction, model in zip(SIDES, models, strict=True):
        chosen = model.reading
        for shift in (0, 1):
            rates = rate_of_one(direction, model, Reading(head=chosen.head, shift=shift), pairs, gold)
            own = {"head": chosen.head, "shift": shift, "chosen": shift == chosen.shift}
            show("direction", rates, **facts, direction=direction, **own)
    there, back = looks(models, pairs)
    scores = {name: alignment_error_rate(joined(join, there, back), gold) for name, join in JOINS.items()}
    for name, rates in scores.items():
        show("both", rates, **facts, join=name)
    on_dev = looks(models, hansards.pairs("dev"))
    dev = {name: alignment_error_rate(joined(join, *on_dev), hansards.gold("dev")).error_rate for name, join in JOINS.items()}
    best = min(dev, key=dev.__getitem__)
    show("best", scores[best], **facts, join=best, dev=round(dev[best], 4))
    return dev[best], best


def rate_of_one(
    direction: str, model: TeacherForced, reading: Reading, pairs: Sequence[Pair], gold: Sequence[Links]
) -> AlignmentScore:
    """Links as English and French, whichever way the model goes."""
    if direction == "en-fr":
        return alignment_error_rate([one.links for one in model.align(pairs, reading)], gold)
    return alignment_error_rate([flip(one.links) for one in model.align(turned(pairs), reading)], gold)


def turned(pairs: Sequence[Pair]) -> list[Pair]:
    return [(target, source) for source, target in pairs]


def looks(models: tuple[TeacherForced, TeacherForced], pairs: Sequence[Pair]) -> tuple[list[Alignment], list[Alignment]]:
    return models[0].align(pairs), models[1].align(turned(pairs))


def joined(join: Join, there: Sequence[Alignment], back: Sequence[Alignment]) -> list[frozenset[tuple[int, int]]]:
    return [join(one, other) for one, other in zip(there, back, strict=True)]


def write_guides(hansards: Hansards, models: tuple[TeacherForced, TeacherForced], join: str) -> dict[str, Path]:
    """The joined links of all training pairs, for each direction."""
    paths = {direction: hansards.scratch / f"train.{direction}.align" for direction in SIDES}
    with paths["en-fr"].open("w") as forward, paths["fr-en"].open("w") as backward:
        for links in links_of(hansards.pairs("train"), Directions(*models, JOINS[join])):
            forward.write(format_links(links) + "\n")
            backward.write(format_links(flip(links)) + "\n")
    return paths


def links_of(pairs: Sequence[Pair], directions: Directions, block: int = 8192) -> Iterator[frozenset[tuple[int, int]]]:
    for first in range(0, len(pairs), block):
        yield from directions.align(pairs[first : first + block])["both"]


def measure(hansards: Hansards, options: argparse.Namespace) -> None:
    results = {}
    for score in options.scores:
        models = trained_both(hansards, score, options)
        results[score] = (*report(hansards, models, score=score, guided=0), models)
    best = min(results, key=lambda score: results[score][0])
    _, join, models = results[best]
    for number in range(1, options.rounds + 1):
        begin = time.perf_counter()
        guides = write_guides(hansards, models, options.guide_join or join)
        show("guides", None, score=best, join=options.guide_join or join, seconds=round(time.perf_counter() - begin, 1))
        models = trained_both(hansards, best, options, guides, number)
        _, join = report(hansards, models, score=best, guided=number)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", nargs="*", default=["additive", "general"], help="attention scores, by name")
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--guided-updates", type=int, default=1000)
    parser.add_argument("--guided", type=float, default=0.5, help="weight of the penalty")
    parser.add_argument("--rounds", type=int, default=1, help="how often both are trained again by what they agree on")
    parser.add_argument("--guide-join", choices=JOINS, help="links to guide by (those best on dev)")
    parser.add_argument("--pairs", type=int, default=100_000, help="training pairs")
    parser.add_argument("--tokenizer", default="word")
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--context", default="after_cell")
    parser.add_argument("--temperature", type=float, default=1.0, help="scores are divided by it: √hidden for `general`")
    parser.add_argument("--frequencies", action=argparse.BooleanOptionalAction, default=True, help="training.frequencies")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--embedding", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--learning-rate", type=float, default=0.002)
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--capture", action="store_true", help="replay batches as CUDA graphs")
    parser.add_argument("--talk", action="store_true", help="show how training goes")
    parser.add_argument("--scratch", type=Path, help="an empty folder for the runs, kept afterwards")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if "REGARD_DATA" not in os.environ:
        sys.exit("set REGARD_DATA to the folder that holds wordalign_gold")
    with tempfile.TemporaryDirectory() as folder:
        scratch = options.scratch or Path(folder)
        scratch.mkdir(parents=True, exist_ok=True)
        measure(Hansards(Path(os.environ["REGARD_DATA"]), scratch, options.pairs), options)


if __name__ == "__main__":
    main()
