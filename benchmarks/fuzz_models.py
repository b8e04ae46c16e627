"""Model directories as a stranger might make them, their checksums remade: each is loaded or refused in one sentence, within
seconds and megabytes.

python benchmarks/fuzz_models.py --cases 1000 --seed 1
"""

import argparse
import copy
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from safetensors.torch import load_file, save_file

from regard.data.fields import texts
from regard.data.sealed import MANIFEST, file_digest, files_in, manifest_bytes, read_manifest
from regard.data.tokenizers import train_tokenizer
from regard.decoding.load import in_use
from regard.errors import UserError
from regard.models import build, configure
from regard.models.decoders.context import CONTEXTS
from regard.models.directory import load_model, save_model
from regard.nn.attention import SCOPES, SCORES, SELECTIONS
from regard.nn.positions import POSITIONS
from regard.nn.recurrent.cells import CELLS
from regard.nn.transformer.norms import NORMS
from regard.recipe import Recipe, Tokenizer

torch.set_num_threads(1)
SECONDS = 20  # more is a hang
MEMORY = 12 << 30  # bytes of addresses: what asks for more fails at once
LONGEST = 1500  # characters of a message
TEXT = ["servus in horto laborat .", "the slave works in the garden ."]
LINES = [" ".join(random.Random(seed).sample(" ".join(TEXT).split(), 6)) for seed in range(60)]
RECURRENT = {"encoder": {"embedding_size": 8, "hidden_size": 8}, "decoder": {"embedding_size": 8, "hidden_size": 8}}
STACK = {"hidden_size": 16, "feedforward_size": 8, "layers": 2, "attention": {"heads": 2}}
CONVOLUTIONAL = {"kind": "convolutional", "embedding_size": 8, "hidden_size": 8, "layers": 2, "longest": 64}
BYTENET = {"kind": "bytenet", "embedding_size": 8, "hidden_size": 8, "dilations": [1, 2], "sets": 1}
# the kind of tokenizer, the model
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "recurrent": ("word", RECURRENT),
    "copying": ("word", {**RECURRENT, "decoder": {**RECURRENT["decoder"], "copy_words": "gated"}}),
    "transformer": ("bpe", {"encoder": {"kind": "transformer", **STACK}, "decoder": {"kind": "transformer", **STACK}}),
    "shared": (
        "unigram",
        {"encoder": {"kind": "transformer", **STACK}, "decoder": {"kind": "transformer", **STACK}, "share_embeddings": True},
    ),
    "decoder_alone": ("byte", {"kind": "decoder_alone", **STACK}),
    "convolutional": ("character", {"encoder": CONVOLUTIONAL, "decoder": CONVOLUTIONAL}),
    "bytenet": ("byte", {"encoder": BYTENET, "decoder": BYTENET}),
}
NAMES = [name for table in (CELLS, SCORES, SCOPES, SELECTIONS, POSITIONS, NORMS, CONTEXTS) for name in table]
ODD: list[Any] = [
    None, True, False, "", "x", "⁇\u2028", "\ud800", "1", -1, 0, 1, 2, 3, 7, 1000, 10**6, 10**7, 2**31, 2**63, 10**30, 0.5,
    -(10**30), 1e-300, 1e38, 1e308, -0.5, [], {}, [[]], [None], [0], [10**9], ["x"] * 1000, {"kind": []}, {"kind": {}},
    {"": {}}, {"x": 1},
]  # fmt: skip


def make_models(folder: Path) -> list[Path]:
    """One small model of each kind: built and saved, which is all that loading knows of training."""
    for name, (kind, section) in MODELS.items():
        tokenizer = train_tokenizer(Tokenizer(kind=kind, size=120), LINES)  # type: ignore[arg-type]
        config = configure(section)
        torch.manual_seed(1)
        weights = {key: value.clone() for key, value in build(config, len(tokenizer), len(tokenizer)).state_dict().items()}
        recipe = Recipe(model=config.model_dump(mode="json"))
        save_model(folder / name, weights, recipe, texts(tokenizer, tokenizer), "a model")
    return [folder / name for name in MODELS]


# Changes to values


