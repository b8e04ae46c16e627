"""python generate.py < input > output: one output for each line, by CTranslate2 and without regard."""

import json
import sys
from pathlib import Path

import ctranslate2
from tokenizer import UNKNOWN, Tokenizer

HERE = Path(__file__).parent
FACTS = json.loads((HERE / "export.json").read_text(encoding="utf-8"))


def names(side):
    """Of a vocabulary's tokens, by their ids; CTranslate2 writes one file where both sides have the same."""
    path = HERE / f"{side}_vocabulary.json"
    return json.loads((path if path.exists() else HERE / "shared_vocabulary.json").read_text(encoding="utf-8"))


def generate(lines, batch=64):
    source, target = (Tokenizer(HERE / side) for side in ("source", "target"))
    source_names, target_ids = names("source"), {name: token for token, name in enumerate(names("target"))}
    translator = ctranslate2.Translator(str(HERE), compute_type="default")
    for begin in range(0, len(lines), batch):
        rows = [[source_names[one] for one in source.encode(line)] for line in lines[begin : begin + batch]]
        longest = max(map(len, rows)) + 1
        found = translator.translate_batch(
            rows, min_decoding_length=0, max_input_length=0, **FACTS["search"],
            max_decoding_length=min(int(longest * FACTS["max_ratio"] + 10), FACTS["max_length"]),
        )  # fmt: skip
        for row, result in zip(rows, found, strict=True):
            yield target.decode([target_ids.get(name, UNKNOWN) for name in result.hypotheses[0]]) if row else ""


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8")
    for output in generate([line.rstrip("\n") for line in sys.stdin]):
        print(" ".join(output.splitlines()))
