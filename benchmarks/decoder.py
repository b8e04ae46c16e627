"""The whole training step of a recurrent decoder with additive attention and input feeding, AdamW and clipping included.

python benchmarks/decoder.py --device cuda             batch 128, 32 words, source 32, all sizes 512, vocabulary 8000, bfloat16
python benchmarks/decoder.py --device cuda --compile   with torch.compile of the plain one, which takes minutes
python benchmarks/decoder.py                           a small one on a CPU, nothing captured
"""

import argparse
import json
from collections.abc import Callable
from typing import NamedTuple

import torch
from timing import race
from torch import Tensor, nn
from torch.nn import functional

from regard.models.decoders.recurrent import RecurrentDecoder
from regard.models.interface import Memory
from regard.training.capture import Captured

PAD = 0


class Sizes(NamedTuple):
    batch: int
    target: int
    source: int
    size: int
    vocabulary: int


class Plain(nn.Module):
    """nn.LSTMCell, the tanh formula and a loop: how one would write it down first."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        size = sizes.size
        self.embed = nn.Embedding(sizes.vocabulary, size)
        self.cell = nn.LSTMCell(2 * size, size)
        self.query, self.key = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)
        self.bridge, self.join = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.output = nn.Linear(size, sizes.vocabulary)

    def forward(self, words: Tensor, truth: Tensor, memory: Memory) -> Tensor:
        embedded, keys = self.embed(words), self.key(memory.states)
        state = torch.tanh(self.bridge(memory.summary)).chunk(2, dim=-1)
        output, outputs = torch.zeros_like(state[0]), []
        for word in embedded.unbind(1):
            state = self.cell(torch.cat([word, output], dim=-1), state)
            scores = self.energy(torch.tanh(self.query(state[0])[:, None] + keys)).squeeze(-1)
            weights = scores.masked_fill(~memory.visible, float("-inf")).softmax(dim=-1)
            context = (weights[:, None].to(memory.states.dtype) @ memory.states).squeeze(1)
            output = torch.tanh(self.join(torch.cat([state[0], context], dim=-1)))
            outputs.append(output)
        logits = self.output(torch.stack(outputs, dim=1))
        return functional.cross_entropy(logits.flatten(0, 1).float(), truth.flatten(), ignore_index=PAD, reduction="sum")


class Ours(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        config = {"cell": "lstm", "embedding_size": sizes.size, "hidden_size": sizes.size, "context": "input_feeding"}
        self.decoder = RecurrentDecoder(RecurrentDecoder.Config(**config), sizes.vocabulary, sizes.size, sizes.size)

    def forward(self, words: Tensor, truth: Tensor, memory: Memory) -> Tensor:
        return self.decoder.loss(self.decoder(words, self.decoder.prepare(memory)), truth)


class Task:
    """A batch, and what an encoder would have left, which wants its gradient."""

    def __init__(self, sizes: Sizes, device: str) -> None:
        torch.manual_seed(1)
        self.words, self.truth = (
            torch.randint(PAD + 1, sizes.vocabulary, (sizes.batch, sizes.target), device=device) for _ in range(2)
        )
        self.states = nn.Parameter(torch.randn(sizes.batch, sizes.source, sizes.size, device=device) / 4)
        lengths = torch.randint(sizes.source // 2, sizes.source + 1, (sizes.batch, 1), device=device)
        self.visible = torch.arange(sizes.source, device=device) < lengths

    def loss(self, model: nn.Module, words: Tensor, truth: Tensor) -> Tensor:
        with torch.autocast(words.device.type, torch.bfloat16, enabled=words.is_cuda):
            memory = Memory(self.states, self.visible, self.states.mean(dim=1))
            return model(words, truth, memory) / truth.numel()


def steps(task: Task, model: nn.Module, after: int, number: int) -> Callable[[], None]:
    """So many training steps; gradients come from a CUDA graph once `after` of them were computed directly."""
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    gradients = Captured(lambda words, truth: task.loss(model, words, truth), [task.states, *parameters], after)

    def run() -> None:
        for _ in range(number):
            gradients(task.words, task.truth)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            task.states.grad = None
        if task.words.is_cuda:
            torch.cuda.synchronize()
        assert not gradients.refused, gradients.refused

    return run


def main(device: str, compiled: bool) -> None:
    sizes = Sizes(128, 32, 32, 512, 8000) if device == "cuda" else Sizes(16, 8, 8, 64, 500)
    task, never, number = Task(sizes, device), 1 << 30, 10
    rivals = {"ours": steps(task, Ours(sizes).to(device), 2 if device == "cuda" else never, number)}
    rivals["plain"] = steps(task, Plain(sizes).to(device), never, number)
    if device == "cuda":
        rivals["plain in a CUDA graph"] = steps(task, Plain(sizes).to(device), 2, number)
        rivals["ours, not captured"] = steps(task, Ours(sizes).to(device), never, number)
    if compiled:
        rivals["torch.compile"] = steps(task, torch.compile(Plain(sizes).to(device)), never, number)
    medians = race(rivals, rounds=5)
    for name, seconds in medians.items():
        row = {"benchmark": "decoder", "who": name, "device": device, **sizes._asdict(), "ms": round(seconds / number * 1e3, 3)}
        row |= {"tokens_per_s": round(task.words.numel() * number / seconds), "ratio": round(seconds / medians["ours"], 2)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    main(arguments.device, arguments.compile)
