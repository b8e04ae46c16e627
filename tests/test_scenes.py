"""The corpus `scenes`: pictures are what is written of them, boxes hold what words name, and what is looked at is judged."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from regard.corpora import CORPORA, generate, write
from regard.corpora.corpus import Pair
from regard.corpora.scenes import BACKGROUND, COLOURS, HELD_OUT, SHAPES, SIDE, boxes, picture, things
from regard.data.boxes import Box, parse_boxes, read_boxes
from regard.errors import DataError, UserError
from regard.evaluation.intervals import with_interval
from regard.evaluation.metrics import METRICS

SCENES = CORPORA["scenes"]


@pytest.fixture(scope="module")
def splits():
    return generate(SCENES, seed=1, size=600)


def seen(pixels: np.ndarray) -> dict[tuple[str, Box], np.ndarray]:
    """Each patch of one colour in a picture, by flooding: its colour, its box, and its pixels in there."""
    names = {value: name for name, value in COLOURS.items()}
    left = {(int(y), int(x)) for y, x in zip(*np.nonzero((pixels != BACKGROUND).any(axis=2)), strict=True)}
    found = {}
    while left:
        border, patch = [left.pop()], set()
        while border:
            y, x = border.pop()
            patch.add((y, x))
            near = {(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)} & left
            left -= near
            border += near
        rows, columns = [y for y, _ in patch], [x for _, x in patch]
        box = Box(min(columns), min(rows), max(columns) + 1, max(rows) + 1)
        colours = {tuple(pixels[y, x].tolist()) for y, x in patch}
        assert len(colours) == 1
        form = np.zeros((box.bottom - box.top, box.right - box.left), bool)
        for y, x in patch:
            form[y - box.top, x - box.left] = True
        found[names[colours.pop()], box] = form
    return found


def shape_of(form: np.ndarray) -> str:
    """By its corners and by how full it is, in other words than those that drew it."""
    corners = [form[0, 0], form[0, -1], form[-1, 0], form[-1, -1]]
    if all(corners):
        return "square"
    if corners == [False, False, True, True]:
        return "triangle"
    return "circle" if form.mean() > 0.65 else "cross"


def test_a_picture_shows_what_its_caption_says(splits: dict[str, list[Pair]]) -> None:
    for pair in [*splits["train"][:200], *splits["test-new"][:50]]:
        patches = seen(picture(pair.source))
        words, found = pair.target.split(), boxes(pair.source)
        assert len(patches) == len(found)
        for thing, box in enumerate(found):
            colour, shape = (words[word] for at, word in pair.alignment if at == thing)
            assert shape_of(patches[colour, Box(*box)]) == shape
        sizes = [right - left for left, _, right, _ in found]
        assert sizes == sorted(sizes, reverse=True)
        assert len(set(sizes)) == len(sizes)


def test_the_first_thing_stands_as_the_caption_says(splits: dict[str, list[Pair]]) -> None:
    """By the middles of boxes; a way that is longer by little is never drawn."""
    relations = Counter()
    for pair in splits["train"]:
        said = re.findall("left of|right of|above|below", pair.target)
        first, *others = [((left + right) / 2, (top + bottom) / 2) for left, top, right, bottom in boxes(pair.source)]
        for place, other in zip(said, others, strict=True):
            across, down = first[0] - other[0], first[1] - other[1]
            true = {"left of": across < 0, "right of": across > 0, "above": down < 0, "below": down > 0}
            assert true[place]
            assert (abs(across) > abs(down)) == (place in ("left of", "right of"))
            relations[place] += 1
    assert min(relations.values()) > 0.2 * relations.total()


def test_each_number_of_things_is_as_frequent_and_no_two_meet(splits: dict[str, list[Pair]]) -> None:
    counts = Counter(len(pair.source.split()) for pair in splits["train"])
    assert counts.keys() == {1, 2, 3}
    assert min(counts.values()) > 0.25 * counts.total()
    for pair in splits["train"]:
        painted = sum(len(form[form]) for form in seen(picture(pair.source)).values())
        assert painted == sum(int((picture(str(thing)) != BACKGROUND).any(axis=2).sum()) for thing in things(pair.source))


def test_colours_of_shapes_are_held_out(splits: dict[str, list[Pair]]) -> None:
    met = {split: {thing[:2] for pair in pairs for thing in things(pair.source)} for split, pairs in splits.items()}
    assert all(met[split].isdisjoint(HELD_OUT) for split in ("train", "valid", "test"))
    assert met["train"] == {(colour, shape) for colour in COLOURS for shape in SHAPES} - HELD_OUT
    assert all(HELD_OUT & {thing[:2] for thing in things(pair.source)} for pair in splits["test-new"])


def test_written_files_hold_pictures_captions_and_boxes(splits: dict[str, list[Pair]], tmp_path: Path) -> None:
    paths = write(SCENES, tmp_path, seed=1, size=20)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for parts in paths.values() for path in parts.values()}
    for split, parts in paths.items():
        pairs = splits[split][:20] if split == "train" else splits[split]
        pictures, captions = np.load(parts["source"]), parts["target"].read_text().splitlines()
        assert pictures.shape == (len(pairs), SIDE, SIDE, 3)
        for found, pair in zip(pictures[:20], pairs[:20], strict=True):
            np.testing.assert_array_equal(found, picture(pair.source))
        assert captions == [pair.target for pair in pairs]
        for known, pair in zip(read_boxes(parts["boxes"], captions), pairs, strict=True):
            assert known == {word: boxes(pair.source)[thing] for thing, word in pair.alignment}
    before = paths["train"]["source"].stat().st_mtime_ns
    write(SCENES, tmp_path, seed=1, size=20)
    assert paths["train"]["source"].stat().st_mtime_ns == before
    with pytest.raises(UserError, match=r"train\.(npy|caption): a file with (other pictures|another text) stands there"):
        write(SCENES, tmp_path, seed=2, size=20)


def test_golden_scene() -> None:
    """Seed 1 must mean the same for ever: made by `generate(CORPORA["scenes"], 1, 1)["train"][0]`."""
    assert generate(SCENES, seed=1, size=1)["train"][0] == GOLDEN


BAD = {
    "2:3,4,14": "is not a box; write word:left,top,right,bottom",
    "1:4,4,4,9": "holds no pixel",
    "x": "is not a box",
    "9:0,0,5,5": "a box of word 9, and the target has 3 words (counted from 0)",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_boxes_are_told_with_their_line(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.boxes").write_text(f"1:0,0,5,5\n{line}\n")
    with pytest.raises(DataError, match=f"a.boxes:2: .*{re.escape(BAD[line])}"):
        read_boxes(tmp_path / "a.boxes", ["a red circle"] * 2)
    (tmp_path / "a.boxes").write_text("1:0,0,5,5\n\n")
    with pytest.raises(DataError, match=r"a\.boxes: \d lines of boxes for 5 rows"):
        read_boxes(tmp_path / "a.boxes", ["a red circle"] * 5)


def test_pointing_counts_points_inside() -> None:
    """Three of four words that have a box; edges: left and top are inside, right and bottom are not."""
    truth = [parse_boxes("1:2,2,6,8 2:2,2,6,8", ""), parse_boxes("0:0,0,4,4", ""), parse_boxes("4:0,0,4,4", ""), {}]
    found = [[(0, 0), (2, 2), (5.9, 7.9)], [(4, 0)], [(1, 1)], [(9, 9)]]
    score = with_interval(METRICS["pointing"], found, truth)
    assert score.value == pytest.approx(100 * 2 / 4)
    assert METRICS["pointing"](found[:1], truth[:1]).value == 100
    assert score.interval is not None
    assert 0 <= score.interval[0] <= 50 <= score.interval[1] <= 100


GOLDEN = Pair("blue-cross-14-17-7 blue-square-29-10-4", "a blue cross left of a blue square", ((0, 1), (0, 2), (1, 6), (1, 7)))
