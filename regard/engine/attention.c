/* One query a row, which looks at keys wherever they were written. All numbers are finite. */
/* e^x = 2^n e^r with |r| <= ln 2 / 2, and e^r by its series */
static inline __m512 exponential(__m512 x) {
    static const float series[] = {1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1.0f, 1.0f};
    x = _mm512_max_ps(x, _mm512_set1_ps(-100.0f));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 sum = _mm512_set1_ps(series[0]);
    for (int i = 1; i < 7; i++) sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(series[i]));
    return _mm512_scalef_ps(sum, n);
}

/* w = e^(w - best) where visible, in place; their sum */
static float exponentials(float *w, const uint8_t *visible, float best, long times) {
    __m512 total = _mm512_setzero_ps();
    for (long t = 0; t < times; t += LANES) {
        __mmask16 there = first_of(times - t), seen = there;
        if (visible) seen = _mm_mask_test_epi8_mask(there, _mm_maskz_loadu_epi8(there, visible + t), _mm_set1_epi8(-1));
        __m512 scores = _mm512_maskz_loadu_ps(there, w + t);
        __m512 found = _mm512_maskz_mov_ps(seen, exponential(_mm512_sub_ps(scores, _mm512_set1_ps(best))));
        _mm512_mask_storeu_ps(w + t, there, found);
        total = _mm512_add_ps(total, found);
    }
    return _mm512_reduce_add_ps(total);
}

/* sixteen numbers, or fewer: float32, or bfloat16, which is the upper half of one. Whole ones are not read under a mask: where
   they have to be waited for, that takes eight times as long (Zen 5). */
static inline __attribute__((always_inline)) __m512 load(const void *numbers, long at, __mmask16 there, const int half) {
    const float *whole = (const float *)numbers + at;
    const uint16_t *upper = (const uint16_t *)numbers + at;
    const int all = there == 0xffff;
    if (!half) return all ? _mm512_loadu_ps(whole) : _mm512_maskz_loadu_ps(there, whole);
    __m256i read = all ? _mm256_loadu_si256((const __m256i *)upper) : _mm256_maskz_loadu_epi16(there, upper);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(read), 16));
}

/* Where keys and values lie: pairs as [slots][heads][places][key + value]. A row's pair at time t lies in slot
   ancestors[row][t], or, without ancestors, in slot row / sharers. */
typedef struct {
    const void *pairs;
    const int64_t *ancestors;
    const uint8_t *visible;    /* [slots][times], or none: all are */
    const float *network;      /* 2 v [heads][key] of scores v . tanh(q + k), whose queries and keys are given as e^2q and e^2k; or
                                  none: q . k */
    long sharers, heads, key, value, places, times;
} Past;

/* Where the pair of a slot and head at time t begins */
static inline long place_of(const Past *past, long slot, long head, long t) {
    return ((slot * past->heads + head) * past->places + t) * (past->key + past->value);
}

/* What sixteen elements of a query and a key add to their score. tanh(q + k) = 1 - 2 / (1 + e^2q e^2k), and what all keys have in
   common changes no weight. */
static inline __attribute__((always_inline)) __m512 compared(__m512 q, __m512 k, __m512 sum, __m512 v, const int network) {
    const __m512 one = _mm512_set1_ps(1);
    return network ? _mm512_fnmadd_ps(v, _mm512_div_ps(one, _mm512_fmadd_ps(q, k, one)), sum) : _mm512_fmadd_ps(q, k, sum);
}

/* context = softmax(scores) V of one query and head */
static inline __attribute__((always_inline)) void attend_one(
    const Past *past, long row, long head, const float *q, float *context, float *weights, const int half, const int network) {
    const long times = past->times, key = past->key, value = past->value, own = row / past->sharers;
    const int64_t *mine = past->ancestors ? past->ancestors + row * times : NULL;
    const uint8_t *seen = past->visible ? past->visible + own * times : NULL;
    float best = -1e30f;
    for (long t = 0; t < times; t++) {
        long at = place_of(past, mine ? mine[t] : own, head, t);
        __m512 sum = _mm512_setzero_ps();
        for (long i = 0; i < key; i += LANES) {
            __mmask16 there = first_of(key - i);
            __m512 v = network ? load(past->network, head * key + i, there, 0) : sum;
            sum = compared(load(q, i, there, 0), load(past->pairs, at + i, there, half), sum, v, network);
        }
        weights[t] = _mm512_reduce_add_ps(sum);
        if ((!seen || seen[t]) && weights[t] > best) best = weights[t];
    }
    const float total = exponentials(weights, seen, best, times), share = total > 0 ? 1 / total : 0;
    for (long t = 0; t < times; t++) weights[t] *= share;
    for (long i = 0; i < value; i += 4 * LANES) {
        __m512 sums[4];
        __mmask16 there[4];
        EACH(n, 4) { sums[n] = _mm512_setzero_ps(); there[n] = first_of(value - i - n * LANES); }
        for (long t = 0; t < times; t++) {
            long at = place_of(past, mine ? mine[t] : own, head, t) + key + i;
            __m512 weight = _mm512_set1_ps(weights[t]);
            EACH(n, 4) sums[n] = _mm512_fmadd_ps(weight, load(past->pairs, at + n * LANES, there[n], half), sums[n]);
        }
        EACH(n, 4) _mm512_mask_storeu_ps(context + i + n * LANES, there[n], sums[n]);
    }
}

/* One query a row and head; pairs are bfloat16 if `half`, which a network's are not. Weights of a row and those of the next lie
   `across` apart. */
void attend(
    const Past *past, const float *queries, long stride, long rows, long half, float *context, float *weights, long across) {
    for (long row = 0; row < rows; row++)
        for (long head = 0; head < past->heads; head++) {
            const float *q = queries + row * stride + head * past->key;
            float *c = context + (row * past->heads + head) * past->value, *w = weights + row * across + head * past->times;
            if (past->network) attend_one(past, row, head, q, c, w, 0, 1);
            else if (half) attend_one(past, row, head, q, c, w, 1, 0);
            else attend_one(past, row, head, q, c, w, 0, 0);
        }
}
