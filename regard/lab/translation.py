"""The systems of lecture 001's table of translation under one budget: BLEU, parameters, FLOPs, speed, beside its columns."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from regard.lab.contest import Claim, Contest, Figure
from regard.lab.experiment import Asked, Experiment, Row, Setting, smoke
from regard.lab.systems import Examined, System, recipe_of, scores, trained
from regard.planning.plan import plan

LATIN = ("data.corpus={name: latin}",)
BIG = [f"model.{side}.{key}" for side in ("encoder", "decoder") for key in ("hidden_size=512", "feedforward_size=1024")]
SYSTEMS = {
    "bytenet": System("bytenet2016-small", data=LATIN),
    "deepatt-posunk": System("deepatt2016-small", ["decoding.replace_unknown=true"], LATIN),
    "gnmt": System("gnmt2016-small", data=LATIN),
    "gnmt-rl": System("gnmt2016-rl-small", data=LATIN),
    "convs2s": System("convs2s2017-small", data=LATIN),
    "moe": System("shazeer2017-moe-small", data=LATIN),
    "transformer": System("vaswani2017-small", data=LATIN),
    "transformer-big": System("vaswani2017-small", data=LATIN, sizes=BIG),
}
# English-German and English-French BLEU, and training FLOPs, as the lecture prints them (Vaswani et al. 2017, table 2)
LECTURE = {
    "bytenet": ("23.75", "", "", ""),
    "deepatt-posunk": ("", "39.2", "", "1.0e20"),
    "gnmt-rl": ("24.6", "39.92", "2.3e19", "1.4e20"),
    "convs2s": ("25.16", "40.46", "9.6e18", "1.5e20"),
    "moe": ("26.03", "40.56", "2.0e19", "1.2e20"),
    "transformer": ("27.3", "38.1", "3.3e18", ""),
    "transformer-big": ("28.4", "41.8", "2.3e19", ""),
}


def judge(flops: float, tested: Examined) -> Row:
    return {**scores(tested, ["bleu", "chrf", "loss"]), "training FLOPs": flops}


def trial(asked: Asked, name: str, seed: int, run: Path) -> Row:
    """What reinforcement refines is `gnmt` of the same seed, which it shares."""
    system, flops = sized(name, asked), 0.0
    if name == "gnmt-rl":
        start, recipe = asked.directory / f"gnmt-{seed}", recipe_of(sized("gnmt", asked), asked, seed)
        trained(recipe, start, asked)
        flops = plan("gnmt", recipe).operations
        updates = asked.setting.values["refine"]
        steps = [f"training.updates={updates}", f"training.validate_every={updates}", f"training.save_every={updates}"]
        system = system._replace(changes=[f"training.start_from={start.absolute()}", *steps])
    flops += plan(name, recipe_of(system, asked, seed)).operations
    there = CONTEST._replace(systems={name: system}, judge=partial(judge, float(f"{flops:.3g}")))
    return there.trial(asked, name, seed, run)


def sized(name: str, asked: Asked) -> System:
    return SYSTEMS[name]._replace(sizes=asked.setting.values.get("widths", {}).get(name, SYSTEMS[name].sizes))


def best(figure: Figure) -> bool:
    others = ("bytenet", "gnmt", "convs2s")
    return figure("transformer", "test BLEU") > max(figure(name, "test BLEU") for name in others)


CONTEST = Contest(
    title="The lecture's table of translation, in small sizes under one budget",
    systems=SYSTEMS,
    judge=partial(judge, 0.0),
    columns=["test BLEU", "test chrF2", "test loss", "training FLOPs"],
    drawn=["test BLEU", "training FLOPs", "tokens/s"],
    claims=[
        Claim(
            "transformers work much better than RNNs in many cases (001)", ["transformer", "bytenet", "gnmt", "convs2s"], best
        )
    ],
    notes=[
        "the lecture's figures are of WMT'14 with models of up to hundreds of millions of parameters: an order, not a target",
        "FLOPs: products of all updates, forward and backward; the lecture's are time x GPUs x what one sustains",
        "gnmt-rl: gnmt, then the setting's `refine` updates for expected GLEU, whose drawn candidates no FLOPs are counted for",
        "the lecture's rows of ensembles are left out",
    ],
    beside=["lecture EN-DE BLEU", "lecture EN-FR BLEU", "lecture EN-DE FLOPs", "lecture EN-FR FLOPs"],
    lecture=LECTURE,
)


def widths(size: int) -> dict[str, Sequence[str]]:
    """All about as wide."""
    recurrent = [f"model.{side}.{key}={size}" for side in ("encoder", "decoder") for key in ("embedding_size", "hidden_size")]
    transformer = [
        f"model.{side}.{key}"
        for side in ("encoder", "decoder")
        for key in (f"hidden_size={size}", f"feedforward_size={2 * size}")
    ]
    layers = ["model.encoder.layers=2", "model.decoder.layers=2"]
    experts = [
        f"model.{side}.experts={{num_experts: 4, top_k: 2, feedforward_size: {size}}}" for side in ("encoder", "decoder")
    ]
    wide = [
        f"model.{side}.{key}"
        for side in ("encoder", "decoder")
        for key in (f"hidden_size={2 * size}", f"feedforward_size={4 * size}")
    ]
    deep = [*recurrent, "model.encoder.layers=3", "model.decoder.layers=2", f"model.encoder.memory_size={size}"]
    return {
        "bytenet": [*recurrent, "model.encoder.sets=1", "model.decoder.sets=1"],
        "deepatt-posunk": deep,
        "gnmt": recurrent,
        "gnmt-rl": recurrent,
        "convs2s": [*recurrent, *layers],
        "moe": [*recurrent, *experts],
        "transformer": [*transformer, *layers],
        "transformer-big": [*wide, *layers],
    }


def budget(updates: int, tokens: int) -> list[str]:
    """The same for all: updates, their size, one validation at the end."""
    each = [f"training.{key}={updates}" for key in ("updates", "validate_every", "save_every")]
    rest = ["training.average=1", "training.precision=float32", f"training.warmup={updates // 5}", "decoding.beam=1"]
    return [*each, f"data.batch_tokens={tokens}", *rest]


TINY = ["data.corpus.size=60", "decoding.max_length=6", "data.tokenizer.size=300"]
EXPERIMENT = Experiment(
    settings={
        "smoke": smoke([*budget(2, 256), *TINY], refine=1, widths=widths(8), **{"test rows": 6}),
        "quick": Setting(
            "one to two minutes for each system on a busy core, sizes of 64: too little training to rank them",
            changes=[*budget(400, 1024), "data.tokenizer.size=1500", "training.learning_rate=0.003"],
            values={"refine": 20, "widths": widths(64)},
            judges=False,
        ),
        "full": Setting(
            "the small recipes on one GPU, three seeds; not run yet",
            seeds=3,
            changes=["training.patience=null", "data.corpus.size=100000"],
            values={"refine": 1000},
        ),
    },
    names=lambda: list(SYSTEMS),
    trial=trial,
    report=CONTEST.report,
)
