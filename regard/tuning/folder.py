"""The folder of a study: what it began with is written down first, and one that goes on goes on with the same."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.sealed import TEMPORARY, file_digest, flush, foreign
from regard.errors import DamagedError, UserError, naming
from regard.overrides import flatten
from regard.recipe import Data, Recipe, parse, to_yaml
from regard.run_directory import strangers
from regard.tuning.proposals import Space
from regard.tuning.space import SPACE, Point

STUDY = "study.json"
FORMAT = 1
HEADER = "# The best recipe that `regard tune` found, with every default filled in\n"


class Study(NamedTuple):
    """What a search began with."""

    point: Point
    space: Space
    recipe: str | None  # its name, where one was named
    overrides: dict[str, Any]
    digests: dict[str, str]  # SHA-256 by file


class Asked(NamedTuple):
    """What was given on the command line, or from Python: what is empty was not given."""

    data: dict[str, Any]
    recipe: str | None
    overrides: dict[str, Any]


def is_study(directory: Path) -> bool:
    return (directory / STUDY).is_file()


def claim(directory: Path) -> None:
    """Refuse a folder that holds anything but a study, and things of others where a study would write."""
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory}: a file stands where the folder of the study would be; take another --run")
    ours = {".lock", f".tmp-{STUDY}", "spooled"}
    for name in () if is_study(directory) else strangers(directory):
        if name not in ours and TEMPORARY.fullmatch(name) is None:
            raise UserError(f"{directory}: this is no study and it is not empty (it holds {name}); give --run a new folder")
    for name in ("model", "spooled"):
        if (stranger := foreign(directory / name)) is not None:
            raise UserError(f"{stranger}: regard did not write this, and a study needs its place; move it out of {directory}")


def begin(directory: Path, study: Study) -> None:
    facts = {"format": FORMAT, **study._asdict(), "point": study.point._asdict()}
    replace(directory / STUDY, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def read(directory: Path) -> Study:
    path = directory / STUDY
    try:
        facts = json.loads(path.read_bytes())
        number, point = facts.pop("format"), Point(**facts.pop("point"))
        study = Study(point, **facts)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise DamagedError(f"{path}: damaged: not what a study began with") from None
    if number != FORMAT:
        raise UserError(f"{path}: format {number!s:.40}; this version of regard reads format {FORMAT}")
    for name in study.space.keys() - SPACE.keys():
        raise UserError(f"{path}: it searches {name!r}, which is no entry of SPACE; an entry of your own comes by --import")
    return study


def replace(path: Path, text: str) -> None:
    """In one step, and on the disk before anything that follows from it."""
    temporary = path.with_name(f".tmp-{path.name}")
    with naming(path):
        temporary.write_text(text, encoding="utf-8")
        flush(temporary)
        temporary.rename(path)
        flush(path.parent)


def write_recipe(directory: Path, recipe: Recipe) -> None:
    """Of the best trial. It does not look like that of a run: `regard train` keeps away from a study."""
    replace(directory / "recipe.yaml", HEADER + to_yaml(recipe))


def digests(data: Data) -> dict[str, str]:
    """Of all that is trained and validated on; a generated corpus is a function of the recipe."""
    files = [path for pairs in (data.train, data.valid) if pairs is not None for path in pairs.files]
    return {str(path): file_digest(path) for path in files}


def refuse_other(directory: Path, study: Study, asked: Asked) -> None:
    """A study that goes on: the same data, the same recipe, the same overrides, or none said at all."""
    other = f"{directory}: the study began with {{}}; leave it out, or take another --run"
    for key in ("train", "valid"):
        if key in asked.data:
            now, before = (flat_pairs(one.get(key)) for one in (asked.data, study.point.values["data"]))
            if now != before:
                raise UserError(other.format(f"other {'validation' if key == 'valid' else 'training'} data ({names(before)})"))
    if asked.recipe is not None and asked.recipe != study.recipe:
        raise UserError(
            other.format(f"the recipe {study.recipe}" if study.recipe else "no recipe, but one chosen for its data")
        )
    if asked.overrides and asked.overrides != study.overrides:
        said = " ".join(f"{key}={value}" for key, value in study.overrides.items()) or "no overrides"
        raise UserError(other.format(said))
    for path, digest in study.digests.items():
        if file_digest(Path(path)) != digest:
            raise UserError(f"{path}: the file has changed since the study {directory} began; take another --run")


def flat_pairs(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """One way to say which files: with every default filled in."""
    return {} if values is None else flatten(parse(Data, {"train": values}).model_dump(mode="json")["train"])


def names(flat: Mapping[str, Any]) -> str:
    return " and ".join(str(flat[key]) for key in ("pairs", "source", "target") if flat.get(key)) or "rows held out"
