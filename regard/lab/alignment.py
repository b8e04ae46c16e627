"""Alignment for free: the alignment error rate of every score, scope and selection, on generated Latin or given gold data."""

from collections.abc import Mapping

from regard.lab.contest import Claim, Contest
from regard.lab.experiment import Asked, Experiment, Report, Row, Setting, smoke
from regard.lab.systems import SMOKE, Examined, System, scores
from regard.nn.attention import SCOPES, SCORES, SELECTIONS

PARTS: dict[str, Mapping[str, object]] = {"score": SCORES, "scope": SCOPES, "selection": SELECTIONS}
AER = "test alignment error_rate"
CHANCE = 0.8  # about the error of links drawn at random, on generated Latin


def systems() -> dict[str, System]:
    """The recipe with one entry of one table; entries of other people too."""
    return {
        f"{part}-{name}": System("demo", [f"model.decoder.attention.{part}={name}"])
        for part, table in PARTS.items()
        for name in table
    }


def judge(tested: Examined) -> Row:
    links = ["aer", "alignment_precision", "alignment_recall"] if tested.pairs.alignment is not None else []
    return scores(tested, ["bleu", *links])


def contest() -> Contest:
    return Contest(
        title="Alignment by attention, learned without ever being taught",
        systems=systems(),
        judge=judge,
        columns=[AER, "test alignment precision", "test alignment recall", "test BLEU"],
        drawn=[AER, "test BLEU"],
        claims=[
            Claim(
                "we get (soft) alignment for free (002): additive attention, below 0.3 where chance is about 0.8",
                ["score-additive"],
                lambda figure: figure("score-additive", AER) < 0.3 < CHANCE,
            ),
            Claim(
                "location-based attention only depends on the target position (001): it aligns worse than additive attention",
                ["score-additive", "score-location"],
                lambda figure: figure("score-location", AER) > figure("score-additive", AER),
            ),
        ],
    )


def trial(asked: Asked, name: str, seed: int, run: object) -> Row:
    return contest().trial(asked, name, seed, asked.directory / f"{name}-{seed}")


def report(asked: Asked, rows: list[Row]) -> Report:
    return contest().report(asked, rows)


EXPERIMENT = Experiment(
    settings={
        "smoke": smoke(SMOKE, **{"test rows": 12}),
        "quick": Setting(
            "some ten minutes on two cores for three names, less training than the recipe asks for",
            changes=["training.updates=600", "training.validate_every=600", "training.save_every=600", "decoding.beam=1"],
        ),
        "full": Setting("the recipe as it stands, three seeds; not run yet", seeds=3),
    },
    names=lambda: list(systems()),
    trial=trial,
    report=report,
)