def places(values: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside."""
    inner = list(values.items()) if isinstance(values, dict) else list(enumerate(values)) if isinstance(values, list) else []
    return [found for key, value in inner[:50] for found in [(*at, key), *places(value, (*at, key))]]


def inside(values: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        values = values[key]
    return values


def other(value: Any, chance: random.Random) -> Any:
    """Of the same type, or of any."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and chance.random() < 0.6:
        return chance.choice([value + 1, value - 1, 2 * value, 1000 * value, -value, value * 10**6])
    if isinstance(value, float) and chance.random() < 0.6:
        return chance.choice([-value, value * 1e6, value * 1e300, value + 1e-9, 1e-320])
    if isinstance(value, str) and chance.random() < 0.6:
        return chance.choice([*NAMES, *MODELS])
    return chance.choice(ODD)


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"encoder": value}
    return value


def change(values: Any, chance: random.Random) -> None:
    """One value somewhere becomes another one, goes, comes, or moves."""
    place = chance.choice(places(values) or [()])
    if not place:
        return
    holder, key = inside(values, place[:-1]), place[-1]
    way = chance.randrange(8)
    if way < 4:
        holder[key] = other(holder[key], chance)
    elif way == 4:
        del holder[key]
    elif way == 5 and isinstance(holder, dict):
        holder[chance.choice(["kind", "layers", "x", "", "\ud800", "longest", "heads", "x" * 10_000])] = chance.choice(ODD)
    elif way == 6:
        holder[key] = nested(chance.choice([3, 30, 60, 200]))
    else:
        holder[key] = copy.deepcopy(inside(values, chance.choice(places(values))))


