"""Summaries of long documents: an RNN with attention, T-ED, T-D, T-DMCA and experts; perplexity and ROUGE-L by input length."""

from random import Random

from regard.corpora.files import write_lines
from regard.drafting import Files
from regard.lab.contest import Claim, Contest, Figure
from regard.lab.experiment import Asked, Row, Setting, smoke
from regard.lab.systems import Examined, System, by_length, scores

ENDS = (50, 100, 200, 400, 800)  # words of documents
FEW = 10  # documents that say nothing of a length
PEOPLE = [f"{first}{second}" for first in ("mar", "jul", "ti", "ga", "luc") for second in ("us", "ia", "anus", "illa")]
VERBS = ("sees", "sells", "finds", "paints", "reads", "loses")
THINGS = [f"{colour} {thing}" for colour in ("red", "old", "small") for thing in ("house", "book", "ship", "horse")]
KEY = "topic"


def document(random: Random, words: int) -> tuple[str, str]:
    """`topic julia .` and then sentences on many people; the summary has the two that are on the topic, in their order."""
    topic, others = PEOPLE[int(random.random() * len(PEOPLE))], list[str]()
    said = [sentence(topic, random) for _ in range(2)]
    while sum(len(one.split()) for one in (*others, *said)) + 3 < words:
        others.append(sentence(next(iter(sorted(set(PEOPLE) - {topic}, key=lambda _: random.random()))), random))
    first, second = sorted(int(random.random() * (len(others) + 1)) for _ in range(2))
    body = [*others[:first], said[0], *others[first:second], said[1], *others[second:]]
    return " ".join([f"{KEY} {topic} .", *body]), " ".join(said)


def sentence(person: str, random: Random) -> str:
    return f"{person} {VERBS[int(random.random() * len(VERBS))]} the {THINGS[int(random.random() * len(THINGS))]} ."


def prepare(asked: Asked, name: str) -> Asked:
    """Documents as tables, unless there are own ones."""
    if asked.files.train:
        return asked
    folder, longest = asked.directory / "data", asked.setting.values["words"]
    folder.mkdir(exist_ok=True)
    sections = []
    for split, rows in zip(("train", "valid", "test"), asked.setting.values["rows"], strict=True):
        path = folder / f"{split}.tsv"
        if not path.exists():
            random = Random(f"lab summarisation {split}")
            lengths = [20 + int(random.random() * (longest - 20)) for _ in range(rows)]
            write_lines(path, ("\t".join(document(random, length)) for length in lengths))
        sections.append({"pairs": str(path.absolute())})
    return asked._replace(files=Files(*sections))


def judge(tested: Examined) -> Row:
    row = scores(tested, ["perplexity", "rougeL"])
    for end, documents, score, _ in by_length(tested, "rougeL", ENDS):
        if documents >= FEW:
            row[f"{tested.test} ROUGE-L, {f'up to {end}' if end else 'longer'}"] = score
    return row


def longer_is_better_read(figure: Figure) -> bool:
    return (
        figure("t-dmca", "test perplexity") < figure("t-ed", "test perplexity") < figure("seq2seq-attention", "test perplexity")
    )


EXPERTS = "model.experts={num_experts: 8, top_k: 2, every: 2}"
CONTEST = Contest(
    title="Summaries of generated documents, by system and by the length of the input",
    systems={
        "seq2seq-attention": System("bahdanau2015-small"),
        "t-ed": System("liu2018-ed-small"),
        "t-d": System("liu2018-d-small"),
        "t-dmca": System("liu2018-dmca-small"),
        "t-dmca-moe": System("liu2018-dmca-small", [EXPERTS]),
    },
    judge=judge,
    columns=["test perplexity", "test ROUGE-L", *(f"test ROUGE-L, up to {end}" for end in ENDS)],
    drawn=["test perplexity", "test ROUGE-L", *(f"test ROUGE-L, up to {end}" for end in ENDS)],
    claims=[
        Claim(
            "perplexity falls from seq2seq-attention to T-ED to T-DMCA (001, Text summarization)",
            ["seq2seq-attention", "t-ed", "t-dmca"],
            longer_is_better_read,
        ),
        Claim(
            "experts lower it further (001)",
            ["t-dmca", "t-dmca-moe"],
            lambda figure: figure("t-dmca-moe", "test perplexity") < figure("t-dmca", "test perplexity"),
        ),
    ],
    notes=["all systems read the whole document, where the lecture's read 500 to 11,000 words of many",
           f"lengths of fewer than {FEW} documents are left out",
           "perplexity is per token of each system's own vocabulary; the lecture's figures are of Wikipedia's articles"],
    prepare=prepare,
    beside=["lecture perplexity", "lecture ROUGE-L"],
    lecture={
        "seq2seq-attention": ("5.04952", "12.7"), "t-ed": ("2.46645", "34.2"), "t-d": ("2.22216", "33.6"),
        "t-dmca": ("2.05159", "36.2"), "t-dmca-moe": ("1.92871 (128)", "37.9 (128)"),
    },
)  # fmt: skip


def budget(updates: int, tokens: int, size: int) -> dict[str, list[str]]:
    """Changes for all, and the sizes of each."""
    transformer = [f"model.hidden_size={size}", f"model.feedforward_size={2 * size}", "model.layers=2", "model.dropout=0"]
    sides = [f"model.{side}.{key}" for side in ("encoder", "decoder") for key in
             (f"hidden_size={size}", f"feedforward_size={2 * size}", "layers=2", "dropout=0")]  # fmt: skip
    recurrent = [f"model.{side}.{key}={size}" for side in ("encoder", "decoder") for key in ("embedding_size", "hidden_size")]
    return {
        "seq2seq-attention": recurrent,
        "t-ed": sides,
        **dict.fromkeys(("t-d", "t-dmca", "t-dmca-moe"), transformer),
        "all": [
            f"training.updates={updates}", f"training.validate_every={updates}", f"training.save_every={updates}",
            f"data.batch_tokens={tokens}", "data.tokenizer={kind: word, size: 200, shared: true}", "training.warmup=20",
            "training.average=1", "training.precision=float32", "decoding.beam=1", "training.label_smoothing=0",
        ],
    }  # fmt: skip


TINY, SMALL = budget(2, 512, 8), budget(400, 2048, 64)
EXPERIMENT = CONTEST.experiment({
    "smoke": smoke([*TINY["all"], "decoding.max_length=4"], rows=[40, 4, 8], words=60, sizes=TINY),
    "quick": Setting(
        "half a minute to two for each system on a busy core",
        changes=[*SMALL["all"], "decoding.max_length=20"],
        values={"rows": [4000, 100, 200], "words": 200, "sizes": SMALL},
    ),
    "full": Setting(
        "the small recipes on one GPU, three seeds, documents of up to 800 words; not run yet",
        seeds=3,
        changes=["data.max_length=1024", "data.tokenizer={kind: word, size: 200, shared: true}"],
        values={"rows": [100_000, 1000, 1000], "words": 800},
    ),
})  # fmt: skip
