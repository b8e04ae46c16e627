/* What a decoding step on a CPU does most, each in one call: products of rounded numbers, and one query a row that looks at keys
   wherever they were written. All numbers are finite. native.py compiles it, with layers.c, for the processor at hand; where that
   cannot be done PyTorch's operators do the same. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifndef __AVX512VNNI__
#error "dot products of bytes (AVX512-VNNI) are what this is for"
#endif

enum { LEVELS = 127, ZERO = 128, LANES = 16, WIDE = 4, PANEL = WIDE * LANES, TALL = 6 };  /* a tile: at most TALL rows, PANEL
    outputs; larger ones do not stay in registers */

#define EACH(name, number) _Pragma("GCC unroll 8") for (int name = 0; name < number; name++)

static inline __mmask16 first_of(long left) { return left >= LANES ? 0xffff : (__mmask16)((1u << (left > 0 ? left : 0)) - 1); }

/* x = r / 127 (p - 128): a row as bytes from 1 to 255, and r / 127 */
static float round_row(const float *x, long inputs, uint8_t *p) {
    float largest = 1e-30f;
    for (long i = 0; i < inputs; i++) {
        float size = x[i] < 0 ? -x[i] : x[i];
        largest = size > largest ? size : largest;
    }
    for (long i = 0; i < inputs; i++) p[i] = (uint8_t)(int32_t)(x[i] / largest * LEVELS + (ZERO + 0.5f));
    return largest / LEVELS;
}

typedef struct {
    long inputs, outputs;      /* of which there is room for multiples of 4 and 64 */
    const int8_t *weight;      /* [outputs / 64][inputs / 4][64][4] */
    const float *scales;       /* [outputs]: W = s Q */
    const int32_t *offsets;    /* [outputs]: 128 times the sum of a row of Q, which bytes from 128 on add */
    const float *bias;         /* or none */
    const int8_t *after;       /* the weights that are wanted next, or none */
} Linear;

/* Rows as bytes: [rows][stride], and r / 127 of each */
typedef struct {
    const uint8_t *bytes;
    const float *scales;
    long stride;
} Bytes;

/* Its own instruction, for GCC copies the sums of the intrinsic from register to register */
static inline __attribute__((always_inline)) void add_products(__m512i *sums, __m512i bytes, __m512i weights) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sums) : "v"(bytes), "v"(weights));
}

/* `tall` rows times PANEL outputs, whose sums stay in registers: each instruction multiplies four inputs of sixteen outputs.
   Meanwhile a share of the next panel, from `next` on, comes nearer. */
static inline __attribute__((always_inline)) void tile(
    const Linear *l, const int tall, long first, Bytes x, const int8_t *next, const long share, float *y) {
    const int8_t *weight = l->weight + first * x.stride;
    __m512i sums[TALL][WIDE];
    EACH(row, tall) EACH(block, WIDE) sums[row][block] = _mm512_setzero_si512();
    for (long i = 0; i < x.stride; i += 4, weight += 4 * PANEL, next += share) {
        __m512i w[WIDE];
        for (long ahead = 0; ahead < share; ahead += 64) _mm_prefetch((const char *)next + ahead, _MM_HINT_T1);
        EACH(block, WIDE) w[block] = _mm512_loadu_si512(weight + block * 64);
        EACH(row, tall) {
            __m512i bytes = _mm512_set1_epi32(*(const int32_t *)(x.bytes + row * x.stride + i));
            EACH(block, WIDE) add_products(&sums[row][block], bytes, w[block]);
        }
    }
    EACH(block, WIDE) {
        long at = first + block * LANES, left = l->outputs - at;
        __mmask16 there = first_of(left);
        __m512 scale = _mm512_maskz_loadu_ps(there, l->scales + at);
        __m512 bias = l->bias ? _mm512_maskz_loadu_ps(there, l->bias + at) : _mm512_setzero_ps();
        __m512i offset = _mm512_maskz_loadu_epi32(there, l->offsets + at);
        EACH(row, tall) {
            __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[row][block], offset));
            __m512 found = _mm512_fmadd_ps(_mm512_mul_ps(sum, scale), _mm512_set1_ps(x.scales[row]), bias);
            _mm512_mask_storeu_ps(y + row * l->outputs + at, there, found);
        }
    }
}

