"""Law 12: refactors leave losses and outputs bit-equal on the CPU. Two trees, two records, one comparison:

PYTHONPATH=BEFORE python benchmarks/bit_equal.py record before.json
PYTHONPATH=AFTER  python benchmarks/bit_equal.py record after.json
python benchmarks/bit_equal.py compare before.json after.json      prints each difference; exit code 1 if there is one

Every built-in recipe, made small with its dropout, experts, rewards and wiring left as they are, and changes of recipes for
what no recipe has, are trained for 20 updates by the command line in float32 on one thread, and generate for a dozen lines.
Of the tree, only `regard.cli.main` and the names of recipes and of their keys are used: the same file reads both.
"""

import argparse
import hashlib
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

Values = dict[str, Any]
LINES, INPUTS = 240, 12
COMMON = [
    "data.batch_tokens=256", "data.held_out=10", "training.updates=20", "training.log_every=1", "training.validate_every=20",
    "training.save_every=20", "training.warmup=5", "training.learning_rate=0.005", "training.precision=float32",
    "training.device=cpu", "decoding.max_length=40",
]  # fmt: skip

# what no recipe has: a recipe's name, then its changes
VARIANTS = {
    "scheduled sampling": "demo training.scheduled_sampling=0.4 training.label_smoothing=0.1",
    "scheduled sampling, Transformer": "vaswani2017-small training.scheduled_sampling=0.4",
    "penalties": "demo training.penalties.coverage=0.3 training.penalties.doubly_stochastic=0.2",
    "penalty guided": "demo training.penalties.guided=0.5 data.train.alignment={data}/train.align",
    "penalties, Transformer": "vaswani2017-small training.penalties.coverage=0.3",
    "minimum risk": "demo training.risk.objective=minimum_risk training.risk.search=beam training.risk.reward=chrf",
    "copying added": "demo model.decoder.copy_words=added data.tokenizer.size=60",
    "copying gated": "demo model.decoder.copy_words=gated data.tokenizer.size=60 model.decoder.context=input_feeding",
    "copying and smoothing": "bahdanau2015-small model.decoder.copy_words=added data.tokenizer.kind=word",
    "accumulated": "demo training.accumulate=3",
    "plateau, averaged": "demo training.schedule=plateau training.validate_by=loss training.validate_every=6 "
    "training.average=2",
    "unigrams shared": "demo data.tokenizer.kind=unigram data.tokenizer.shared=true data.tokenizer.size=150",
    "bytes": "demo data.tokenizer.kind=byte",
    "recurrent dropout, layer norm": "demo model.decoder.recurrent_dropout=0.2 model.encoder.recurrent_dropout=0.2 "
    "model.decoder.layer_norm=true model.encoder.layer_norm=true",
    "coverage and heads": "demo model.decoder.attention.coverage=true model.decoder.attention.heads=2 "
    "model.decoder.attention.values=16",
    **{
        f"score {name}": f"latin-lstm model.decoder.attention.score={name} model.decoder.context=input_feeding"
        for name in ("concat", "network", "dot", "scaled", "general", "projected", "cosine", "location")
    },
    **{
        f"scope {name}": f"demo model.decoder.attention.scope={name} model.decoder.attention.window=2"
        for name in ("local_m", "local_p", "blocks", "compressed", "monotonic")
    },
    **{f"selection {name}": f"demo model.decoder.attention.selection={name}" for name in ("sparsemax", "entmax", "gumbel")},
    **{
        f"positions {name}": f"vaswani2017-small model.encoder.positions={name} model.decoder.positions={name}"
        for name in ("learned", "index", "shaw", "buckets", "rotary", "alibi", "none")
    },
    "norm rms, swiglu, pre": "vaswani2017-small model.encoder.norm=rms model.decoder.norm=rms model.encoder.norm_place=pre "
    "model.decoder.norm_place=pre model.encoder.feedforward=swiglu model.decoder.feedforward=swiglu",
    "norm batch, gelu": "vaswani2017-small model.encoder.norm=batch model.decoder.norm=batch model.encoder.feedforward=gelu "
    "model.decoder.feedforward=gelu model.decoder.inner_dropout=0.1",
    "decoder alone, two ways": "liu2018-dmca model.two_way_source=true",
}  # fmt: skip


# -- a recipe made small --


def recurrent(side: str, model: Values) -> Values:
    """Hidden sizes that keep a recipe's own proportions: dot scores and states that are handed over want them."""
    directions = 1 if model.get("encoder", {}).get("bidirectional") is False else 2
    own, attention = model[side], model.get("decoder", {}).get("attention") or {}
    changed = {
        "embedding_size": 24,
        "hidden_size": 32 // directions if side == "encoder" else 32,
        "layers": min(own.get("layers", 1), 4),
    }
    changed |= {"memory_size": 32} if "memory_size" in own else {}
    return changed | ({"attention.size": 24} if side == "decoder" and "size" in attention else {}) | experts(own)


