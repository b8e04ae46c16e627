"""regard as a system of the peers' driver (shared/peers: `OURS_ADAPTER=benchmarks/peers_adapter.py`)."""

import torch

from regard.data.batching import reading
from regard.decoding.beam import beam_search
from regard.decoding.greedy import greedy_search
from regard.decoding.rules.rule import SearchStep
from regard.engine.engines import engine_for
from regard.models import build as build_model
from regard.models import configure
from regard.nn.allocator import keep_freed_memory
from regard.training.objective import Objective

RNN = {
    "share_embeddings": True,
    "encoder": {"cell": "lstm", "embedding_size": 512, "hidden_size": 256, "layers": 2, "dropout": 0.1},
    "decoder": {
        "cell": "lstm", "embedding_size": 512, "hidden_size": 512, "layers": 2, "dropout": 0.1,
        "attention": {"score": "additive"}, "context": "input_feeding",
    },
}  # fmt: skip
PRECISIONS_OF = {"fp32": "float32", "bf16": "bfloat16"}  # the driver's names
SYSTEM: dict = {}


def transformer(config: dict) -> dict:
    """With the biases that the others have."""
    heads = {"heads": config["heads"], "bias": True}
    side = {
        "kind": "transformer",
        "hidden_size": config["d"],
        "feedforward_size": config["ff"],
        "layers": config["layers"],
        "attention": heads,
    }
    return {
        "share_embeddings": True,
        "encoder": side,
        "decoder": {**side, "cross_attention": heads, "output_bias": True},
    }


def build(config: dict) -> str:
    torch.set_num_threads(config["threads"])
    keep_freed_memory()
    torch.manual_seed(7)
    values = RNN if config["kind"] == "rnn" else transformer(config)
    model = build_model(configure(values), config["vocab"], config["vocab"])
    SYSTEM.update(model=model.train(config["mode"] == "train"), config=config, objective=Objective(model, 0.0))
    if config["mode"] != "train":
        precision = PRECISIONS_OF.get(config["precision"], config["precision"])
        SYSTEM["model"] = engine_for(model.requires_grad_(False), precision).model
    if config["mode"] == "train":
        SYSTEM["optimizer"] = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return f"regard torch {torch.__version__} params {sum(p.numel() for p in model.parameters()) / 1e6:.1f}M"


def sources(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    end = SYSTEM["config"]["eos"]
    tokens = torch.tensor([[*row, end] for row in rows])
    return tokens, torch.full((len(rows),), tokens.shape[1])


@torch.inference_mode()
def translate(batch: list[list[int]], beam: int, length: int) -> list[list[int]]:
    """By our searches, with the end barred and outputs cut at `length`, so that every system writes as many words."""
    model, config = SYSTEM["model"], SYSTEM["config"]
    step, state = model.start(model.encode(reading(*sources(batch))))

    def searched(words: torch.Tensor, both: tuple) -> SearchStep:
        found = step(words, both[0])
        log_probs = found.logits.log_softmax(dim=-1)
        log_probs[:, config["eos"]] = log_probs[:, config["pad"]] = float("-inf")
        return SearchStep(log_probs, found.weights, (found.state, both[1] + 1), both[1] >= length - 1)

    first = torch.full((len(batch),), config["pad"])
    given = searched, (state, torch.zeros(len(batch), dtype=torch.long)), first
    found = greedy_search(*given, end=config["eos"]) if beam == 1 else beam_search(*given, width=beam, end=config["eos"])
    return [one[0].tokens for one in found]


def train_step(batch: dict) -> float:
    """As training/loop.py does an update: backward, clip, step."""
    config = SYSTEM["config"]
    source, lengths = sources(batch["src"])
    output, _ = sources(batch["tgt"])
    tokens = output.numel()
    # end is token 0 here and our padding too: shift the labels' meaning by ignoring nothing (all rows are full)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config["precision"] == "bf16"):
        loss = SYSTEM["objective"](reading(source, lengths, target=torch.where(output == 0, 1, output))).total / tokens
    loss.backward()
    torch.nn.utils.clip_grad_norm_(SYSTEM["model"].parameters(), 1.0)
    SYSTEM["optimizer"].step()
    SYSTEM["optimizer"].zero_grad(set_to_none=True)
    return loss.item()
