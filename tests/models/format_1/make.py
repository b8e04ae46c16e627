"""What made the models beside this file, on 2026-11-18 with commit 60523f8, the last that wrote format 1:

PYTHONPATH=TREE:TREE/benchmarks python tests/models/format_1/make.py
"""

import json
from pathlib import Path

import fuzz_models

from regard.decoding.trained import Trained
from regard.models.directory import load_model

TAPE = {
    "encoder": {"embedding_size": 4, "hidden_size": 4, "cell": "lstm_tape"},
    "decoder": {"embedding_size": 4, "hidden_size": 4, "attention": {"score": "additive"}},
}
STACK = {"kind": "transformer", "size": 8, "inner": 4, "layers": 1, "attention": {"heads": 2}}
EXPERTS = {"encoder": {**STACK, "experts": {"number": 2, "chosen": 1}, "norm_place": "pre"}, "decoder": STACK}

if __name__ == "__main__":
    fuzz_models.MODELS = {"tape": ("word", TAPE), "experts": ("word", EXPERTS)}
    answers = {}
    for path in fuzz_models.make_models(Path(__file__).parent):
        found = Trained(load_model(path)).search(fuzz_models.TEXT, beam=2)
        answers[path.name] = [[one.text, one.log_prob] for many in found for one in many]
    (Path(__file__).parent / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")