def transformer(side: str, model: Values) -> Values:
    own = model[side] if side else model
    width, inner = (
        next(name for name in names if name in own) for names in (("size", "hidden_size"), ("inner", "feedforward_size"))
    )
    return {width: 32, inner: 48, "layers": min(own["layers"], 3)} | experts(own)


def experts(own: Values) -> Values:
    """Eight of them where there are hundreds, each small if it has a size of its own."""
    given, names = own.get("experts") or {}, {"number": 8, "num_experts": 8, "inner": 32, "feedforward_size": 32}
    return {f"experts.{name}": value for name, value in names.items() if name in given}


def convolutional(side: str, model: Values) -> Values:
    """Layers of several sizes stay so."""
    mixed = "[{size: 32, width: 3, times: 2}, {size: 48, width: 3}, {size: 64, width: 1}]"
    listed = isinstance(model[side].get("layers"), list)
    return {"embedding_size": 24, "layers": mixed} if listed else {"embedding_size": 24, "hidden_size": 32, "layers": 2}


def bytenet(side: str, model: Values) -> Values:
    return {"embedding_size": 24, "hidden_size": 32, "sets": 2, "dilations": "[1, 2]"}


def identity(side: str, model: Values) -> Values:
    return {"embedding_size": 24}


SMALL = {
    "recurrent": recurrent, "transformer": transformer, "convolutional": convolutional, "bytenet": bytenet,
    "identity": identity,
}  # fmt: skip


def sizes(model: Values) -> list[str]:
    if model.get("kind") == "decoder_alone":
        return [f"model.{key}={value}" for key, value in transformer("", model).items()]
    if model.get("kind") == "recurrent_alone":
        return ["model.embedding_size=24", "model.hidden_size=32"]
    there = [side for side in ("encoder", "decoder") if side in model]
    sides = {side: SMALL[model[side].get("kind", "recurrent")](side, model) for side in there}
    if "channels" in model["encoder"].get("input", {}):
        sides["encoder"]["input.channels"] = [8 for _ in model["encoder"]["input"]["channels"]]
    return [f"model.{side}.{key}={value}" for side, changed in sides.items() for key, value in changed.items()]


def data_of(values: Values, changes: list[str], folder: Path) -> list[str]:
    """A corpus of its own made smaller, or our files; a smaller vocabulary of the recipe's kind."""
    files = ["--source", f"{folder}/train.la", "--target", f"{folder}/train.en"]
    if any(change.startswith("data.train.") for change in changes):
        return [*files, "data.corpus=null"]
    if "corpus" in values["data"]:
        return [f"data.corpus.size={LINES}"]
    if reads_pictures(values):
        return ["--source", f"{folder}/train.npy", "--target", f"{folder}/train.caption"]
    files = ["--text", f"{folder}/train.en"] if values["model"].get("kind") == "language_model" else files
    return [*files, f"data.tokenizer.size={90 if values['data']['tokenizer']['kind'] == 'character' else 150}"]


def reads_pictures(values: Values) -> bool:
    return bool(values["data"].get("fields", {}).get("source", {}).get("kind") == "image")


def writes_a_target(name: str) -> bool:
    """For a source: the other shapes have laws of their own."""
    from regard.recipe import read_values

    return read_values(name)["model"].get("kind", "sequence_to_sequence") in ("sequence_to_sequence", "decoder_alone")


def words(name: str, folder: Path) -> list[str]:
    """What follows `regard train`."""
    from regard.recipe import read_values

    recipe, *changes = VARIANTS.get(name, name).format(data=folder).split()
    values = read_values(recipe)
    rewards = ["training.risk.candidates=3"] if "risk" in values["training"] or "training.risk" in " ".join(changes) else []
    return [recipe, *data_of(values, changes, folder), *COMMON, *rewards, *sizes(values["model"]), *changes]


# -- one recipe, in a process of its own --


def command(*arguments: object, stdin: str = "") -> str:
    """What a command prints; an error with what it said if it fails."""
    from regard.cli import main

    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["regard", *map(str, arguments)], io.TextIOWrapper(io.BytesIO(stdin.encode()))
    printed, said = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(said):
        try:
            main()
        except SystemExit as ending:
            if ending.code:
                raise RuntimeError(f"regard {' '.join(sys.argv[1:])}\n{printed.getvalue()}{said.getvalue()}") from None
        finally:
            sys.argv, sys.stdin = before
    return printed.getvalue()


