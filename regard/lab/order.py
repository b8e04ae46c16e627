"""A bag of embeddings against a recurrent network, where the order of words is all that counts, and where it is nothing."""

from collections.abc import Iterator
from random import Random

from regard.corpora.files import write_lines
from regard.drafting import Files
from regard.lab.contest import Claim, Contest
from regard.lab.experiment import Asked, Setting, smoke
from regard.lab.systems import Examined, System, scores

FILLERS = [f"w{number}" for number in range(30)]
LENGTH = 8


def text(task: str, random: Random) -> tuple[str, str]:
    """`order`: which of `left` and `right` comes first; `presence`: which of them is there. All else are fillers."""
    words = [FILLERS[int(random.random() * len(FILLERS))] for _ in range(LENGTH)]
    first, second = sorted(range(LENGTH), key=lambda _: random.random())[:2]
    words[first], words[second] = "left", "right" if task == "order" else "left"
    if task == "order":
        return " ".join(words), "left" if first < second else "right"
    if random.random() < 0.5:
        words = ["right" if word == "left" else word for word in words]
    return " ".join(words), "left" if "left" in words else "right"


def rows(task: str, split: str, size: int) -> Iterator[str]:
    random = Random(f"lab order {task} {split}")
    return ("\t".join(text(task, random)) for _ in range(size))


def prepare(asked: Asked, name: str) -> Asked:
    """The rows of a name's task as tables, unless there are own ones."""
    if asked.files.train:
        return asked
    task, folder = name.partition("-")[2], asked.directory / "data"
    folder.mkdir(exist_ok=True)
    sections = []
    for split, share in {"train": 1.0, "valid": 0.1, "test": 0.2}.items():
        path = folder / f"{task}-{split}.tsv"
        if not path.exists():
            write_lines(path, rows(task, split, max(10, int(share * asked.setting.values["rows"]))))
        sections.append({"pairs": str(path.absolute()), "columns": {"source": 0, "label": 1}})
    return asked._replace(files=Files(*sections))


def judge(tested: Examined) -> dict[str, float]:
    return scores(tested, ["accuracy", "loss"])


BAG, RNN = System("classifier-bag"), System("classifier")
CONTEST = Contest(
    title="A bag of embeddings against a recurrent network: which of two words comes first, or which is there",
    systems={"bag-order": BAG, "rnn-order": RNN, "bag-presence": BAG, "rnn-presence": RNN},
    judge=judge,
    columns=["test accuracy", "test loss"],
    drawn=["test accuracy"],
    claims=[
        Claim(
            "a bag of words has no ordering information (000)",
            ["bag-order", "rnn-order"],
            lambda figure: figure("bag-order", "test accuracy") < 60 < 90 < figure("rnn-order", "test accuracy"),
        ),
        Claim(
            "where order does not matter the bag is enough (000)",
            ["bag-presence"],
            lambda figure: figure("bag-presence", "test accuracy") > 95,
        ),
    ],
    notes=["half of the rows have each label, so that 50 % is chance"],
    prepare=prepare,
)
TINY = (
    "data.tokenizer.size=100", "model.encoder.embedding_size=8", "data.batch_tokens=256", "training.updates=2",
    "training.validate_every=2", "training.save_every=2",
)  # fmt: skip
SMALL = (
    "data.tokenizer.size=100", "model.encoder.embedding_size=32", "data.batch_tokens=512", "training.updates=200",
    "training.validate_every=200", "training.save_every=200", "training.learning_rate=0.01", "training.warmup=20",
    "training.label_smoothing=0",
)  # fmt: skip


def hidden(size: int) -> dict[str, list[str]]:
    return {name: [f"model.encoder.hidden_size={size}"] for name in ("rnn-order", "rnn-presence")}


EXPERIMENT = CONTEST.experiment({
    "smoke": smoke(TINY, rows=60, sizes=hidden(8)),
    "quick": Setting("a minute on two cores", changes=SMALL, values={"rows": 4000, "sizes": hidden(32)}),
    "full": Setting("the recipes as they stand, five seeds; not run yet", seeds=5, values={"rows": 40_000}),
})  # fmt: skip
