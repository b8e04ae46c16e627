"""A folder of images, each with its text beside it: `cat.png` and `cat.txt` are a row."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from regard.data.faults import Fault
from regard.data.lines import reading
from regard.data.pictures import ENDINGS
from regard.data.rows import Columns, Rows, good_rows
from regard.errors import DataError

BLOCK = 1 << 10  # rows that are read at once
SIDES: dict[int | str | Path, int] = {"source": 0, "target": 1, 0: 0, 1: 1}  # a column's place -> image or text


def holds_images(path: Path) -> bool:
    return path.is_dir() and bool(images_in(path))


def images_in(folder: Path) -> list[Path]:
    """In the order of their names, which counts them as lines are counted."""
    with reading(folder):
        return sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)


def read_folder(folder: Path, columns: Columns) -> Iterator[Rows]:
    """Its columns are `source`, or 0, the images, and `target`, or 1, their texts. Images are named as seen from the folder's
    own folder, as files in a table are seen from the table's."""
    if unknown := [place for place in columns.values() if place not in SIDES]:
        has = "the columns `source` (0, the images) and `target` (1, their texts)"
        raise DataError(f"{folder}: a folder of images has {has}, no {unknown[0]!r}")
    images = images_in(folder)
    for first in range(0, len(images), BLOCK):
        some = images[first : first + BLOCK]
        numbers, bad, texts = range(first + 1, first + len(some) + 1), dict[int, Fault](), list[str]()
        for number, image in zip(numbers, some, strict=True):
            text, problem = text_of(image)
            texts.append(text)
            bad |= {number: Fault(folder, number, problem)} if problem else {}
        values = [f"{folder.name}/{image.name}" for image in some], texts
        found = {name: values[SIDES[place]] for name, place in columns.items()}
        yield good_rows(dict.fromkeys(columns, folder), found, numbers, bad)


def text_of(image: Path) -> tuple[str, str]:
    """And what is wrong with it."""
    path = image.with_suffix(".txt")
    try:
        return path.read_text(encoding="utf-8").strip("\n"), ""
    except UnicodeDecodeError:
        return "", f"{path.name}: not UTF-8"
    except OSError as error:
        return "", f"{image.name} has no text beside it ({path.name}): {error.strerror}"


def folder_digest(folder: Path) -> str:
    """Of the names of its images, their sizes, and their texts."""
    digest = hashlib.sha256()
    for image in images_in(folder):
        digest.update(f"{image.name}\0{image.stat().st_size}\0{text_of(image)}\0".encode())
    return digest.hexdigest()
