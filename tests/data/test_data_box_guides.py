"""Boxes as guides: a token's box becomes shares of regions, by counting painted pixels one by one."""

from pathlib import Path

import numpy as np
import pytest

from regard.data.batching import collate, pad_to_multiple
from regard.data.boxes import Regions, parse_boxes
from regard.data.fields import Image, Text
from regard.data.readers import BadRows
from regard.data.store import Store, prepare
from regard.data.tokenizers import train_tokenizer
from regard.errors import DataError, RecipeError, UserError
from regard.preflight import check
from regard.recipe import Pairs, Tokenizer, read

HEIGHT, WIDTH = 10, 15
REGIONS = Regions(3, 4, 4, 4)  # the last line and the last column reach over the border of the image
TARGETS = ["red dot left", "no box", "blue bar", "dot"]
BOXES = ["0:0,0,5,9 1:3,2,4,3", "", "1:11,7,15,10", "0:14,0,99,99"]
LETTERS, WORDS = (train_tokenizer(Tokenizer(kind=kind), TARGETS) for kind in ("character", "word"))


def painted(box, regions: Regions) -> np.ndarray:
    """The share of a box's pixels that each region has."""
    left, top, right, bottom = box
    image = np.zeros((regions.rows * regions.height, regions.columns * regions.width))
    image[top:bottom, left:right] = 1
    cells = [
        image[row * regions.height : (row + 1) * regions.height, column * regions.width : (column + 1) * regions.width].sum()
        for row in range(regions.rows)
        for column in range(regions.columns)
    ]
    return np.array(cells) / max(image.sum(), 1)


@pytest.mark.parametrize("regions", [REGIONS, Regions(1, 1, 7, 9), Regions(5, 2, 3, 8)])
def test_shares_are_counts_of_pixels(regions):
    chance = np.random.default_rng(1)
    corners = chance.integers(0, [regions.columns * regions.width, regions.rows * regions.height], (50, 2))
    boxes = np.concatenate([corners, corners + chance.integers(1, 12, (50, 2))], axis=1)
    shares = regions.shares(boxes.astype(float))
    np.testing.assert_allclose(shares, [painted(box, regions) for box in boxes])
    np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_a_box_outside_has_no_share():
    assert not REGIONS.shares(np.array([[99.0, 0, 120, 5], [0, 30, 5, 40]])).any()


def made(folder: Path, tokenizer=LETTERS, targets=TARGETS, boxes=BOXES, times=1, **asked) -> Store:
    """Of images that have so many times the pixels that are read."""
    np.save(folder / "a.npy", np.zeros((len(TARGETS), times * HEIGHT, times * WIDTH, 1), np.uint8))
    (folder / "b").write_text("".join(f"{line}\n" for line in targets))
    (folder / "boxes").write_text("".join(f"{line}\n" for line in boxes))
    pairs = Pairs(source=folder / "a.npy", target=folder / "b", boxes=folder / "boxes")
    fields = {"source": Image(HEIGHT, WIDTH, 1, "scale"), "target": Text(tokenizer)}
    asked = {"max_length": 50, "bad_rows": BadRows("skip"), "links": True, "regions": REGIONS, **asked}
    return prepare(folder / "store", pairs, fields, **asked)


def by_hand(target: str, line: str, letters: bool) -> list[np.ndarray]:
    """For each token of a target; a blank belongs to the word that follows it."""
    boxes = {int(part.split(":")[0]): tuple(map(int, part.split(":")[1].split(","))) for part in line.split()}
    words = [target[: at + 1].count(" ") for at in range(len(target))] if letters else range(len(target.split()))
    return [painted(boxes[word], REGIONS) if word in boxes else np.zeros(12) for word in words]


