"""Long inputs through a decoder alone: T-DMCA (blocks and compressed memory in turn) beside full attention (liu2018-d).

python benchmarks/long.py --device cuda                   2,750, 5,500 and 11,000 tokens, one sentence, bfloat16
python benchmarks/long.py --lengths 256 512 1024          small models on a CPU

Full attention comes in two ways: by the plain formula, whose weights are kept for the way back, and by our fastest path. "kept"
is what the forward pass leaves in memory for the backward pass, the loss aside; on a GPU also the peak of the step.
"""

import argparse
import json
import statistics
import time

import torch

from regard.data.batching import Batch, reading
from regard.models import build, configure
from regard.nn.attention.attend import FASTEST
from regard.recipe import read

VOCABULARY = 8000
SMALL = {"hidden_size": 64, "feedforward_size": 128, "layers": 4}


def model_of(recipe: str, device: torch.device) -> torch.nn.Module:
    values = dict(read(recipe).model)
    if device.type == "cpu":
        values |= SMALL
    torch.manual_seed(1)
    return build(configure(values), VOCABULARY, VOCABULARY).to(device).train()


def plainly(way: str) -> None:
    """`plain`: the formula on every device; otherwise the fastest path."""
    FASTEST["cuda"] = () if way == "plain" else USUAL["cuda"]
    FASTEST["cpu"] = () if way == "plain" else USUAL["cpu"]


USUAL = dict(FASTEST)


def kept(model: torch.nn.Module, batch: Batch) -> int:
    """Bytes saved for the way back, each storage once, parameters aside."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    seen: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an output that its own node keeps would never be freed

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        steps = forward(model, batch)
    assert steps is not None
    return sum(seen.values())


def forward(model: torch.nn.Module, batch: Batch) -> object:
    device = batch["source"].values.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        return model.teacher_forced(batch, batch["target"].values)


def step(model: torch.nn.Module, batch: Batch) -> None:
    device = batch["source"].values.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        written = batch["target"].values
        model.decoder.loss(model.teacher_forced(batch, written), written, 0.1).backward()
    model.zero_grad(set_to_none=True)
    if device == "cuda":
        torch.cuda.synchronize()


def measure(recipe: str, way: str, length: int, device: torch.device) -> dict[str, object]:
    plainly(way)
    model, target = model_of(recipe, device), max(length // 22, 4)
    source = torch.randint(4, VOCABULARY, (1, length - target), device=device)
    written = torch.randint(4, VOCABULARY, (1, target), device=device)
    batch = reading(source, torch.tensor([length - target], device=device), target=written)
    saved = kept(model, batch)
    step(model, batch)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    for _ in range(5):
        begin = time.perf_counter()
        step(model, batch)
        times.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated() / 1e6 if device.type == "cuda" else None
    row = {"kept_MB": round(saved / 1e6, 1), "ms": round(statistics.median(times) * 1e3, 2)}
    return row | ({} if peak is None else {"peak_MB": round(peak, 1)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--lengths", type=int, nargs="*", default=[2750, 5500, 11_000])
    options = parser.parse_args()
    device = torch.device(options.device)
    for length in options.lengths:
        first = measure("liu2018-dmca", "fastest", length, device)
        print(json.dumps({"benchmark": "long", "who": "T-DMCA", "tokens": length, **first}), flush=True)
        for way in ("plain", "fastest"):
            found = measure("liu2018-d", way, length, device)
            ratios = {"kept_ratio": round(found["kept_MB"] / first["kept_MB"], 2), "ratio": round(found["ms"] / first["ms"], 2)}
            print(
                json.dumps({"benchmark": "long", "who": f"full attention, {way}", "tokens": length, **found, **ratios}),
                flush=True,
            )


if __name__ == "__main__":
    main()
