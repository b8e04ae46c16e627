"""How much work a comparison of cells is. SETTINGS names the sizes; every cell gets the same one."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Of one task."""

    parameters: int  # of the whole model: embedding, cell and output layer
    search: int  # updates of one trial of the search
    updates: int  # updates of the model that is tested
    batch: int
    window: int  # steps that the gradient flows through, on a stream


@dataclass(frozen=True)
class Setting:
    about: str
    device: str
    trials: int  # hyperparameters tried for each cell and task
    seeds: int  # models trained with the best of them and tested
    sizes: Mapping[str, Size]  # of each task
    digits: int  # of a number, at the most
    distractors: int  # letters between two characters of a problem, at the most
    depth: int  # tags open at once, at the most
    letters: int  # of a tag's name, at the most
    vocabulary: int  # words told apart
    problems: int  # to train on; a twentieth as many to validate on, and to test on
    characters: int  # of XML, likewise
    sentences: int  # to train on, where the text is generated


SETTINGS: dict[str, Setting] = {
    "smoke": Setting(
        about="seconds, shows no more than that it runs",
        device="cpu",
        trials=2,
        seeds=2,
        sizes={
            "arith": Size(parameters=4_000, search=10, updates=20, batch=16, window=0),
            "xml": Size(parameters=4_000, search=10, updates=20, batch=8, window=16),
            "words": Size(parameters=20_000, search=10, updates=20, batch=8, window=16),
        },
        digits=2,
        distractors=0,
        depth=2,
        letters=4,
        vocabulary=500,
        problems=2_000,
        characters=10_000,
        sentences=400,
    ),
    "quick": Setting(
        about="under ten minutes on two cores, an ordering begins to show",
        device="cpu",
        trials=3,
        seeds=2,
        sizes={
            "arith": Size(parameters=30_000, search=200, updates=500, batch=64, window=0),
            "xml": Size(parameters=30_000, search=120, updates=300, batch=32, window=24),
            "words": Size(parameters=100_000, search=80, updates=200, batch=32, window=20),
        },
        digits=3,
        distractors=0,
        depth=2,
        letters=4,
        vocabulary=2_000,
        problems=40_000,
        characters=300_000,
        sentences=6_000,
    ),
    "overnight": Setting(
        about="meant for a night on two cores",
        device="cpu",
        trials=6,
        seeds=3,
        sizes={
            "arith": Size(parameters=50_000, search=1_500, updates=6_000, batch=64, window=0),
            "xml": Size(parameters=50_000, search=800, updates=3_000, batch=32, window=64),
            "words": Size(parameters=2_000_000, search=200, updates=1_000, batch=16, window=35),
        },
        digits=4,
        distractors=1,
        depth=4,
        letters=10,
        vocabulary=10_000,
        problems=400_000,
        characters=4_000_000,
        sentences=12_000,
    ),
    "gpu": Setting(
        about="some twenty minutes on one H200",
        device="cuda",
        trials=4,
        seeds=3,
        sizes={
            "arith": Size(parameters=100_000, search=250, updates=600, batch=256, window=0),
            "xml": Size(parameters=100_000, search=200, updates=500, batch=128, window=64),
            "words": Size(parameters=5_000_000, search=100, updates=300, batch=128, window=64),
        },
        digits=4,
        distractors=0,
        depth=3,
        letters=10,
        vocabulary=10_000,
        problems=160_000,
        characters=4_000_000,
        sentences=12_000,
    ),
}
