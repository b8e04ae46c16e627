"""The whole training step of a Transformer: forward, backward, clipping, AdamW; dropout and label smoothing 0.1.

python benchmarks/transformer.py --device cuda                   vaswani2017-base, vocabulary 32,000, 1024 x 32 tokens, bfloat16
python benchmarks/transformer.py --device cuda --rows 256 --time 128
python benchmarks/transformer.py --device cuda --lengths F.npy   batches of real lengths: [pairs, 2] tokens of source and target
python benchmarks/transformer.py                                 a small one on a CPU, float32

Rivals: nn.Transformer, eager and compiled, and Hugging Face's Marian where transformers is installed. All have one table of
words, the same sizes, the same batch; the clock stops when the GPU is done.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.data.batching import Batch, Column
from regard.data.plan import BatchPlan
from regard.models import build, configure
from regard.models.device import on_device
from regard.models.generator import shifted
from regard.models.interface import Loss
from regard.recipe import read
from regard.training.objective import Objective
from regard.training.replay import Replay
from regard.training.watch import FiniteCheck

PAD, START, END = 0, 2, 3


class Sizes(NamedTuple):
    rows: int
    time: int
    size: int
    inner: int
    layers: int
    heads: int
    vocabulary: int


class Torch(nn.Module):
    """torch.nn.Transformer with embeddings, positions and an output layer around it."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, self.embed = sizes, nn.Embedding(sizes.vocabulary, sizes.size)
        nn.init.normal_(self.embed.weight, std=sizes.size**-0.5)
        options = {"dropout": 0.1, "batch_first": True}
        self.core = nn.Transformer(sizes.size, sizes.heads, sizes.layers, sizes.layers, sizes.inner, **options)
        place = torch.arange(1024)[:, None] * 10000.0 ** (-torch.arange(0, sizes.size, 2) / sizes.size)
        self.register_buffer("places", torch.cat([place.sin(), place.cos()], dim=1))
        self.dropout, self.bias = nn.Dropout(0.1), nn.Parameter(torch.zeros(sizes.vocabulary))

    def words(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embed(tokens) * self.sizes.size**0.5 + self.places[: tokens.shape[1]])

    def forward(self, batch: Batch) -> Tensor:
        (source, lengths, *_), target = batch["source"], batch["target"].values
        hidden = torch.arange(source.shape[1], device=source.device) >= lengths[:, None]
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=hidden.device)
        states = self.core(
            self.words(source), self.words(shifted(target)), tgt_mask=mask, tgt_is_causal=True,
            src_key_padding_mask=hidden, memory_key_padding_mask=hidden,
        )  # fmt: skip
        logits = functional.linear(states, self.embed.weight, self.bias)
        return functional.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
        )


