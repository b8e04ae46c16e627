"""Models for other programs, and models of other programs. One table for each way."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.fields import Text
from regard.data.sealed import MANIFEST, read_manifest, sealed, verify
from regard.data.untrusted import read_json
from regard.errors import DamagedError, UserError
from regard.exchange import ctranslate2, marian, onnx
from regard.exchange.imported import Imported
from regard.models import Generator
from regard.models.directory import Bundle, find_model, load_model, model_in
from regard.tables import choose

FACTS, LARGEST = "export.json", 1 << 20
CTRANSLATE2 = "ctranslate2"
ALONE = Path(__file__).parent / "alone"


class Export(NamedTuple):
    """A format of another program. `write` puts its files into an empty directory, and tells what an example has to know."""

    write: Callable[[Bundle, Path, str | None], dict[str, Any]]
    files: Mapping[str, Path]  # what is copied beside it: an example, how it is used
    quantizations: tuple[str, ...] = ()


def export(path: Path, to: str, output: Path, quantization: str | None = None) -> None:
    """A directory that another program runs without us: the model, its tokenizers, an example and how to use them. It remembers
    what it was made of."""
    form: Export = choose(EXPORTS, to, "export format")
    if quantization is not None and quantization not in form.quantizations:
        allowed = ", ".join(form.quantizations) or "none"
        raise UserError(f"--quantization {quantization} is unknown to {to}; it has {allowed}")
    bundle = load_model(path)
    refuse_other_shapes(path, bundle)
    with sealed(output, {"kind": "export", "to": to, "made_of": made_of(path)}) as inside:
        facts = form.write(bundle, inside, quantization)
        limits = {"max_ratio": bundle.decoding.max_ratio, "max_length": bundle.decoding.max_length}
        (inside / FACTS).write_text(json.dumps({"format": to, **limits, **facts}, indent=1) + "\n", encoding="utf-8")
        for name, field in bundle.fields.items():
            field.save(inside / name)
        for name, file in form.files.items():
            shutil.copyfile(file, inside / name)


def made_of(path: Path) -> str | None:
    """The seal of a model, which changes with each of its bytes; none of a training that goes on."""
    directory = model_in(path)
    return None if directory is None else str(read_manifest(directory)["seal"])


def kept_beside(path: Path, precision: str) -> tuple[Path, dict[str, Any]]:
    """A model as CTranslate2 has it, beside the model's directory, and what is known of it: made once, and again when the model
    is another."""
    directory = find_model(path).absolute()
    into = directory.with_name(f"{directory.name}-{CTRANSLATE2}-{precision}")
    if not is_made_of(into, made_of(path)):
        export(path, CTRANSLATE2, into, precision)
    return into, read_json(into / FACTS, LARGEST)


def is_made_of(directory: Path, seal: str | None) -> bool:
    try:
        return (directory / MANIFEST).is_file() and verify(directory).get("made_of") == seal
    except DamagedError:
        return False


def refuse_other_shapes(path: Path, bundle: Bundle) -> None:
    if not isinstance(bundle.model, Generator):
        kind = bundle.config.get("kind")
        raise UserError(f"{path}: only models that write outputs word by word are exported, and this is a model.kind={kind}")
    for name, field in bundle.fields.items():
        if not isinstance(field, Text):
            raise UserError(f"{path}: only models of texts are exported, and its column {name} is of kind {field.kind}")


def alone(to: str) -> dict[str, Path]:
    """What the formats of ours are used with."""
    return {
        "generate.py": ALONE / f"generate_{to}.py", "tokenizer.py": ALONE / "tokenizer.py", "README.md": ALONE / f"{to}.md",
    }  # fmt: skip


EXPORTS: dict[str, Export] = {
    CTRANSLATE2: Export(ctranslate2.write, alone("ctranslate2"), ctranslate2.QUANTIZATIONS),
    "onnx": Export(onnx.write, alone("onnx")),
}


# By the `model_type` of a directory's config.json
IMPORTS: dict[str, Callable[[Path], Imported]] = {"marian": marian.read}


def import_model(directory: Path, output: Path) -> None:
    """Another program's model as a model directory of ours."""
    if not directory.is_dir():
        raise UserError(f"{directory}: not a directory")
    kind = read_json(directory / "config.json", marian.LARGEST_CONFIG).get("model_type")
    choose(IMPORTS, str(kind), "model_type of config.json to import")(directory).save(output, directory.name, str(kind))
