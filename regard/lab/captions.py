"""Captions of generated pictures: soft attention, hard attention and none, and where they looked."""

from regard.lab.contest import Claim, Contest, Figure
from regard.lab.experiment import Setting, smoke
from regard.lab.systems import Examined, System, scores

SCENES = (
    "data.corpus={name: scenes}", "data.fields={source: {kind: image, height: 48, width: 48, channels: 3}}",
    "data.tokenizer={kind: word, size: 100}", "training.augment={}",
)  # fmt: skip


def judge(tested: Examined) -> dict[str, float]:
    names = ["exact", "bleu", "loss", *(["pointing"] if tested.model.has_attention and tested.pairs.boxes else [])]
    return scores(tested, names)


def generalises_better(figure: Figure) -> bool | None:
    """Of two that know what they were trained on about equally well; REINFORCE learns more slowly, which is another matter."""
    if figure("hard", "test exact") < 0.9 * figure("soft", "test exact"):
        return None
    return figure("hard", "test-new exact") > figure("soft", "test-new exact")


CONTEST = Contest(
    title="Captions with soft attention, hard attention and none",
    systems={
        "soft": System("xu2015-small", data=SCENES),
        "hard": System("xu2015-hard-small", data=SCENES),
        "none": System("vinyals2015-small", data=SCENES),
    },
    judge=judge,
    columns=["test exact", "test BLEU", "test pointing", "test-new exact", "test-new BLEU", "test-new pointing"],
    drawn=["test exact", "test BLEU", "test pointing"],
    claims=[
        Claim(
            "attention focuses on regions: better captions than from one vector (001, Xu et al. 2015)",
            ["soft", "none"],
            lambda figure: figure("soft", "test exact") > figure("none", "test exact"),
        ),
        Claim(
            "hard attention is not differentiable, but sometimes generalises better (000): test-new",
            ["soft", "hard"],
            generalises_better,
        ),
    ],
    notes=[
        "pointing: the share of words with a box for which the region looked at most has its middle in that box",
        "hard attention is taught by REINFORCE; test-new is compared where both know test about equally well",
    ],
)


def budget(updates: int, rows: int, size: int, channels: str) -> list[str]:
    """Small pictures, so that two cores can do it."""
    return [
        f"data.corpus.size={rows}", "data.batch_tokens=512", f"training.updates={updates}", "training.warmup=20",
        "training.label_smoothing=0", f"training.validate_every={updates}", f"training.save_every={updates}",
        "training.learning_rate=0.003", "decoding.beam=1", f"model.encoder.input.channels={channels}",
        "model.encoder.input.strides=[2, 2, 1, 1]", f"model.encoder.embedding_size={size}",
        f"model.decoder.embedding_size={size}", f"model.decoder.hidden_size={2 * size}", "model.encoder.dropout=0",
        "model.decoder.dropout=0", "model.encoder.input.dropout=0",
    ]  # fmt: skip


EXPERIMENT = CONTEST.experiment({
    "smoke": smoke([*budget(2, 40, 8, "[4, 4, 4, 4]"), "decoding.max_length=8"], **{"test rows": 6}),
    "quick": Setting("some ten minutes on two cores", changes=budget(400, 3000, 48, "[12, 24, 48, 48]")),
    "full": Setting(
        "the recipes of Xu et al. and Vinyals et al. in their small sizes, three seeds; not run yet", seeds=3,
    ),
})  # fmt: skip
