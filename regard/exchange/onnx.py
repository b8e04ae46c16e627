"""ONNX: one graph that reads sources, one that takes a step for every row; Memory and State are lists of tensors there.

Rows, source positions and what a State keeps of earlier steps may have any size.
"""

import importlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batching import reading
from regard.data.tokenizer import END, START
from regard.errors import UserError
from regard.models import Generator
from regard.models.decoders.convolutional import ConvolutionalDecoder
from regard.models.directory import Bundle
from regard.nn.recurrent.tape import TapeCell
from regard.nn.state import tensors_in, with_tensors
from regard.nn.transformer.experts import Experts

ROWS, LENGTH, LONGER, STEPS = 3, 5, 6, 2  # of the example that a graph is written from: its own sizes are not kept
CLOSE = 1e-3  # how far the graphs' logits may be from ours
OPSET = 20


def tensors_of(tree: Any) -> tuple[Tensor, ...]:
    """Each a value of its own: what is an input too, or stands there twice, would have one name in a graph."""
    return tuple(tensor.clone() for tensor in tensors_in(tree))


class Reader(nn.Module):
    """Sources -> the tensors of their memory and of the State before the first word."""

    def __init__(self, model: Generator) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        memory = self.model.encode(reading(tokens, lengths))
        return (*tensors_of(memory), *tensors_of(self.model.start(memory)[1]))