def spoil_json(path: Path, chance: random.Random) -> None:
    """Values changed, or the text itself."""
    text = path.read_text(encoding="utf-8")
    if chance.random() < 0.85:
        values = json.loads(text)
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            change(values, chance)
        path.write_text(json.dumps(values, indent=1), encoding="utf-8")
    else:
        texts = [
            text[: len(text) // 2], text.replace("{", '{"format": 1, "format": 1,', 1), text.replace("1", "NaN", 1),
            "\ufeff" + text, text.replace("1", "1e999", 1), "[" * 100_000, text.replace("1", "1" * 5000, 1), "{}", "[]", "null",
            '"', text + text, text.replace("8", "-Infinity", 1), " " * (1 << 21) + text,
        ]  # fmt: skip
        path.write_text(chance.choice(texts), encoding="utf-8")


def spoil_bytes(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at, count = chance.randrange(len(content) + 1), chance.randint(1, 40)
    way = chance.randrange(4)
    if way == 0:
        for _ in range(count):
            content[chance.randrange(len(content))] = chance.randrange(256)
    elif way == 1:
        del content[at:]
    elif way == 2:
        del content[at : at + count]
    else:
        content[at:at] = chance.randbytes(count)
    path.write_bytes(content)


# Changes to a model directory: each is one kind of hostility


def config(directory: Path, chance: random.Random) -> None:
    spoil_json(directory / "config.json", chance)


def tokenizer(directory: Path, chance: random.Random) -> None:
    spoil_json(directory / "fields" / chance.choice(["source", "target"]) / "tokenizer.json", chance)


def pieces(directory: Path, chance: random.Random) -> None:
    """SentencePiece's own file, and its digest beside it."""
    for model in directory.glob("fields/*/pieces.model"):
        spoil_bytes(model, chance)
        description = model.with_name("tokenizer.json")
        facts = json.loads(description.read_text()) | {"model": hashlib.sha256(model.read_bytes()).hexdigest()}
        description.write_text(json.dumps(facts))


def exchanged(directory: Path, chance: random.Random) -> None:
    """A tokenizer of another model, or the weights, or the config."""
    name = chance.choice(["fields/source", "fields/target", "model.safetensors", "config.json"])
    theirs = directory.parent / "models" / chance.choice(list(MODELS)) / name
    if theirs.is_dir():
        shutil.rmtree(directory / name)
        shutil.copytree(theirs, directory / name)
    else:
        shutil.copy(theirs, directory / name)


def header(directory: Path, chance: random.Random) -> None:
    """What safetensors says of its tensors: types, shapes, offsets, names; and how long it says this is."""
    path = directory / "model.safetensors"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    values = json.loads(content[8 : 8 + size])
    entry = values[chance.choice(list(values))]
    if chance.random() < 0.4 and "dtype" in entry:
        entry["dtype"] = chance.choice(["I8", "I32", "F64", "F16", "BF16", "C64", "U8", "BOOL", "F8_E4M3", "x"])
        if chance.random() < 0.5 and entry["dtype"] in ("I8", "U8", "BOOL", "F8_E4M3") and entry["shape"]:
            entry["shape"][-1] *= 4
    else:
        change(values, chance)
    written = json.dumps(values).encode()
    length = chance.choice([len(written)] * 8 + [0, 1, 2**63, 2**40, len(content)])
    path.write_bytes(length.to_bytes(8, "little") + written + content[8 + size :])


def weights(directory: Path, chance: random.Random) -> None:
    """Other tensors in a file that is well-formed."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    name = chance.choice(list(tensors))
    one = tensors[name]
    changes: list[Callable[[], Any]] = [
        lambda: tensors.update({name: one.to(chance.choice([torch.int8, torch.complex64, torch.float64, torch.float16]))}),
        lambda: tensors.update({key: value.to(torch.bfloat16) for key, value in tensors.items()}),
        lambda: tensors.update({key: value.to(torch.int8) for key, value in tensors.items()}),
        lambda: one.view(-1)[: 1 + chance.randrange(5)].fill_(chance.choice([float("nan"), float("inf"), -float("inf")])),
        lambda: one.mul_(chance.choice([1e38, 1e20, 0.0, -1e30])),
        lambda: [value.fill_(3e38) for value in tensors.values()],
        lambda: tensors.update({name: one.reshape(-1)}),
        lambda: tensors.update({name: one[:0].clone()}),
        lambda: tensors.update({name: torch.cat([one, one])}),
        lambda: tensors.pop(name),
        lambda: tensors.clear(),
        lambda: tensors.update({"decoder.more": torch.zeros(3)}),
    ]
    chance.choice(changes)()
    save_file(tensors, path)


def replaced(directory: Path, chance: random.Random) -> None:
    """A file that is none."""
    _, path = chance.choice(files_in(directory))
    content = path.read_bytes()
    path.unlink()
    aside = directory.parent / "aside"
    aside.write_bytes(content)
    way = chance.randrange(7)
    if way == 0:
        os.mkfifo(path)
    elif way == 1:
        path.symlink_to(chance.choice([Path("/dev/zero"), Path("/dev/null"), path, aside, Path("/nowhere"), directory]))
    elif way == 2:
        path.mkdir()
    elif way == 3:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    elif way < 6:
        path.write_bytes(content[: chance.randrange(len(content) + 1)] if way == 4 else b"")


def manifest(directory: Path, chance: random.Random) -> None:
    """A manifest with any content, closed by its own right checksum; or with none."""
    path = directory / MANIFEST
    if chance.random() < 0.2:
        spoil_json(path, chance)
        return
    content = json.loads(path.read_text())
    for _ in range(chance.choice([1, 1, 2])):
        change(content, chance)
    content = content if isinstance(content, dict) else {}
    path.write_bytes(manifest_bytes({key: value for key, value in content.items() if key != "seal"}))


def added(directory: Path, chance: random.Random) -> None:
    """Files that the manifest names and nothing needs."""
    path = directory / chance.choice(["x", "fields/source/x", "code.py", "deep/" * 20 + "x", "\udcff", "model.safetensors.bin"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * chance.randrange(100))


HOSTILITIES: dict[str, Callable[[Path, random.Random], None]] = {
    one.__name__: one
    for one in (config, tokenizer, pieces, exchanged, header, weights, replaced, manifest, added)
}  # fmt: skip
OFTEN = {"config": 6, "header": 2, "weights": 2, "tokenizer": 2}


def reseal(directory: Path, before: dict[str, Any], keep_missing: bool) -> None:
    """The manifest of what is there now. What is no plain file keeps the entry it had."""
    plain = {name for name, path in files_in(directory) if path.is_file() and not path.is_symlink()} - {MANIFEST}
    entries = {name: {"size": (directory / name).stat().st_size, "sha256": file_digest(directory / name)} for name in plain}
    gone = {name: entry for name, entry in before["files"].items() if keep_missing or os.path.lexists(directory / name)}
    content = {"format": 1, "facts": before["facts"], "files": gone | entries}
    if not (directory / MANIFEST).is_dir():
        (directory / MANIFEST).write_bytes(manifest_bytes(content))


def make_case(models: list[Path], directory: Path, chance: random.Random) -> str:
    """A model made hostile; how."""
    shutil.rmtree(directory, ignore_errors=True)
    model = chance.choice(models)
    shutil.copytree(model, directory)
    ways = list(HOSTILITIES)
    chosen = chance.choices(ways, [OFTEN.get(way, 1) for way in ways])[0]
    before = read_manifest(directory)
    HOSTILITIES[chosen](directory, chance)
    untouched = (directory / MANIFEST).is_file() and not (directory / MANIFEST).is_symlink()
    if chosen != "manifest" and untouched and read_bytes(directory / MANIFEST) == read_bytes(model / MANIFEST):
        reseal(directory, before, chance.random() < 0.5)
    return f"{model.name}: {chosen}"


def read_bytes(path: Path) -> bytes:
    return path.read_bytes()


# Loading


class Outcome(NamedTuple):
    ending: str  # loaded, refused, traceback, hang
    seconds: float
    megabytes: float
    message: str


def load_and_use(directory: Path) -> tuple[str, str]:
    """As the command line does it: errors for people are refusals, others have a traceback."""
    try:
        in_use(load_model(directory)).generate(TEXT)
    except (UserError, OSError) as error:
        return ("refused" if len(str(error)) <= LONGEST else "traceback"), str(error)
    except BaseException:  # a panic of a library is no Exception
        return "traceback", traceback.format_exc()
    return "loaded", ""


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def attempt(directory: Path) -> Outcome:
    """In a child, which may hang, die or take what it likes."""
    reader, writer = os.pipe()
    begin, child = time.monotonic(), os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 2)
        before = peak_megabytes()
        ending, message = load_and_use(directory)
        row = json.dumps([ending, peak_megabytes() - before, message[-3000:]]).encode()
        os.write(writer, row)
        os._exit(0)
    os.close(writer)
    return wait_for(child, reader, begin)


def wait_for(child: int, reader: int, begin: float) -> Outcome:
    while time.monotonic() < begin + SECONDS:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            with os.fdopen(reader, "rb") as file:
                row = file.read()
            ending, megabytes, message = json.loads(row) if row else ("traceback", 0.0, f"died: {status}")
            return Outcome(ending, time.monotonic() - begin, megabytes, message)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    return Outcome("hang", time.monotonic() - begin, 0.0, "")


def fuzz(cases: int, seed: int, tell: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """The figures of so many cases, each of them a function of the seed and its number."""
    counts, slowest, largest = Counter[str](), 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        models = make_models(Path(folder) / "models")
        for number in range(cases):
            how = make_case(models, Path(folder) / "case", random.Random(f"{seed} {number}"))
            found = attempt(Path(folder) / "case")
            counts[found.ending] += 1
            slowest, largest = max(slowest, found.seconds), max(largest, found.megabytes)
            if found.ending in ("traceback", "hang"):
                tell(f"case {number}: {how}: {found.ending}: {found.message}")
            else:
                tell(
                    f"case {number}: {how}: {found.ending} {found.seconds:.2f} s {found.megabytes:.0f} MB: {found.message:.300}"
                )
    return {
        "benchmark": "fuzz_models",
        "cases": cases,
        "loaded": counts["loaded"],
        "refused": counts["refused"],
        "tracebacks": counts["traceback"],
        "hangs": counts["hang"],
        "slowest_seconds": round(slowest, 2),
        "largest_megabytes": round(largest, 1),
        "seed": seed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tell", action="store_true", help="what became of each case, on stderr")
    arguments = parser.parse_args()
    row = fuzz(
        arguments.cases, arguments.seed, (lambda text: print(text, file=sys.stderr)) if arguments.tell else lambda text: None
    )
    print(json.dumps(row))
    if row["tracebacks"] or row["hangs"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
