"""Triton: the cross-entropy of one row of logits, which become its slope."""

import triton
import triton.language as tl


@triton.jit
def row_entropy(L, TARGET, LOSS, stride, ignore, VOCABULARY, smoothing, LEARN: tl.constexpr, BV: tl.constexpr):
    """-Σ q log p, with q = (1 - ε) [the truth] + ε / V; where LEARN, the slope p - q comes where the logits were."""
    row = tl.program_id(0).to(tl.int64)
    L += row * stride
    target = tl.load(TARGET + row)
    counts = target != ignore
    most, whole, total = -float("inf"), 0.0, 0.0
    for start in range(0, VOCABULARY, BV):
        v = start + tl.arange(0, BV)
        logits = tl.load(L + v, mask=v < VOCABULARY, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(most, tl.max(logits, axis=0))
        whole = whole * tl.exp(most - higher) + tl.sum(tl.exp(logits - higher), axis=0)
        total += tl.sum(tl.where(v < VOCABULARY, logits, 0.0), axis=0)
        most = higher
    truth = tl.load(L + tl.where(counts, target, 0)).to(tl.float32)
    log_sum, each = most + tl.log(whole), smoothing / VOCABULARY
    tl.store(LOSS + row, tl.where(counts, log_sum - (1.0 - smoothing) * truth - each * total, 0.0))
    if LEARN:
        tl.debug_barrier()
        for start in range(0, VOCABULARY, BV):
            v = start + tl.arange(0, BV)
            logits = tl.load(L + v, mask=v < VOCABULARY, other=0.0).to(tl.float32)
            slope = tl.exp(logits - most) / whole - each - tl.where(v == target, 1.0 - smoothing, 0.0)
            tl.store(L + v, tl.where(counts, slope, 0.0).to(L.dtype.element_ty), mask=v < VOCABULARY)
