"""Images that change from step to step: the truth stays, and each change is a function of (seed, step, row)."""

import numpy as np
import pytest

from regard.data.augment import AUGMENTATIONS, augment
from regard.data.batching import Batch, Column


def drawn():
    """A form of 5 x 4 pixels in a picture of 12 x 16, its border empty."""
    picture = np.full((12, 16, 3), 9, np.uint8)
    picture[2:7, 8:12] = np.random.default_rng(1).integers(10, 255, (5, 4, 3))
    return picture


def chances():
    return (np.random.default_rng(number) for number in range(300))


def test_a_shift_moves_everything_and_loses_nothing():
    """All places within reach and within the picture occur, and no other."""
    picture, places = drawn(), set()
    for chance in chances():
        found = AUGMENTATIONS["shift"](picture, 3.0, chance)
        rows, columns = np.nonzero((found != 9).all(axis=2))
        top, left = rows.min(), columns.min()
        np.testing.assert_array_equal(found[top : top + 5, left : left + 4], picture[2:7, 8:12])
        assert (found != 9).any(axis=2).sum() == 20
        places.add((int(top) - 2, int(left) - 8))
    assert places == {(down, across) for down in range(-2, 4) for across in range(-3, 4)}


def test_an_empty_picture_and_a_full_one_stay():
    """And one of which nobody can say what of it is empty: its corners differ."""
    full = np.arange(4 * 5 * 1, dtype=np.uint8).reshape(4, 5, 1)
    edge = np.zeros((4, 5, 1), np.uint8)
    edge[:, 0] = 60
    for picture in (np.full((4, 5, 1), 7, np.uint8), full, edge):
        for chance in chances():
            np.testing.assert_array_equal(AUGMENTATIONS["shift"](picture, 2.0, chance), picture)


def test_brightness_is_one_factor():
    picture = np.full((4, 5, 3), 100, np.uint8)
    levels = [set(AUGMENTATIONS["brightness"](picture, 0.2, chance).flatten().tolist()) for chance in chances()]
    assert all(len(level) == 1 for level in levels)
    each = [level.pop() for level in levels]
    assert (min(each), max(each)) == (80, 120)
    assert np.mean(each) == pytest.approx(100, abs=3)


def test_noise_has_its_spread():
    picture = np.full((50, 50, 3), 128, np.uint8)
    found = AUGMENTATIONS["noise"](picture, 0.04, np.random.default_rng(1)).astype(float)
    assert found.std() == pytest.approx(0.04 * 255, rel=0.05)
    assert found.mean() == pytest.approx(128, abs=0.5)
    assert AUGMENTATIONS["noise"](np.full((9, 9, 1), 255, np.uint8), 0.2, np.random.default_rng(1)).max() == 255


def test_every_augmentation_is_here():
    assert AUGMENTATIONS.keys() == {"shift", "brightness", "noise"}


def batch(rows):
    values = np.stack([np.roll(drawn(), row, axis=0) for row in rows])
    columns = {"source": Column(values, times=0), "target": Column(np.ones((len(rows), 2), np.int64))}
    return Batch(columns, np.array(rows))


def test_a_change_depends_on_seed_step_and_row_alone():
    amounts = {"shift": 2.0, "noise": 0.1, "brightness": 0.3}
    found = augment(batch([0, 1, 2]), amounts, seed=3, step=7)
    other = augment(batch([2, 0]), amounts, seed=3, step=7)
    np.testing.assert_array_equal(other["source"].values, found["source"].values[[2, 0]])
    assert found["target"] is not None
    np.testing.assert_array_equal(found["target"].values, batch([0, 1, 2])["target"].values)
    for seed, step in ((3, 8), (4, 7)):
        assert not np.array_equal(augment(batch([0, 1, 2]), amounts, seed, step)["source"].values, found["source"].values)
