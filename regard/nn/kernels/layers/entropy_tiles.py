"""Triton: the cross-entropy of one row of logits, which become its gradient."""

import triton
import triton.language as tl

BITS = tl.constexpr(1.4426950408889634)  # log2 e: powers of 2 are what a GPU computes


@triton.jit
def row_entropy(L, TARGET, LOSS, stride, ignore, VOCABULARY, smoothing, LEARN: tl.constexpr, BV: tl.constexpr):
    """-Σ q log p, with q = (1 - ε) [the truth] + ε / V; where LEARN, the gradient p - q comes where the logits were."""
    row = tl.program_id(0).to(tl.int64)
    L += row * stride
    target = tl.load(TARGET + row)
    counts = target != ignore
    truth = tl.load(L + tl.where(counts, target, 0)).to(tl.float32)
    most, whole, total = -float("inf"), 0.0, 0.0
    for start in range(0, VOCABULARY, BV):
        v = start + tl.arange(0, BV)
        logits = tl.load(L + v, mask=v < VOCABULARY, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(most, tl.max(logits, axis=0) * BITS)
        whole = whole * tl.exp2(most - higher) + tl.sum(tl.exp2(logits * BITS - higher), axis=0)
        total += tl.sum(tl.where(v < VOCABULARY, logits, 0.0), axis=0)
        most = higher
    log_sum, each = most + tl.log2(whole), smoothing / VOCABULARY
    tl.store(LOSS + row, tl.where(counts, log_sum / BITS - (1.0 - smoothing) * truth - each * total, 0.0))
    if LEARN:
        tl.debug_barrier()
        log_sum, each = tl.where(counts, log_sum, float("inf")), tl.where(counts, each, 0.0)  # so that p - q = 0 if it does not
        for start in range(0, VOCABULARY, BV):
            v = start + tl.arange(0, BV)
            logits = tl.load(L + v, mask=v < VOCABULARY, other=0.0).to(tl.float32)
            tl.store(L + v, (tl.exp2(logits * BITS - log_sum) - each).to(L.dtype.element_ty), mask=v < VOCABULARY)
        tl.debug_barrier()
        own = tl.exp2(truth * BITS - log_sum) - each - (1.0 - smoothing)
        tl.store(L + target, own.to(L.dtype.element_ty), mask=counts)
