"""Names never seen: written by copying, by replacing unknown words where attention lay (PosUnk), or not at all."""

from pathlib import Path
from typing import Any

from regard.lab.contest import Claim, Contest
from regard.lab.experiment import Asked, Experiment, Row, Setting, smoke
from regard.lab.systems import SMOKE, Examined, System, compete, scores

PLAIN, REPLACES = "plain", "PosUnk"
TESTS = ("test", "test-names")


def words_of(path: Path) -> set[str]:
    return {word for line in path.read_text(encoding="utf-8").splitlines() for word in line.split()}


def names_written(tested: Examined, outputs: list[str]) -> tuple[int, int]:
    """Of the words that no training target has and that stand in source and target: how many outputs have them, of how many."""
    train = tested.whole.data.train
    assert train is not None
    known, right, asked = words_of(train.file_of("target")), 0, 0
    for (source, target), output in zip(tested.rows, outputs, strict=True):
        for name in (set(target.split()) & set(source.split())) - known:
            asked += 1
            right += name in output.split()
    return right, asked


def judge(tested: Examined, **settings: Any) -> Row:
    if tested.test not in TESTS and "test-names" in tested.whole.data.test:
        return {}
    decoding = tested.model.settings(**settings)
    outputs = tested.model.generate([row[0] for row in tested.rows], **settings)
    right, asked = names_written(tested, outputs)
    percent = {f"{tested.test} new names, %": round(100 * right / asked, 2)} if asked else {}
    return {**scores(tested, ["bleu"], decoding), f"{tested.test} new names": asked, **percent}


def trial(asked: Asked, name: str, seed: int, run: Path) -> Row:
    """PosUnk decodes otherwise what `plain` has trained: it shares its run."""
    if name != REPLACES:
        return CONTEST.trial(asked, name, seed, run)
    there = asked.directory / f"{PLAIN}-{seed}"
    return compete(CONTEST.systems[PLAIN], asked, seed, there, lambda tested: judge(tested, replace_unknown=True))


CONTEST = Contest(
    title="Names never seen, with and without copying",
    systems={
        PLAIN: System("demo"),
        REPLACES: System("demo"),
        "copy-added": System("latin-copy", ["model.decoder.copy_words=added"]),
        "copy-gated": System("latin-copy", ["model.decoder.copy_words=gated"]),
    },
    judge=judge,
    columns=["test BLEU", "test-names BLEU", "test-names new names, %"],
    drawn=["test-names BLEU", "test-names new names, %"],
    claims=[
        Claim(
            "we want the ability to generate words that are not in the training set by copying (000, Copying)",
            [PLAIN, "copy-added"],
            lambda figure: figure("copy-added", "test-names new names, %") > figure(PLAIN, "test-names new names, %") + 20,
        ),
        Claim(
            "PosUnk helps (001, Deep-Att + PosUnk)",
            [PLAIN, REPLACES],
            lambda figure: figure(REPLACES, "test-names BLEU") > figure(PLAIN, "test-names BLEU"),
        ),
    ],
    notes=["of names that stand in source and reference alike; a name that Latin declines cannot be copied whole",
           "PosUnk replaces words written as unknown; where the vocabulary has all of training, none is ever written",
        "the copying systems see one in ten shared words hidden in training (training.unknown_words)"],
)  # fmt: skip
EXPERIMENT = Experiment(
    settings={
        "smoke": smoke(SMOKE, **{"test rows": 12}),
        "quick": Setting(
            "some eight minutes on two cores, less training than the recipes ask for",
            changes=["training.updates=600", "training.validate_every=600", "training.save_every=600", "decoding.beam=1"],
        ),
        "full": Setting("the recipes as they stand, three seeds; not run yet", seeds=3),
    },
    names=lambda: list(CONTEST.systems),
    trial=trial,
    report=CONTEST.report,
)
