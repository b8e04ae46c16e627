"""Triton: queries go through keys tile by tile and keep running sums alone. flash.py says what is computed.

Scores are powers of two, s = q · k · scale / ln 2, so that e^(scale q · k) = 2^s. What is not counted has s = -∞.
"""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1.0e30)  # below every score, yet finite: 2^(-∞ - LOWEST) is 0
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def rows_of(X, at, r, ok, c, WIDTH: tl.constexpr):
    """Columns c of rows r of a matrix that begins at `at`; 0 where there are none."""
    inside = ok[:, None] & (c < WIDTH)[None, :]
    return tl.load(X + at + r[:, None] * WIDTH + c[None, :], mask=inside, other=0.0)


@triton.jit
def put_rows(X, at, r, ok, c, tile, WIDTH: tl.constexpr):
    inside = ok[:, None] & (c < WIDTH)[None, :]
    tl.store(X + at + r[:, None] * WIDTH + c[None, :], tile.to(X.dtype.element_ty), mask=inside)


@triton.jit
def there(VISIBLE, batch, j, S, HIDES: tl.constexpr):
    """Whether j is a key at all, and one to be seen."""
    ok = j < S
    if HIDES:
        ok = ok & (tl.load(VISIBLE + batch * S + j, mask=ok, other=0) != 0)
    return ok


@triton.jit
def window_of(FIRST, LAST, at, i, ok, S, WINDOW: tl.constexpr):
    """Each query's first and last key."""
    if WINDOW:
        first = tl.load(FIRST + at + i, mask=ok, other=S).to(tl.int32)
        last = tl.load(LAST + at + i, mask=ok, other=-1).to(tl.int32)
        return tl.maximum(first, 0), tl.minimum(last, S - 1)
    else:
        return i * 0, i * 0 + S - 1


@triton.jit
def span(first, last, S, BN: tl.constexpr, WINDOW: tl.constexpr):
    """Where a loop over the keys of these queries begins and ends."""
    if WINDOW:
        return tl.min(first, 0) // BN * BN, tl.max(last, 0) + 1
    else:
        return 0, S


@triton.jit
def counted(s, j, seen, first, last, PLAIN: tl.constexpr, WINDOW: tl.constexpr):
    """s where the key counts for the query, else -∞; works for tiles of either orientation."""
    if PLAIN:
        return s
    elif WINDOW:
        return tl.where(seen & (j >= first) & (j <= last), s, float("-inf"))
    else:
        return tl.where(seen, s, float("-inf"))


@triton.jit
def held(X, at, r, ok, WIDTH: tl.constexpr, C: tl.constexpr):
    """Whole rows, where C columns are whole rows; such tiles stay for the entire loop."""
    if WIDTH <= C:
        return rows_of(X, at, r, ok, tl.arange(0, C), WIDTH)
    else:
        return 0.0


@triton.jit
def products(x, X, x_at, i, i_ok, Y, y_at, j, j_ok, WIDTH: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr):
    """x_i · y_j for all pairs: x held, or both read C columns at a time."""
    if WIDTH <= C:
        y = rows_of(Y, y_at, j, j_ok, tl.arange(0, C), WIDTH)
        return tl.dot(x, tl.trans(y), input_precision=PRECISION)
    else:
        total = tl.zeros([i.shape[0], j.shape[0]], tl.float32)
        for start in tl.range(0, WIDTH, C):
            c = start + tl.arange(0, C)
            left, right = rows_of(X, x_at, i, i_ok, c, WIDTH), rows_of(Y, y_at, j, j_ok, c, WIDTH)
            total = tl.dot(left, tl.trans(right), total, input_precision=PRECISION)
        return total


@triton.jit
def row_products(X, x_at, i, i_ok, Y, y_at, j, j_ok, WIDTH: tl.constexpr, C: tl.constexpr):
    """x_i · y_j of row i and its own j."""
    total = tl.zeros([i.shape[0]], tl.float32)
    for start in tl.range(0, WIDTH, C):
        c = start + tl.arange(0, C)
        left, right = rows_of(X, x_at, i, i_ok, c, WIDTH), rows_of(Y, y_at, j, j_ok, c, WIDTH)
        total += tl.sum(left.to(tl.float32) * right.to(tl.float32), axis=1)
    return total


