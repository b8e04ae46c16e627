/* y = x W^T + b of few rows: of rounded numbers, or in float32. */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef __AVX512VNNI__
#error "dot products of bytes (AVX512-VNNI) are what this is for"
#endif

enum { LEVELS = 127, ZERO = 128, LANES = 16, WIDE = 4, PANEL = WIDE * LANES, TALL = 6 };  /* a tile: at most TALL rows, PANEL
    outputs; larger ones do not stay in registers */

#define EACH(name, number) _Pragma("GCC unroll 8") for (int name = 0; name < number; name++)

static inline __mmask16 first_of(long left) { return left >= LANES ? 0xffff : (__mmask16)((1u << (left > 0 ? left : 0)) - 1); }

typedef struct {
    long inputs, outputs;      /* there is room for multiples of 4 and 64 */
    const void *weight;        /* W in panels: bytes Q [outputs / 64][inputs / 4][64][4], or float32 [outputs / 64][inputs][64] */
    const float *scales;       /* [outputs]: W = s Q, or none: W is float32 */
    const int32_t *offsets;    /* [outputs]: 128 times the sum of a row of Q, which bytes from 128 on add */
    const float *bias;         /* or none */
    const int8_t *after;       /* the weights that are wanted next, or none */
} Linear;

/* Rows of Q, whose inputs are a multiple of 4, as `Linear` has them, and their offsets. Sixteen rows are read side by side. */
void lay_out(const int8_t *rows, int32_t *panels, int32_t *offsets, long outputs, long inputs) {
    const __m512i zeros = _mm512_setzero_si512(), bytes = _mm512_set1_epi8((char)ZERO);
    const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i starts = _mm512_mullo_epi32(numbers, _mm512_set1_epi32((int)inputs));
    for (long first = 0; first < (outputs + PANEL - 1) / PANEL * PANEL; first += LANES) {
        int32_t *to = panels + first / PANEL * PANEL * (inputs / 4) + first % PANEL;
        __mmask16 there = first_of(outputs - first);
        __m512i sums = zeros;
        for (long i = 0; i < inputs; i += 4, to += PANEL) {
            __m512i four = _mm512_mask_i32gather_epi32(zeros, there, starts, rows + first * inputs + i, 1);
            sums = _mm512_dpbusd_epi32(sums, bytes, four);
            _mm512_storeu_si512(to, four);
        }
        _mm512_mask_storeu_epi32(offsets + first, there, sums);
    }
}

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
    const int8_t *weight = (const int8_t *)l->weight + first * x.stride;
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
static void multiply_bytes(const Linear *l, Bytes x, long rows, float *y) {
    long passes = (rows + TALL - 1) / TALL, share = passes == 1 ? 256 : passes == 2 ? 128 : 64;
    for (long first = 0; first < l->outputs; first += PANEL) {
        const long more = first + PANEL < l->outputs;
        const int8_t *next = more || !l->after ? (const int8_t *)l->weight + (first + PANEL) * x.stride : l->after;
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

/* Rows rounded one by one. `scratch`: rows * (padded inputs + 4) bytes; those behind a row's inputs are multiplied by 0. */
static Bytes round_rows(const float *x, long inputs, long rows, uint8_t *scratch) {
    long stride = (inputs + 3) / 4 * 4;
    float *scales = (float *)(scratch + rows * stride);
    for (long row = 0; row < rows; row++) scales[row] = round_row(x + row * inputs, inputs, scratch + row * stride);
    return (Bytes){scratch, scales, stride};
}

/* A tile in float32 */
static inline __attribute__((always_inline)) void plain_tile(
    const Linear *l, const int tall, long first, const float *x, float *y) {
    const float *weight = (const float *)l->weight + first * l->inputs;
    __m512 sums[TALL][WIDE];
    EACH(row, tall) EACH(block, WIDE) sums[row][block] = _mm512_setzero_ps();
    for (long i = 0; i < l->inputs; i++, weight += PANEL) {
        __m512 w[WIDE];
        EACH(block, WIDE) w[block] = _mm512_loadu_ps(weight + block * LANES);
        EACH(row, tall) {
            __m512 one = _mm512_set1_ps(x[row * l->inputs + i]);
            EACH(block, WIDE) sums[row][block] = _mm512_fmadd_ps(one, w[block], sums[row][block]);
        }
    }
    EACH(block, WIDE) {
        long at = first + block * LANES;
        __mmask16 there = first_of(l->outputs - at);
        __m512 bias = l->bias ? _mm512_maskz_loadu_ps(there, l->bias + at) : _mm512_setzero_ps();
        EACH(row, tall) _mm512_mask_storeu_ps(y + row * l->outputs + at, there, _mm512_add_ps(sums[row][block], bias));
    }
}

/* y = x W^T + b in float32 */
static void multiply_plain(const Linear *l, const float *x, long rows, float *y) {
    const long passes = (rows + TALL - 1) / TALL;
    for (long first = 0; first < l->outputs; first += PANEL)
        for (long pass = 0; pass < passes; pass++) {
            long row = pass * rows / passes, tall = (pass + 1) * rows / passes - row;
            const float *some = x + row * l->inputs;
            float *out = y + row * l->outputs;
#define PLAIN(tall) case tall: plain_tile(l, tall, first, some, out); break;
            switch (tall) { PLAIN(1) PLAIN(2) PLAIN(3) PLAIN(4) PLAIN(5) PLAIN(6) }
        }
}

/* `scratch`: rows * (inputs + 8) bytes, which float32 does not need */
static void feed(const Linear *l, const float *x, long rows, uint8_t *scratch, float *y) {
    if (l->scales) multiply_bytes(l, round_rows(x, l->inputs, rows, scratch), rows, y);
    else multiply_plain(l, x, rows, y);
}

/* Memory whose beginning is that of a cache's line */
static void *room_of(long bytes) { return aligned_alloc(64, (bytes + 64) / 64 * 64); }

/* Whether there was memory for it. */
int linear(const Linear *l, const float *x, long rows, float *y) {
    uint8_t *scratch = l->scales ? room_of(rows * (l->inputs + 8)) : NULL;
    if (l->scales && !scratch) return 0;
    feed(l, x, rows, scratch, y);
    free(scratch);
    return 1;
}