def check_store(store: Store, targets, boxes, letters=True) -> None:
    dense = collate(store, np.arange(len(store)))["links"].values
    assert dense.dtype == np.float32
    assert dense.shape == (len(targets), collate(store, np.arange(len(store)))["target"].values.shape[1], 12)
    for found, target, line in zip(dense, targets, boxes, strict=True):
        expected = by_hand(target, line, letters)
        np.testing.assert_allclose(found[: len(expected)], expected, rtol=1e-6)
        assert not found[len(expected) :].any()  # ends and padding


def test_all_tokens_of_a_word_have_its_box(tmp_path):
    check_store(made(tmp_path), TARGETS, BOXES)


def test_words_without_a_box_have_no_guide(tmp_path):
    store = made(tmp_path, WORDS)
    check_store(store, TARGETS, BOXES, letters=False)
    wider = pad_to_multiple(collate(store, np.arange(4)), 8, 8, "target")["links"].values
    assert wider.shape == (8, 8, 16)
    np.testing.assert_array_equal(wider[:4, :4, :12], collate(store, np.arange(4))["links"].values)


def test_boxes_are_scaled_with_their_image(tmp_path):
    doubled = [" ".join(f"{one.split(':')[0]}:{','.join(str(2 * int(side)) for side in one.split(':')[1].split(','))}"
                        for one in line.split()) for line in BOXES]  # fmt: skip
    check_store(made(tmp_path, boxes=doubled, times=2), TARGETS, BOXES)


def test_rows_left_out_take_their_boxes_along(tmp_path):
    store = made(
        tmp_path, targets=[TARGETS[0], "long " * 20, "", TARGETS[3]], boxes=[BOXES[0], "0:0,0,3,3", "nonsense", BOXES[3]]
    )
    assert [int(line) for line in store.lines] == [1, 4]
    check_store(store, [TARGETS[0], TARGETS[3]], [BOXES[0], BOXES[3]])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("0:15,0,16,4", r"boxes:2: the box 15,0,16,4 lies outside of the image, which is 15 pixels wide and 10 high"),
        ("0:0,10,16,14", r"boxes:2: the box 0,10,16,14 lies outside"),
        ("2:0,0,4,4", r"boxes:2: a box of word 2, and the target has 2 words"),
        ("1-1", r"boxes:2: '1-1' is not a box"),
        ("1:0,0,4,4 1:5,5,6,6", r"boxes:2: word 1 has two boxes"),
    ],
)
def test_a_box_that_cannot_be_used_is_named(tmp_path, line, told):
    with pytest.raises(DataError, match=told):
        made(tmp_path, boxes=[BOXES[0], line, *BOXES[2:]])


@pytest.mark.parametrize("lines", [3, 5])
def test_as_many_lines_as_rows(tmp_path, lines):
    with pytest.raises(DataError, match=rf"boxes: {lines} lines of boxes for the 4 rows"):
        made(tmp_path, boxes=[*BOXES, ""][:lines])


def test_other_regions_make_the_store_anew(tmp_path):
    made(tmp_path)
    store = made(tmp_path, regions=Regions(2, 3, 5, 5))
    assert collate(store, np.arange(4))["links"].values.shape[2] == 6


def test_boxes_are_for_images(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "boxes").write_text("0:0,0,1,1\n")
    pairs = Pairs(source=tmp_path / "a", target=tmp_path / "b", boxes=tmp_path / "boxes")
    fields = {"source": Text(WORDS), "target": Text(WORDS)}
    with pytest.raises(UserError, match=r"the source is of kind `text`: name data\.train\.alignment"):
        prepare(tmp_path / "store", pairs, fields, max_length=9, bad_rows=BadRows("stop"), links=True)


def test_images_that_move_away_from_their_boxes_are_refused():
    with pytest.raises(RecipeError, match=r"augment.shift moves images"):
        check(read("scenes", ["training.penalties.guided=1", "training.augment.shift=2"]))


def test_a_word_has_one_box():
    assert parse_boxes("1:2,3,4,5 0:1,1,2,2", "") == {1: (2, 3, 4, 5), 0: (1, 1, 2, 2)}
