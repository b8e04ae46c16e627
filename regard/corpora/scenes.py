"""Pictures of coloured shapes and what stands where in them: `a red circle left of a blue square`; each shape has its box.

A scene is written as a word for each of its shapes, the largest first: `red-circle-12-30-10` has its middle at column 12 of
row 30 and reaches 10 pixels to each side. Its caption begins with the largest shape and says where this one is of each other.
"""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.corpora.corpus import Box, Corpus, Pair, Rendering

SIDE = 48  # pixels of a picture
REACHES = (10, 7, 4)  # from the middle to each side: no two shapes of a scene have the same
APART = 2  # pixels between two shapes
CLEAR = 5  # by so many pixels the way across is longer than the way down, or shorter
BACKGROUND = 24  # grey
COLOURS = {
    "red": (220, 40, 40), "green": (40, 200, 60), "blue": (50, 80, 230), "yellow": (230, 210, 40), "white": (240, 240, 240),
    "purple": (160, 50, 190),
}  # fmt: skip
Grid = npt.NDArray[np.int64]
# which pixels belong to a shape, by how far they are to the right of its middle and below it
SHAPES: dict[str, Callable[[Grid, Grid, int], npt.NDArray[np.bool_]]] = {
    "circle": lambda across, down, reach: across**2 + down**2 <= reach * (reach + 1),
    "square": lambda across, down, reach: np.maximum(abs(across), abs(down)) <= reach,
    "triangle": lambda across, down, reach: (2 * abs(across) <= down + reach) & (down <= reach),
    "cross": lambda across, down, reach: (
        (np.minimum(abs(across), abs(down)) <= reach // 3) & (np.maximum(abs(across), abs(down)) <= reach)
    ),
}
HELD_OUT = {("yellow", "cross"), ("blue", "triangle"), ("white", "square")}  # never together in training


class Thing(NamedTuple):
    """A shape in its place."""

    colour: str
    shape: str
    x: int
    y: int
    reach: int

    def __str__(self) -> str:
        return "-".join(map(str, self))

    @property
    def box(self) -> Box:
        """Left, top, and the first column and row that are outside."""
        return self.x - self.reach, self.y - self.reach, self.x + self.reach + 1, self.y + self.reach + 1


def things(scene: str) -> list[Thing]:
    """Of a scene as it is written."""
    parts = (word.split("-") for word in scene.split())
    return [Thing(colour, shape, *map(int, numbers)) for colour, shape, *numbers in parts]


def picture(scene: str) -> npt.NDArray[np.uint8]:
    pixels = np.full((SIDE, SIDE, 3), BACKGROUND, np.uint8)
    down, across = np.mgrid[:SIDE, :SIDE]
    for thing in things(scene):
        pixels[SHAPES[thing.shape](across - thing.x, down - thing.y, thing.reach)] = COLOURS[thing.colour]
    return pixels


def boxes(scene: str) -> list[Box]:
    return [thing.box for thing in things(scene)]


def where(one: Thing, other: Thing) -> str | None:
    """How the first stands to the other; None: it could be said in two ways."""
    across, down = one.x - other.x, one.y - other.y
    if abs(abs(across) - abs(down)) < CLEAR:
        return None
    if abs(across) > abs(down):
        return "left of" if across < 0 else "right of"
    return "above" if down < 0 else "below"


def overlap(one: Thing, other: Thing) -> bool:
    """Whether their boxes do, or nearly."""
    near = one.reach + other.reach + APART
    return abs(one.x - other.x) <= near and abs(one.y - other.y) <= near


def pair(scene: list[Thing]) -> Pair | None:
    """With links between each thing and the words that name its colour and shape; None if it cannot be said clearly."""
    places = [where(scene[0], other) for other in scene[1:]]
    names = [f"a {thing.colour} {thing.shape}" for thing in scene]
    if None in places or len(set(names)) < len(names):
        return None
    parts = [names[0], *(f"{place} {name}" for place, name in zip(places, names[1:], strict=True))]
    caption = " and ".join([" ".join(parts[:2]), *parts[2:]])
    ends = [place for place, word in enumerate(caption.split()) if word in SHAPES]
    links = tuple((at, word) for at, end in enumerate(ends) for word in (end - 1, end))
    return Pair(" ".join(map(str, scene)), caption, links)


def draw(random: Callable[[], float], reaches: list[int]) -> list[Thing]:
    """A thing of each size, anywhere."""
    scene = list[Thing]()
    for reach in reaches:
        colour, shape = (list(names)[int(random() * len(names))] for names in (COLOURS, SHAPES))
        x, y = (reach + 1 + int(random() * (SIDE - 2 * reach - 2)) for _ in range(2))
        scene.append(Thing(colour, shape, x, y, reach))
    return scene


def scenes(seed: str) -> Iterator[Pair]:
    """One to three things, each as often, without end. Only `random()` is used, which Python keeps the same in all versions."""
    random = Random(seed).random
    while True:
        count = 1 + int(random() * len(REACHES))
        reaches = sorted(sorted(REACHES, key=lambda _: random())[:count], reverse=True)
        made = None
        while made is None:
            scene = draw(random, reaches)
            if not any(overlap(one, other) for at, one in enumerate(scene) for other in scene[:at]):
                made = pair(scene)
        yield made


def new_pairs(seed: str, new: bool) -> Iterator[Pair]:
    """Scenes with a colour and a shape that training never shows together, or without."""
    found = ((one, any((thing.colour, thing.shape) in HELD_OUT for thing in things(one.source))) for one in scenes(seed))
    return (one for one, has in found if has is new)


SCENES = Corpus(
    name="scenes",
    about="Pictures of coloured shapes and their captions, with the box of each shape; a test of new colours of shapes",
    source_suffix="npy",
    target_suffix="caption",
    sizes={"train": 12000, "valid": 500, "test": 500, "test-new": 300},
    draw=partial(new_pairs, new=False),
    own={"test-new": partial(new_pairs, new=True)},
    rendering=Rendering((SIDE, SIDE, 3), picture, boxes),
)