@triton.jit
def grow(top, total, s):
    """Adds Σ_j 2^s to 2^top · total, top being the largest so far; also 2^(s - top), and the old sum's factor."""
    larger = tl.maximum(top, tl.max(s, axis=1))
    parts, shrink = tl.exp2(s - larger[:, None]), tl.exp2(top - larger)
    return larger, total * shrink + tl.sum(parts, axis=1), parts, shrink


@triton.jit
def power(top, total):
    """log2 of 2^top · total, -∞ for an empty sum."""
    return tl.where(total > 0.0, top + tl.log2(tl.where(total > 0.0, total, 1.0)), float("-inf"))


@triton.jit
def attend_tiles(
    Q, K, V, MIXED, PICKED, LOG_SUM, PLACE, LOW, HIGH, VISIBLE, FIRST, LAST, CENTRE, factor, steep, HEADS, SHARES, T, S,
    SIZE: tl.constexpr, VALUE: tl.constexpr, C: tl.constexpr, CV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PLAIN: tl.constexpr, HIDES: tl.constexpr, WINDOW: tl.constexpr, GAUSS: tl.constexpr, SOFT: tl.constexpr,
    PICK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of queries, and CV columns of the values: Σ_j w_ij v_j or v of the best j, and ln Σ_j e^s."""
    blocks, block = tl.cdiv(T, BM), tl.program_id(0) % tl.cdiv(T, BM)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    batch = row // HEADS
    i, v = block * BM + tl.arange(0, BM), tl.program_id(1) * CV + tl.arange(0, CV)
    ok = i < T
    first, last = window_of(FIRST, LAST, (batch * SHARES + row % HEADS % SHARES) * T, i, ok, S, WINDOW)
    low, high = span(first, last, S, BN, WINDOW)
    q_at, k_at, v_at = row * T * SIZE, row * S * SIZE, row * S * VALUE
    q = held(Q, q_at, i, ok, SIZE, C)
    centre = 0.0 * i
    if GAUSS:
        centre = tl.load(CENTRE + row * T + i, mask=ok, other=0.0).to(tl.float32)
    top, total = tl.full([BM], LOWEST, tl.float32), tl.zeros([BM], tl.float32)
    best, place = tl.full([BM], float("-inf"), tl.float32), tl.full([BM], -1, tl.int32)
    mixed = tl.zeros([BM, CV], tl.float32)
    for start in tl.range(low, high, BN):
        j = start + tl.arange(0, BN)
        seen = there(VISIBLE, batch, j, S, HIDES)
        s = products(q, Q, q_at, i, ok, K, k_at, j, seen, SIZE, C, PRECISION) * factor
        s = counted(s, j[None, :], seen[None, :], first[:, None], last[:, None], PLAIN, WINDOW)
        if PICK:
            most, at = tl.max(s, axis=1, return_indices=True, return_indices_tie_break_left=True)
            place, best = tl.where(most > best, start + at, place), tl.maximum(most, best)
        top, total, weights, shrink = grow(top, total, s)
        if SOFT:
            if GAUSS:
                away = j[None, :] - centre[:, None]
                weights = weights * tl.exp2(-steep * away * away)
            values = rows_of(V, v_at, j, seen, v, VALUE)
            mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None], input_precision=PRECISION)
    at = row * T + i
    if SOFT:
        mixed = mixed / tl.where(total > 0.0, total, 1.0)[:, None]
        put_rows(MIXED, row * T * VALUE, i, ok, v, mixed, VALUE)
    if PICK:
        put_rows(PICKED, row * T * VALUE, i, ok, v, rows_of(V, v_at, place, place >= 0, v, VALUE), VALUE)
    if tl.program_id(1) == 0:
        tl.store(LOG_SUM + at, power(top, total) * LN2, mask=ok)
        if WINDOW:
            tl.store(LOW + row * blocks + block, low)
            tl.store(HIGH + row * blocks + block, high)
        if PICK:
            tl.store(PLACE + at, place.to(tl.int64), mask=ok)