/* y = x W^T + b of rows that are bytes already: panel by panel, and each panel by as many rows at once as registers hold */
static void multiply(const Linear *l, Bytes x, long rows, float *y) {
    long passes = (rows + TALL - 1) / TALL, share = passes == 1 ? 256 : passes == 2 ? 128 : 64;
    for (long first = 0; first < l->outputs; first += PANEL) {
        const long more = first + PANEL < l->outputs;
        const int8_t *next = more || !l->after ? l->weight + (first + PANEL) * x.stride : l->after;
        for (long pass = 0; pass < passes; pass++) {
            long row = pass * rows / passes, tall = (pass + 1) * rows / passes - row;
            Bytes some = {x.bytes + row * x.stride, x.scales + row, x.stride};
            float *out = y + row * l->outputs;
            const int8_t *near = next + pass * share * (x.stride / 4);
#define TILE(tall) case tall: \
    if (share == 256) tile(l, tall, first, some, near, 256, out); \
    else if (share == 128) tile(l, tall, first, some, near, 128, out); \
    else tile(l, tall, first, some, near, 64, out); \
    break;
            switch (tall) { TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) }  /* constants, so that the sums stay in registers */
        }
    }
}

/* Rows rounded one by one. `scratch`: rows * (padded inputs + 4) bytes. */
static Bytes round_rows(const float *x, long inputs, long rows, uint8_t *scratch) {
    long stride = (inputs + 3) / 4 * 4;
    float *scales = (float *)(scratch + rows * stride);
    for (long row = 0; row < rows; row++) {
        memset(scratch + row * stride + inputs, ZERO, stride - inputs);
        scales[row] = round_row(x + row * inputs, inputs, scratch + row * stride);
    }
    return (Bytes){scratch, scales, stride};
}

void int8_linear(const Linear *l, const float *x, long rows, uint8_t *scratch, float *y) {
    multiply(l, round_rows(x, l->inputs, rows, scratch), rows, y);
}

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
        __mmask16 there = times - t >= LANES ? 0xffff : (__mmask16)((1u << (times - t)) - 1);
        __mmask16 seen = there;
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
    long sharers, heads, key, value, places, times;
} Past;

/* Where the pair of a row and head at time t begins */
static inline long place_of(const Past *past, long row, long head, long t) {
    long slot = past->ancestors ? past->ancestors[row * past->times + t] : row / past->sharers;
    return ((slot * past->heads + head) * past->places + t) * (past->key + past->value);
}

/* context = softmax(q K^T) V of one query and head */
static inline __attribute__((always_inline)) void attend_one(
    const Past *past, long row, long head, const float *q, float *context, float *weights, const int half) {
    const long times = past->times, key = past->key, value = past->value;
    const uint8_t *seen = past->visible ? past->visible + row / past->sharers * times : NULL;
    float best = -1e30f;
    for (long t = 0; t < times; t++) {
        long at = place_of(past, row, head, t);
        __m512 sum = _mm512_setzero_ps();
        for (long i = 0; i < key; i += LANES) {
            __mmask16 there = first_of(key - i);
            sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(there, q + i), load(past->pairs, at + i, there, half), sum);
        }
        weights[t] = _mm512_reduce_add_ps(sum);
        if ((!seen || seen[t]) && weights[t] > best) best = weights[t];
    }
    float share = 1 / exponentials(weights, seen, best, times);
    for (long t = 0; t < times; t++) weights[t] *= share;
    for (long i = 0; i < value; i += 4 * LANES) {
        __m512 sums[4];
        __mmask16 there[4];
        EACH(n, 4) { sums[n] = _mm512_setzero_ps(); there[n] = first_of(value - i - n * LANES); }
        for (long t = 0; t < times; t++) {
            long at = place_of(past, row, head, t) + key + i;
            __m512 weight = _mm512_set1_ps(weights[t]);
            EACH(n, 4) sums[n] = _mm512_fmadd_ps(weight, load(past->pairs, at + n * LANES, there[n], half), sums[n]);
        }
        EACH(n, 4) _mm512_mask_storeu_ps(context + i + n * LANES, there[n], sums[n]);
    }
}

/* One query a row and head; pairs are bfloat16 if `half`. Weights of a row and those of the next lie `across` apart. */
void attend(const Past *past, const float *queries, long stride, long rows, long half, float *context, float *weights, long across) {
    for (long row = 0; row < rows; row++)
        for (long head = 0; head < past->heads; head++) {
            const float *q = queries + row * stride + head * past->key;
            float *c = context + (row * past->heads + head) * past->value, *w = weights + row * across + head * past->times;
            if (half) attend_one(past, row, head, q, c, w, 1);
            else attend_one(past, row, head, q, c, w, 0);
        }
}
