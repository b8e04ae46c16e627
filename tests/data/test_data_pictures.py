"""Columns of images: where they may come from, and what is wrong with some, each with its file and line."""

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from regard.data import pictures
from regard.data.fields import FILES_AT_ONCE, Image, fit_fields, load_field, outlines, read_blocks
from regard.data.pictures import ImageConfig, read_image
from regard.data.readers import BadRows, read_rows
from regard.data.store import Store, prepare
from regard.errors import DataError
from regard.recipe import Data, Pairs
from regard.recipe import Tokenizer as Section

pillow = pytest.importorskip("PIL.Image")
TEXTS = ["a red wall", "a green wall", "a blue wall"]


def wall(number, height=4, width=6):
    picture = np.zeros((height, width, 3), np.uint8)
    picture[..., number] = 200
    return picture


def lines(path, texts):
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def in_a_folder(folder):
    (folder / "walls").mkdir()
    for number, text in enumerate(TEXTS):
        pillow.fromarray(wall(number)).save(folder / "walls" / f"{number}.png")
        (folder / "walls" / f"{number}.txt").write_text(f"{text}\n")
    return Pairs(pairs=folder / "walls")


def in_an_array(folder):
    np.save(folder / "walls.npy", np.stack([wall(number) for number in range(3)]))
    return Pairs(source=folder / "walls.npy", target=lines(folder / "walls.txt", TEXTS))


def in_a_list(folder):
    in_a_folder(folder)
    names = lines(folder / "names.txt", [f"walls/{number}.png" for number in range(3)])
    return Pairs(source=names, target=lines(folder / "texts.txt", TEXTS))


def in_a_table(folder):
    in_a_folder(folder)
    lines(folder / "walls.tsv", [f"walls/{number}.png\t{text}" for number, text in enumerate(TEXTS)])
    return Pairs(pairs=folder / "walls.tsv")


def in_json(folder):
    in_a_folder(folder)
    rows = [f'{{"source": "walls/{number}.png", "target": "{text}"}}' for number, text in enumerate(TEXTS)]
    return Pairs(pairs=lines(folder / "walls.jsonl", rows))


def in_csv_beside_the_images(folder):
    """As the data sets of Hugging Face's `imagefolder` are."""
    in_a_folder(folder)
    lines(folder / "walls" / "metadata.csv", ["file_name,text", *(f"{row}.png,{text}" for row, text in enumerate(TEXTS))])
    return Pairs(pairs=folder / "walls" / "metadata.csv", source_column="file_name", target_column="text")


WAYS = [in_a_folder, in_an_array, in_a_list, in_a_table, in_json, in_csv_beside_the_images]


def fields_of(files, **image):
    data = Data(train=files, tokenizer=Section(kind="word"), fields={"source": {"kind": "image", **image}})
    from regard.data.fields import configure_fields

    return fit_fields(data, configure_fields(data, {"source": "text", "target": "text"}))


def build(folder, files, fields, policy="stop"):
    bad = BadRows(policy, folder / "bad.txt")
    return Store.build(folder / "store", files, fields, max_length=20, bad_rows=bad)


@pytest.mark.parametrize("way", WAYS)
def test_images_come_from(way, tmp_path):
    files = way(tmp_path)
    fields = fields_of(files)
    assert fields["source"].shape == ("image", (4, 6, 3))
    store = build(tmp_path, files, fields)
    assert len(store) == 3
    assert store["source"].values.dtype == np.uint8  # as compact as it is in an image
    for number in range(3):
        np.testing.assert_array_equal(store["source"][number][0], wall(number))
        assert fields["target"].tokenizer.decode(store["target"][number].tolist()) == TEXTS[number]


def test_a_folder_that_changes_is_read_again(tmp_path):
    files = in_a_folder(tmp_path)
    fields, asked = fields_of(files), {"max_length": 20, "bad_rows": BadRows("stop")}
    first = prepare(tmp_path / "store", files, fields, **asked).facts
    assert prepare(tmp_path / "store", files, fields, **asked).facts == first
    (tmp_path / "walls" / "2.txt").write_text("a red wall\n")
    again = prepare(tmp_path / "store", files, fields, **asked)
    assert again.facts["files"] != first["files"]
    assert fields["target"].tokenizer.decode(again["target"][2].tolist()) == "a red wall"


