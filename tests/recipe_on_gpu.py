"""One recipe from its name to its answers on a GPU, by the commands that a user types: train, generate, look, resume.

python tests/recipe_on_gpu.py RECIPE PRECISION DATA RUN
"""

import io
import json
import math
import sys
from pathlib import Path

import torch
from safetensors import safe_open

from regard.cli import main
from regard.data.fields import Shape
from regard.models import Model, build, configure
from regard.recipe import read

MANY = 300_000_000  # parameters; only mixtures of experts have more, and what they are made of is the same with fewer
LINES = ["servus in horto laborat .", "", "Caecilius est in atrio ."]


def regard(*words: object, stdin: str = "") -> str:
    """What a command prints; SystemExit with its code if it is not 0."""
    sys.argv, sys.stdin, sys.stdout = ["regard", *map(str, words)], io.TextIOWrapper(io.BytesIO(stdin.encode())), io.StringIO()
    try:
        main()
    except SystemExit as ending:
        if ending.code:
            raise
    finally:
        printed, sys.stdout = sys.stdout.getvalue(), sys.__stdout__
    return printed


def source_of(name: str) -> Shape | int:
    """A vocabulary, or the images that the recipe reads."""
    field = read(name).data.fields.get("source", {})
    images = field.get("kind") == "image"
    return Shape("image", (field["height"], field["width"], field["channels"])) if images else 600


def outline(name: str) -> Model:
    with torch.device("meta"):
        return build(configure(read(name).model), source_of(name), 600)


def fewer_experts(name: str) -> list[str]:
    """The recipe at its own size; with eight experts a layer where it is very large."""
    model = read(name).model
    if model.get("kind") in ("tagger", "classifier"):
        return []
    parameters = sum(one.numel() for one in outline(name).parameters())
    sides = [f"{side}." for side in ("encoder", "decoder") if side in model] or [""]
    return [f"model.{side}experts.num_experts=8" for side in sides] if parameters > MANY else []


def changes(name: str, precision: str) -> list[str]:
    counts = "validate_every=15", "save_every=15", "log_every=5", "average=1", "keep_last=1", "device=cuda"
    # a batch of images of a size is gigabytes, and a recipe's own number knows it
    data = "tokenizer.size=400", f"batch_tokens={min(2048, read(name).data.batch_tokens)}", "held_out=16"
    return [
        *(f"training.{count}" for count in counts),
        *(f"data.{change}" for change in data),
        f"training.precision={precision}",
        *fewer_experts(name),
    ]


def journal(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]


def check_training(run: Path, updates: int) -> None:
    rows = journal(run)
    losses = [row["loss"] for row in rows if "loss" in row]
    assert all(map(math.isfinite, losses)), losses
    assert losses[-1] < losses[0] + 0.3, losses
    assert max(row["step"] for row in rows if "valid_loss" in row) == updates
    assert not any("skipped" in row for row in rows)


def check_weights(path: Path) -> None:
    with safe_open(path, "pt") as file:
        kinds = {file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118 - no dictionary
    assert kinds == {"F32"}, kinds


def labels_through(name: str, precision: str, data: Path, run: Path) -> None:
    """A tagger or a classifier: train, predict, evaluate, resume. Tags are the lengths of words, labels those of sentences."""
    texts = (data / "train.la").read_text(encoding="utf-8").splitlines()
    column = "tags" if read(name).model["kind"] == "tagger" else "label"
    truth = [" ".join(f"B-{len(word)}" for word in text.split()) if column == "tags" else f"{len(text) // 8}" for text in texts]
    (run.with_name(f"{run.name}.{column}")).write_text("".join(f"{one}\n" for one in truth), encoding="utf-8")
    files = "--source", data / "train.la", "--column", f"{column}={run.with_name(f'{run.name}.{column}')}"
    regard("train", name, *files, "--run", run, *changes(name, precision), "training.updates=30")
    check_training(run, 30)
    check_weights(run / "model" / "model.safetensors")
    answers = regard("predict", run, stdin="".join(f"{line}\n" for line in (LINES[0], LINES[2]))).splitlines()
    assert [len(one.split()) for one in answers] == ([5, 5] if column == "tags" else [1, 1])
    assert "accuracy" in regard("evaluate", run, *files)
    regard("train", "--run", run, "--resume", "training.updates=40", "training.validate_every=10")
    check_training(run, 40)


def through(name: str, precision: str, data: Path, run: Path) -> None:
    if read(name).model.get("kind") in ("tagger", "classifier"):
        return labels_through(name, precision, data, run)
    pictures = source_of(name) != 600
    files = ("--source", data / "train.la", "--target", data / "train.en")
    if pictures:
        guided = "guided" in read(name).training.penalties
        files = ("--source", data / "train.npy", "--target", data / "train.caption")
        files += (f"data.train.boxes={data / 'train.boxes'}",) if guided else ()
    lines = [f"{data / 'test.npy'}#{row}" for row in (1, 2, 3)] if pictures else LINES
    words = ["train", name, *files, "--run", run, *changes(name, precision)]
    regard(*words, "training.updates=30")
    check_training(run, 30)
    check_weights(run / "model" / "model.safetensors")
    answers = regard("generate", run, stdin="".join(f"{line}\n" for line in lines))
    assert answers.count("\n") == len(lines)
    assert pictures or answers.splitlines()[1] == ""
    if outline(name).decoder.has_attention:
        # what is hardly trained may write nothing
        target = (
            ("--target", "a red circle") if pictures else () if answers.splitlines()[0] else ("--target", "the slave works .")
        )
        assert regard("look", run, lines[0], *target, "--html", run / "look.html").count("\n") > 2
        assert ("red" if pictures else lines[0].split()[0]) in (run / "look.html").read_text(encoding="utf-8")
    regard("train", "--run", run, "--resume", "training.updates=40", "training.validate_every=10")
    check_training(run, 40)


if __name__ == "__main__":
    through(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