def observe(name: str, folder: Path, run: Path) -> Values:
    from regard.recipe import read_values

    command("train", *words(name, folder), "--run", run, "--quiet")
    rows = [json.loads(line) for line in (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = (folder / "train.la").read_text(encoding="utf-8").splitlines(keepends=True)
    if reads_pictures(read_values(VARIANTS.get(name, name).split()[0])):
        lines = [f"{folder}/train.npy#{row}\n" for row in range(1, INPUTS + 1)]
    inputs = "".join(lines[:INPUTS])
    return {
        "losses": [row["loss"].hex() for row in rows if "loss" in row],
        "journal": {
            key: [exact(row[key]) for row in rows if key in row]
            for key in sorted({key for row in rows for key in row} - {"loss"})
        },
        "weights": weights(run / "model" / "model.safetensors"),
        **{way: command(verb, run, "--scores", *options, stdin=inputs).splitlines() for way, (verb, *options) in asked(name)},
    }


def asked(name: str) -> Iterator[tuple[str, tuple[object, ...]]]:
    """By what answers are called: the verb for this shape of model, and its options."""
    from regard.recipe import read_values

    kind = read_values(VARIANTS.get(name, name).split()[0])["model"].get("kind")
    if kind in ("tagger", "classifier"):
        yield "predicted", ("predict",)
        return
    verb, drawn = ("continue", ()) if kind == "language_model" else ("generate", ("--sample",))
    yield "greedy", (verb, "--beam", 1)
    yield "sampled", (verb, *drawn, "--seed", 1)
    yield "search", (verb, *(("--beam", 3) if kind == "language_model" else ()))


def exact(value: object) -> object:
    return value.hex() if isinstance(value, float) else value


def weights(path: Path) -> list[str]:
    """Each tensor's shape and the start of its checksum, sorted: whatever the names are."""
    from safetensors.numpy import load_file

    return sorted(f"{list(one.shape)} {hashlib.sha256(one.tobytes()).hexdigest()[:16]}" for one in load_file(path).values())


def observed(name: str, folder: Path, run: Path) -> Values:
    """By a fork of this process, which has imported torch."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as answer:
            try:
                answer.write(json.dumps(observe(name, folder, run)))
            except BaseException as error:
                answer.write(json.dumps({"failed": "".join(traceback.format_exception(error))[-3000:]}))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"failed": "the process ended without an answer"}


def record(path: Path, only: list[str]) -> int:
    import torch._dynamo
    from torch.utils import tensorboard  # noqa: F401 - as the first display does

    import regard.run
    from regard.recipe import built_in

    torch.set_num_threads(1)
    found: dict[str, Values] = {}
    print(f"the tree: {Path(regard.__file__).parents[1]}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for corpus in ("latin", "scenes"):
            command("corpora", corpus, "--out", folder / "data", "--size", LINES)
        for number, name in enumerate([*filter(writes_a_target, built_in()), *VARIANTS]):
            if not only or name in only:
                begin = os.times().children_user
                found[name] = observed(name, folder / "data", folder / f"run-{number}")
                state = found[name].get("failed") or f"loss {float.fromhex(found[name]['losses'][-1]):.4f}"
                print(f"{name}: {state} ({os.times().children_user - begin:.1f} s)", flush=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(any("failed" in one for one in found.values()))


# -- two records --


def differences(before: Any, after: Any, where: str) -> Iterator[str]:
    """Every place where two values are not the same; of lists the first only, for the rest follows from it."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before:
            if key in after:
                yield from differences(before[key], after[key], f"{where}.{key}" if where else key)
            elif not where.endswith(".journal"):  # a run may note more, or under other names, than it did
                yield f"{where} {key}: only before".strip()
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        unequal = [index for index, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
        if unequal:
            first = unequal[0]
            yield f"{where}: {len(unequal)} of {len(before)} differ, first at {first}: {before[first]} -> {after[first]}"
    elif before != after:
        yield f"{where}: {str(before)[:300]} -> {str(after)[:300]}"


def compare(paths: list[Path], only: list[str]) -> int:
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    before, after = ({name: one for name, one in found.items() if not only or name in only} for found in records)
    found = list(differences(before, after, ""))
    found += [f"{name}.failed: in both" for name, one in before.items() if "failed" in one and "failed" in after.get(name, {})]
    for line in found:
        print(line)
    print(f"{len(before)} recipes and variants before, {len(after)} after, {len(found)} differences")
    return int(bool(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("record", help="train and generate with every recipe of the tree that python imports")
    one.add_argument("file", type=Path)
    two = verbs.add_parser("compare", help="print each difference between two records")
    two.add_argument("files", type=Path, nargs=2, metavar="FILE")
    for verb in (one, two):
        verb.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these recipes and variants")
    given = parser.parse_args()
    return record(given.file, given.only) if given.verb == "record" else compare(given.files, given.only)


if __name__ == "__main__":
    sys.exit(main())