def bomb(side):
    """A PNG of a few hundred bytes that promises side x side pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 9)) + chunk(b"IEND", b"")


def array_bomb():
    """A .npy header that promises a terabyte."""
    text = "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 1000000), }".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


FAULTS = {
    "bomb.png": (bomb(60_000), "its header promises far more than the 67,108,864 pixels"),
    "large.png": (bomb(8_500), "an image of 8,500 x 8,500 pixels, and 67,108,864 are the most: scale it down"),
    "bomb.npy": (array_bomb(), "not an array in .npy format"),
    "cut.png": (None, "not an image that can be read: "),
    "text.png": (b"no image", "not an image that can be read: cannot identify image file"),
    "empty.png": (b"", "not an image that can be read: cannot identify image file"),
    "missing.png": ("missing", "no such file"),
    "other.png": ("other", "an image of [9, 6, 3], and training has [4, 6, 3] (height, width, channels)"),
    "walls.npy#4": ("array", "the array has 3 rows, counted from 1, and no row 4"),
}


def plant(folder, name):
    content = FAULTS[name][0]
    if content == "other":
        pillow.fromarray(wall(0, height=9)).save(folder / "walls" / name)
    elif content == "array":
        np.save(folder / "walls" / "walls.npy", np.stack([wall(number) for number in range(3)]))
    elif content is None:
        (folder / "walls" / name).write_bytes((folder / "walls" / "0.png").read_bytes()[:45])
    elif content != "missing":
        (folder / "walls" / name).write_bytes(content)


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_named_with_its_line(name, tmp_path):
    in_a_folder(tmp_path)
    plant(tmp_path, name)
    files = Pairs(pairs=lines(tmp_path / "t.tsv", ["walls/0.png\tgood", "walls/1.png\tgood", f"walls/{name}\tbad"]))
    told = f"{tmp_path / 't.tsv'}:3: {tmp_path / 'walls' / name}: {FAULTS[name][1]}"
    with pytest.raises(DataError, match=re.escape(told)):
        build(tmp_path, files, fields_of(files))
    store = build(tmp_path, files, fields_of(files), "skip")
    assert (len(store), store.facts["rows_reported"]) == (2, 1)
    assert told in (tmp_path / "bad.txt").read_text()


def test_an_image_without_its_text_is_named(tmp_path):
    files = in_a_folder(tmp_path)
    (tmp_path / "walls" / "1.txt").unlink()
    (tmp_path / "walls" / "2.txt").write_bytes(b"\xff")
    (rows,) = read_rows(files)
    assert rows.lines == [1]
    assert [str(fault) for fault in rows.faults] == [
        f"{tmp_path / 'walls'}:2: 1.png has no text beside it (1.txt): No such file or directory",
        f"{tmp_path / 'walls'}:3: 2.txt: not UTF-8",
    ]


def saved(path, array, mode=None, **options):
    pillow.fromarray(array, mode).save(path, **options) if mode else pillow.fromarray(array).save(path, **options)
    return path


def test_pictures_are_read_as_they_are_looked_at(tmp_path):
    """Transparent is white, deep grey is cut to 8 bits, a photograph stands as its camera says; grey and colours as asked."""
    ink = np.zeros((2, 3, 4), np.uint8)
    ink[0, 0] = [0, 0, 0, 255]
    np.testing.assert_array_equal(read_image(saved(tmp_path / "a.png", ink), (2, 3, 1))[..., 0], [[0, 255, 255], [255] * 3])
    deep = np.array([[0, 256, 65535]], np.uint16)
    np.testing.assert_array_equal(read_image(saved(tmp_path / "b.png", deep))[..., 0], [[0, 1, 255]])
    upright = pillow.Exif()
    upright[0x0112] = 6  # turned by a quarter
    assert read_image(saved(tmp_path / "c.png", np.zeros((2, 5, 3), np.uint8), exif=upright)).shape == (5, 2, 3)
    grey = saved(tmp_path / "d.png", np.full((2, 2), 9, np.uint8))
    assert read_image(grey).shape == (2, 2, 1)
    np.testing.assert_array_equal(read_image(grey, (2, 2, 3)), np.full((2, 2, 3), 9))


FLAG = np.array([[[200, 30, 30]] * 5, [[20, 40, 220]] * 5], np.uint8)
KINDS = {
    "cmyk.tif": ("CMYK", {}), "ycc.tif": ("YCbCr", {}), "palette.png": ("P", {}), "alpha.png": ("RGBA", {}),
    "animated.gif": ("P", {"save_all": True, "append_images": [pillow.new("P", (5, 2), 3)]}),
    "animated.png": ("RGB", {"save_all": True, "append_images": [pillow.new("RGB", (5, 2))]}),
    "pages.tif": ("RGB", {"save_all": True, "append_images": [pillow.new("RGB", (5, 2))]}),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_colours_is_read_and_the_first_picture_of_several(name, tmp_path):
    mode, options = KINDS[name]
    flag = pillow.fromarray(FLAG)
    flag = flag.quantize(8) if mode == "P" else flag.convert(mode)
    flag.save(tmp_path / name, **options)
    assert np.abs(read_image(tmp_path / name).astype(int) - FLAG).max() <= 3
    grey = read_image(tmp_path / name, (2, 5, 1))[..., 0].astype(int)
    assert np.abs(grey - FLAG @ [0.299, 0.587, 0.114]).max() <= 3


def test_grey_stays_grey_where_a_grey_is_transparent(tmp_path):
    ink = saved(tmp_path / "a.png", np.array([[7, 9]], np.uint8), transparency=7)
    np.testing.assert_array_equal(read_image(ink)[..., 0], [[255, 9]])


def test_a_dark_picture_of_16_bits_is_dark(tmp_path):
    """Whatever its brightest pixel is."""
    assert read_image(saved(tmp_path / "a.png", np.full((2, 2), 200, np.uint16))).max() == 0


@pytest.mark.parametrize(
    "values",
    [np.full((2, 2), 0.5, np.float32), np.full((2, 2), np.nan, np.float32), np.full((2, 2), -3, np.float32),
     np.full((2, 2), 1 << 30, np.int32), np.full((2, 2), -5, np.int32)],
)  # fmt: skip
def test_numbers_that_are_no_brightness_are_refused(values, tmp_path):
    """Of 0.5 nobody knows whether 1 or 255 is white."""
    with pytest.raises(DataError, match="its numbers are not 0 to 255 or 0 to 65535: save it with 8 bits"):
        read_image(saved(tmp_path / "a.tif", values))


@pytest.mark.parametrize("values", [np.full((2, 2), 0xABCD, np.int32), np.full((2, 2), 0xAB, np.float32)])
def test_whole_numbers_of_one_or_two_bytes_are_read(values, tmp_path):
    np.testing.assert_array_equal(read_image(saved(tmp_path / "a.tif", values))[..., 0], np.full((2, 2), 0xAB))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_header_tells_how_a_photograph_stands(orientation, tmp_path):
    """So that boxes fall where they belong, and all fit the largest."""
    exif = pillow.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / "a.png", np.zeros((2, 9, 3), np.uint8), exif=exif)
    assert pictures.header(path) == read_image(path).shape[:2]
    small = saved(tmp_path / "b.png", np.zeros((3, 3, 3), np.uint8))
    files = Pairs(source=lines(tmp_path / "n.txt", [small.name, path.name]), target=lines(tmp_path / "t.txt", "ab"))
    fields = fields_of(files, fit="pad")
    assert len(build(tmp_path, files, fields)) == 2


def test_arrays_of_colours_are_grey_as_pillow_has_them(tmp_path):
    colours = np.random.default_rng(1).integers(0, 256, (9, 9, 3), np.uint8)
    np.save(tmp_path / "a.npy", colours)
    theirs = np.asarray(pillow.fromarray(colours).convert("L")).astype(int)
    assert np.abs(read_image(tmp_path / "a.npy", (9, 9, 1))[..., 0].astype(int) - theirs).max() <= 1


def test_images_are_padded_or_scaled(tmp_path):
    small, wide = tmp_path / "small.npy", tmp_path / "wide.npy"
    np.save(small, np.array([[7, 1], [2, 3]], np.uint8))
    np.save(wide, np.full((1, 3), 5, np.uint8))
    np.testing.assert_array_equal(read_image(small, (3, 3, 1), "pad")[..., 0], [[7, 1, 7], [2, 3, 7], [7, 7, 7]])
    with pytest.raises(DataError, match=r"an image of \[2, 2, 1\].*it does not fit in there: raise height and width"):
        read_image(small, (1, 3, 1), "pad")
    np.testing.assert_array_equal(read_image(wide, (2, 2, 1), "scale")[..., 0], [[5, 5], [5, 5]])
    files = Pairs(source=lines(tmp_path / "names.txt", ["small.npy", "wide.npy"]), target=lines(tmp_path / "t.txt", "ab"))
    field = fields_of(files, fit="pad")["source"]
    assert field.features == (2, 3, 1)  # as high and as wide as any
    field.save(tmp_path / "field")
    assert vars(load_field(tmp_path / "field")) == vars(field)
    assert fields_of(files, fit="pad", width=8, height=4)["source"].features == (4, 8, 1)


def test_few_images_are_in_memory_at_once(tmp_path, monkeypatch):
    number = 3 * FILES_AT_ONCE + 1
    np.save(tmp_path / "many.npy", np.zeros((number, 2, 2), np.uint8))
    files = Pairs(source=tmp_path / "many.npy", target=lines(tmp_path / "many.txt", ["a"] * number))
    fields, held = fields_of(files), []
    original = Image.encode
    monkeypatch.setattr(Image, "encode", lambda self, values: held.append(len(values)) or original(self, values))
    assert len(build(tmp_path, files, fields)) == number
    assert max(held) == FILES_AT_ONCE
    assert sum(held) == number
    assert [len(rows.lines) for rows in read_blocks(files, {"target": fields["target"]})] == [number]


def test_a_header_is_read_before_any_pixel(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MOST", 10)
    path = saved(tmp_path / "a.png", np.zeros((3, 4), np.uint8))
    monkeypatch.setattr(pillow.Image, "load", lambda self: pytest.fail("it was decoded"))
    with pytest.raises(DataError, match="an image of 4 x 3 pixels, and 10 are the most"):
        read_image(Path(path))


def test_a_recipe_may_say_the_shape():
    assert outlines({"source": ImageConfig(height=4, width=6, channels=3)}) == [("image", (4, 6, 3))]