class Marian(nn.Module):
    """transformers.MarianMTModel."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=sizes.vocabulary, d_model=sizes.size, encoder_layers=sizes.layers, decoder_layers=sizes.layers,
                encoder_attention_heads=sizes.heads, decoder_attention_heads=sizes.heads, encoder_ffn_dim=sizes.inner,
                decoder_ffn_dim=sizes.inner, dropout=0.1, attention_dropout=0.0, activation_dropout=0.0,
                activation_function="relu", scale_embedding=True, pad_token_id=PAD, eos_token_id=END,
                decoder_start_token_id=START, max_position_embeddings=1024, tie_word_embeddings=True,
            )
        )  # fmt: skip

    def forward(self, batch: Batch) -> Tensor:
        (source, lengths, *_), target = batch["source"], batch["target"].values
        visible = torch.arange(source.shape[1], device=source.device) < lengths[:, None]
        logits = self.model(
            input_ids=source, attention_mask=visible.long(), decoder_input_ids=shifted(target), use_cache=False
        ).logits
        return functional.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
        )


def ours(sizes: Sizes) -> Objective:
    part = {
        "hidden_size": sizes.size,
        "feedforward_size": sizes.inner,
        "layers": sizes.layers,
        "attention": {"heads": sizes.heads},
    }
    values = read("vaswani2017-base").model
    values["encoder"] |= part
    values["decoder"] |= {**part, "cross_attention": {"heads": sizes.heads}}
    return Objective(build(configure(values), sizes.vocabulary, sizes.vocabulary), 0.1)


class Trial:
    """A model with its optimizer."""

    def __init__(self, model: nn.Module, device: torch.device, precision: str, graphs: bool = False) -> None:
        self.model, self.device, self.precision = model.to(device).train(), device, precision
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, betas=(0.9, 0.98), fused=True)
        self.replay = Replay(model, precision, device) if graphs else None
        self.watch = FiniteCheck(self.optimizer) if graphs else None
        self.run: Callable[..., Tensor | Loss] = self.model

    def step(self, batch: Batch) -> None:
        if self.watch is not None:
            self.own_step(batch)
        else:
            there = on_device(batch, self.device)
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bfloat16"):
                found = self.run(there)
            (getattr(found, "total", found) / 1000).backward()
            nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def own_step(self, batch: Batch) -> None:
        """As `regard train` does it on a GPU."""
        loss = self.replay(batch, 1 / 1000)
        norm = nn.utils.get_total_norm([one.grad for one in self.parameters if one.grad is not None])
        self.watch.step(0, batch.rows, 0, loss[0], norm, 1.0)
        list(self.watch.known())


def make_batch(lengths: np.ndarray, vocabulary: int, random: np.random.Generator) -> Batch:
    """Words drawn at random, with rows of these lengths, end marks included."""
    columns = {}
    for name, side in zip(("source", "target"), lengths.T, strict=True):
        words = random.integers(4, vocabulary, (len(side), side.max()))
        place = np.arange(side.max())
        words[place >= side[:, None]] = PAD
        words[np.arange(len(side)), side - 1] = END
        columns[name] = Column(words, side.copy())
    return Batch(columns, np.arange(len(lengths)))


def batches(options: argparse.Namespace, sizes: Sizes) -> list[Batch]:
    random = np.random.default_rng(1)
    if options.lengths is None:
        full = np.full((sizes.rows, 2), sizes.time)
        return [make_batch(full, sizes.vocabulary, random) for _ in range(4)]
    lengths = np.load(options.lengths)
    plan = BatchPlan(lengths[:, 0], lengths[:, 1], sizes.rows * sizes.time, seed=1)
    return [make_batch(lengths[plan.batch(step)] + 1, sizes.vocabulary, random) for step in range(options.batches)]


def measure(trial: Trial, given: list[Batch], rounds: int) -> dict[str, float]:
    """Target tokens a second that are no padding, median of rounds over all batches; what memory it took."""
    cuda = trial.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()  # recordings of graphs count
    for _ in range(4 if trial.replay is not None else 2):
        for batch in given:
            trial.step(batch)
    if cuda:
        torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for batch in given:
            trial.step(batch)
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    tokens, seconds = sum(int(batch["target"].lengths.sum()) for batch in given), statistics.median(times)
    peak = torch.cuda.max_memory_allocated() / 1e9 if cuda else float("nan")
    return {"tokens_per_s": round(tokens / seconds), "ms": round(seconds / len(given) * 1e3, 2), "peak_GB": round(peak, 2)}


def contenders(names: list[str]) -> dict[str, Callable[[Sizes], nn.Module]]:
    table = {
        "ours": ours,
        "ours, not captured": ours,
        "nn.Transformer": Torch,
        "nn.Transformer compiled": Torch,
        "Marian": Marian,
    }
    table |= {"Marian compiled": Marian}
    return {name: table[name] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--time", type=int)
    parser.add_argument("--lengths", help="an .npy file of [pairs, 2] lengths")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=["float32", "bfloat16"])
    parser.add_argument("--who", nargs="*", default=["ours", "nn.Transformer", "nn.Transformer compiled", "Marian"])
    options = parser.parse_args()
    cuda, device = options.device == "cuda", torch.device(options.device)
    usual = Sizes(1024, 32, 512, 2048, 6, 8, 32_000) if cuda else Sizes(64, 26, 256, 1024, 3, 4, 8_000)
    sizes = usual._replace(rows=options.rows or usual.rows, time=options.time or usual.time)
    precision = options.precision or ("bfloat16" if cuda else "float32")
    given, first = batches(options, sizes), None
    for name, make in contenders(options.who).items():
        torch.manual_seed(1)
        if cuda:
            torch.cuda.empty_cache()
        trial = Trial(make(sizes), device, precision, graphs=cuda and name == "ours")
        if "compiled" in name:
            trial.run = torch.compile(trial.model)
        found = measure(trial, given, options.rounds)
        first = first or found
        ratio = round(first["tokens_per_s"] / found["tokens_per_s"], 2)
        facts = {"rows": sizes.rows, "time": sizes.time, "lengths": options.lengths, "precision": precision}
        print(
            json.dumps({"benchmark": "transformer", "who": name, "device": options.device, **facts, **found, "ratio": ratio}),
            flush=True,
        )
        del trial


if __name__ == "__main__":
    main()