class Stepper(nn.Module):
    """The last words, memory and State -> logits and the next State."""

    def __init__(self, model: Generator, memory: Any, state: Any) -> None:
        super().__init__()
        self.model, self.memory, self.state = model, memory, state

    def forward(self, words: Tensor, memory: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        step, _ = self.model.start(with_tensors(self.memory, memory))
        found = step(words, with_tensors(self.state, state))
        return (found.logits, *tensors_of(found.state))


def write(bundle: Bundle, directory: Path, quantization: str | None = None) -> dict[str, Any]:
    """`encoder.onnx` and `step.onnx`; what `export.json` says of them."""
    model: Any = bundle.model
    refuse(model)
    require_libraries()
    with torch.no_grad(), quietly():
        source = sources(model, LENGTH)
        memory = model.encode(reading(*source))
        state = model.start(memory)[1]
        counts = {"memory": len(tensors_of(memory)), "state": len(tensors_of(state))}
        stepper = Stepper(model, memory, state)
        flat = [walk(Reader(model), stepper, *sources(model, length), counts["memory"], steps)
                for length, steps in ((LENGTH, 0), (LENGTH, STEPS), (LONGER, STEPS), (LENGTH, STEPS + 1))]  # fmt: skip
        moving = [[changing(*shapes) for shapes in zip(*((one.shape for one in each[part]) for each in flat), strict=True)]
                  for part in range(2)]  # fmt: skip
        words = torch.full((ROWS,), START)
        rows = torch.export.Dim("rows", min=1)
        longest = None if model.limits.source is None else model.limits.source.places
        time = torch.export.Dim("time", min=1, max=longest)
        graph(Reader(model), source, ({0: rows, 1: time}, {0: rows}), directory / "encoder.onnx",
              ["tokens", "lengths"], names(counts, "state"))  # fmt: skip
        free = [tuple({0: rows, **dict.fromkeys(dims, torch.export.Dim.AUTO)} for dims in part) for part in moving]
        graph(stepper, (words, *flat[1]), ({0: rows}, *free), directory / "step.onnx",
              ["words", *names(counts, "state")], ["logits", *names(counts, "next")[counts["memory"] :]])  # fmt: skip
        check(directory, Reader(model), stepper, sources(model, LONGER, rows=2), counts["memory"])
    return counts


def names(counts: dict[str, int], state: str) -> list[str]:
    return [f"memory_{at}" for at in range(counts["memory"])] + [f"{state}_{at}" for at in range(counts["state"])]


def refuse(model: Any) -> None:
    """What a graph of tensors cannot hold."""
    parts = list(model.modules())
    if model.copies_words:
        raise UserError(
            "a model that copies words (model.decoder.copy_words) has another vocabulary for each source: not for ONNX"
        )
    if any(isinstance(part, Experts) for part in parts):
        raise UserError("experts (model.encoder.experts, model.decoder.experts) sort rows by their values: not for ONNX")
    if any(isinstance(part, ConvolutionalDecoder) for part in parts):
        raise UserError("a step of model.decoder.kind=convolutional looks at how far its rows have got: not for ONNX")
    if any(isinstance(part, TapeCell) for part in parts):
        raise UserError("a cell with a tape of its states (model.encoder.cell) grows inside a loop: not for ONNX")


def require_libraries() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise UserError(f"{name} is not installed: pip install 'regard[export]'") from None


def sources(model: Any, length: int, rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """Rows of several lengths, END at their end."""
    known = model.encoder.embed.num_embeddings if hasattr(model, "encoder") else model.vocabulary
    tokens = torch.arange(rows * length).view(rows, length) % max(known - 4, 1) + min(4, known - 1)
    lengths = torch.tensor([length, *range(2, rows + 1)])
    where = torch.arange(length)
    tokens = tokens.masked_fill(where == lengths[:, None] - 1, END).masked_fill(where >= lengths[:, None], 0)
    return tokens, lengths


def walk(
    reader: Reader, stepper: Stepper, tokens: Tensor, lengths: Tensor, memories: int, steps: int
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Memory and State after so many steps."""
    found = reader(tokens, lengths)
    memory, state = found[:memories], found[memories:]
    for _ in range(steps):
        _, *after = stepper(torch.full((len(tokens),), START), memory, state)
        state = tuple(after)
    return memory, state


def changing(*shapes: torch.Size) -> list[int]:
    """The dimensions that differ with the length of the source or the number of steps."""
    return [at for at, sizes in enumerate(zip(*shapes, strict=True)) if at and len(set(sizes)) > 1]


def graph(module: nn.Module, example: Any, dynamic: Any, path: Path, inputs: list[str], outputs: list[str]) -> None:
    try:
        program = torch.export.export(module, example, dynamic_shapes=dynamic, strict=False)
        program.example_inputs = None  # or the exporter checks the graph's guards on them
        torch.onnx.export(
            program, (), path, dynamo=True, verbose=False, optimize=False, input_names=inputs, output_names=outputs,
            opset_version=OPSET, external_data=False,
        )  # fmt: skip
    except Exception as error:  # the exporter raises whatever it meets
        told = " ".join(str(error).split())
        raise UserError(f"PyTorch cannot write this model as ONNX ({path.name}): {type(error).__name__}: {told:.300}") from None


@contextmanager
def quietly() -> Iterator[None]:
    """The exporter speaks of its own future and of libraries that nobody needs."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def check(directory: Path, reader: Reader, stepper: Stepper, source: tuple[Tensor, Tensor], memories: int) -> None:
    """Two steps of other sizes than the example's, by onnxruntime, are ours."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    encode, step = (onnxruntime.InferenceSession(directory / f"{name}.onnx", options) for name in ("encoder", "step"))
    ours = reader(*source)
    theirs = encode.run(None, dict(zip(("tokens", "lengths"), (one.numpy() for one in source), strict=True)))
    words, inputs = torch.full((len(source[0]),), START), [one.name for one in step.get_inputs()]
    for _ in range(2):
        ours = (*ours[:memories], *stepper(words, ours[:memories], ours[memories:]))
        logits, ours = ours[memories], (*ours[:memories], *ours[memories + 1 :])
        given = dict(zip(["words", *names_of(ours, memories)], [words.numpy(), *theirs], strict=True))
        found, *after = step.run(None, {name: one for name, one in given.items() if name in inputs})
        theirs = [*theirs[:memories], *after]
        if not torch.allclose(torch.from_numpy(found), logits, atol=CLOSE, rtol=CLOSE):
            raise UserError("the ONNX graphs of this model do not compute what it computes; nothing is written")
        words = logits.argmax(dim=-1)


def names_of(tensors: Sequence[Tensor], memories: int) -> list[str]:
    return names({"memory": memories, "state": len(tensors) - memories}, "state")
