"""The dot family on a GPU against scaled_dot_product_attention with the same projections around it: forward and backward.

python benchmarks/attention_dot.py
"""

import torch
from timing import report
from torch.nn import functional
from triton.testing import do_bench

from regard.nn.attention import Attention

BATCH, HEADS, TIME, SIZE = 32, 8, 4096, 512


def raw(attention, query, memory):
    """What any library user would write: project, split, attend."""
    score = attention.score
    queries = score.project_query(query) if hasattr(score, "project_query") else query
    keys = score.project_key(memory) if hasattr(score, "project_key") else memory
    if hasattr(score, "rows"):
        keys = score.rows[:, :TIME].to(query.dtype).expand(BATCH, -1, -1, -1)
    sides = [split(side, score.heads) for side in (queries, keys, attention.project_value(memory))]
    if score.__class__.__name__ in ("GeneralScore", "LocationScore"):
        sides[0] = query[:, None].expand(-1, score.heads, -1, -1)
    if score.__class__.__name__ == "CosineScore":
        sides[:2] = (functional.normalize(side, dim=-1) for side in sides[:2])
    return functional.scaled_dot_product_attention(*sides, scale=1.0).transpose(1, 2).flatten(2)


def split(side, heads):
    return side if side.dim() == 4 else side.view(*side.shape[:2], heads, -1).transpose(1, 2)


def ours(attention, query, memory):
    return attention(query, attention.prepare(memory)).context


def timed(way, attention, query, memory, slope):
    def run():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            context = way(attention, query, memory)
        context.backward(slope.to(context.dtype))

    return do_bench(run, warmup=10, rep=100, return_mode="median") / 1e3


def main():
    for score in ("dot", "scaled", "projected", "cosine", "general", "location"):
        full = score in ("general", "location")  # every head asks with the whole query
        size = SIZE // HEADS if full else SIZE
        attention = Attention(size, size, score=score, heads=HEADS, values=SIZE, longest=TIME).cuda()
        query, memory = (torch.randn(BATCH, TIME, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        slope = torch.randn(BATCH, TIME, SIZE, device="cuda", dtype=torch.bfloat16)
        medians = {name: timed(way, attention, query, memory, slope) for name, way in (("ours", ours), ("raw", raw))}
        report(f"{score}, forward and backward", "ours", "raw", medians, batch=BATCH, heads=HEADS, time=TIME, size=size)


main()
