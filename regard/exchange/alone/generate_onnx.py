"""python generate.py < input > output: the best word at every step, by onnxruntime and without regard."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizer import END, START, Tokenizer

HERE = Path(__file__).parent
FACTS = json.loads((HERE / "export.json").read_text(encoding="utf-8"))


def generate(lines, batch=32):
    source, target = (Tokenizer(HERE / side) for side in ("source", "target"))
    encode, step = (onnxruntime.InferenceSession(str(HERE / f"{name}.onnx")) for name in ("encoder", "step"))
    inputs = [one.name for one in step.get_inputs()]
    for begin in range(0, len(lines), batch):
        rows = [[*source.encode(line), END] for line in lines[begin : begin + batch]]
        lengths = np.array([len(row) for row in rows])
        tokens = np.array([row + [0] * (lengths.max() - len(row)) for row in rows])
        tensors = encode.run(None, {"tokens": tokens, "lengths": lengths})
        memory, state = tensors[: FACTS["memory"]], tensors[FACTS["memory"] :]
        limits = np.minimum((lengths * FACTS["max_ratio"] + 10).astype(int), FACTS["max_length"]) * (lengths > 1)
        words, outputs = np.full(len(rows), START), [[] for _ in rows]
        going = limits > 0
        while going.any():
            given = {"words": words}
            given |= {f"memory_{at}": one for at, one in enumerate(memory)} | {
                f"state_{at}": one for at, one in enumerate(state)
            }
            logits, *state = step.run(None, {name: given[name] for name in inputs})
            words = logits.argmax(axis=-1)
            going &= words != END
            for row in np.flatnonzero(going):
                outputs[row].append(int(words[row]))
            going &= np.array([len(output) for output in outputs]) < limits
        yield from map(target.decode, outputs)


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8")
    for output in generate([line.rstrip("\n") for line in sys.stdin]):
        print(" ".join(output.splitlines()))
