/* All layers of a Transformer's decoder for one word of each row, in one call; and an LSTM's steps. */
#include "products.c"
#include "attention.c"
#include <math.h>

enum { LAYER_NORM, RMS_NORM, FIXED_NORM };     /* in the order of NORMS in steps.py */
enum { RELU, GELU, SWISH, SWIGLU };            /* and of ACTIVATIONS */

typedef struct {
    const float *weight, *offset;              /* [size]; rms has no offset */
    long kind;
    float eps;
} Norm;

typedef struct {
    Linear project, output, ask, cross_output, up, down;
    Norm after_self, after_cross, after_feedforward;
} Layer;

typedef struct {
    const Layer *layers;
    long count, size, heads, key, value, cross_heads, cross_key, cross_value, activation;
} Stack;

typedef struct {
    long rows, times, places, slots, sharers, source, half;     /* half: keys and values are bfloat16, not float32 */
    void *own;                                 /* [layers][slots][heads][places][key + value] */
    const int64_t *ancestors;                  /* [rows][times], or none: each row has its own slot */
    const void *const *memory;                 /* of each layer, [sentences][heads][source][key + value] */
    const uint8_t *visible;                    /* [sentences][source], or none */
    float *total, *read;                       /* [rows][size], the same place where norms stand behind the sum */
    float *weights;                            /* [rows][layers][heads][source] */
} Word;

static void normalise(const Norm *norm, const float *x, long size, float *y) {
    float mean = 0, square = 0;
    if (norm->kind == FIXED_NORM) {
        for (long i = 0; i < size; i++) y[i] = x[i] * norm->weight[i] + norm->offset[i];
        return;
    }
    if (norm->kind == LAYER_NORM) for (long i = 0; i < size; i++) mean += x[i] / size;
    for (long i = 0; i < size; i++) square += (x[i] - mean) * (x[i] - mean);
    float scale = 1 / sqrtf(square / size + norm->eps);
    for (long i = 0; i < size; i++) y[i] = (x[i] - mean) * scale * norm->weight[i];
    if (norm->offset) for (long i = 0; i < size; i++) y[i] += norm->offset[i];
}

/* total += fed, and what the next sublayer reads */
static void add_norm(const Norm *norm, const float *fed, const Word *word, long size) {
    for (long row = 0; row < word->rows; row++) {
        float *total = word->total + row * size;
        for (long i = 0; i < size; i++) total[i] += fed[row * size + i];
        normalise(norm, total, size, word->read + row * size);
    }
}

static inline __m512 sigmoid(__m512 x) {
    const __m512 one = _mm512_set1_ps(1);
    return _mm512_div_ps(one, _mm512_add_ps(one, exponential(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

/* x P(N(0, 1) < x), by 7.1.26 of Abramowitz and Stegun, whose error is below 1.5e-7 */
static inline __m512 gelu(__m512 x) {
    static const float series[] = {1.061405429f, -1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f};
    const __m512 one = _mm512_set1_ps(1), z = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(0.70710678f));
    const __m512 t = _mm512_div_ps(one, _mm512_fmadd_ps(z, _mm512_set1_ps(0.3275911f), one));
    __m512 sum = _mm512_set1_ps(series[0]);
    for (int i = 1; i < 5; i++) sum = _mm512_fmadd_ps(sum, t, _mm512_set1_ps(series[i]));
    __m512 beyond = _mm512_mul_ps(_mm512_mul_ps(sum, t), exponential(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(z, z))));
    __m512 half = _mm512_mul_ps(beyond, _mm512_set1_ps(0.5f));        /* the share that lies beyond |x| */
    __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_mul_ps(x, _mm512_mask_mov_ps(_mm512_sub_ps(one, half), negative, half));
}

/* In place; where a row has a gate too, rows move together. */
static void activate(long kind, float *x, long rows, long inner) {
    for (long row = 0; row < rows; row++)
        for (long i = 0; i < inner; i += LANES) {
            const long from = kind == SWIGLU ? 2 * row * inner + i : row * inner + i;
            __mmask16 there = first_of(inner - i);
            __m512 found = load(x, from, there, 0);
            if (kind == RELU) found = _mm512_max_ps(found, _mm512_setzero_ps());
            else if (kind == GELU) found = gelu(found);
            else found = _mm512_mul_ps(found, sigmoid(found));
            if (kind == SWIGLU) found = _mm512_mul_ps(found, load(x, from + inner, there, 0));
            _mm512_mask_storeu_ps(x + row * inner + i, there, found);
        }
}

/* To the nearest bfloat16, the even one of two */
static void round_to_half(const float *x, long count, uint16_t *y) {
    const uint32_t *bits = (const uint32_t *)x;
    for (long i = 0; i < count; i++) y[i] = (uint16_t)((bits[i] + 0x7fff + (bits[i] >> 16 & 1)) >> 16);
}

/* Where numbers between two products lie */
typedef struct {
    uint8_t *bytes;
    float *wide, *context, *fed, *weights;
} Room;

static long largest(long one, long other) { return one > other ? one : other; }

static void *make_room(const Stack *stack, const Word *word, Room *room) {
    long wide = 0, context = largest(stack->heads * stack->value, stack->cross_heads * stack->cross_value), inputs = context;
    for (long n = 0; n < stack->count; n++) {
        const Layer *layer = stack->layers + n;
        wide = largest(wide, largest(largest(layer->project.outputs, layer->up.outputs), layer->ask.outputs));
        inputs = largest(inputs, largest(layer->project.inputs, layer->down.inputs));
    }
    const long weights = stack->heads * word->times, floats = wide + context + stack->size + weights;
    float *found = room_of(word->rows * (floats * sizeof(float) + inputs + 8));
    if (!found) return NULL;
    room->wide = found;
    room->context = room->wide + word->rows * wide;
    room->fed = room->context + word->rows * context;
    room->weights = room->fed + word->rows * stack->size;
    room->bytes = (uint8_t *)(room->weights + word->rows * weights);
    return found;
}

/* A pair of this row and head, as the numbers of a cache are kept */
static void keep(const float *pair, long both, void *own, long at, const long half) {
    if (half) round_to_half(pair, both, (uint16_t *)own + at);
    else memcpy((float *)own + at, pair, both * sizeof(float));
}

static void look_back(const Stack *stack, long n, const Word *word, const Room *room) {
    const Layer *layer = stack->layers + n;
    const long asked = stack->heads * stack->key, both = stack->key + stack->value, width = asked + stack->heads * both;
    void *own = (char *)word->own + n * word->slots * stack->heads * word->places * both * (word->half ? 2 : 4);
    feed(&layer->project, word->read, word->rows, room->bytes, room->wide);
    for (long row = 0; row < word->rows; row++)
        for (long head = 0; head < stack->heads; head++) {
            const float *pair = room->wide + row * width + asked + head * both;
            keep(pair, both, own, ((row * stack->heads + head) * word->places + word->times - 1) * both, word->half);
        }
    Past past = {own, word->ancestors, NULL, NULL, 1, stack->heads, stack->key, stack->value, word->places, word->times};
    attend(&past, room->wide, width, word->rows, word->half, room->context, room->weights, stack->heads * word->times);
    feed(&layer->output, room->context, word->rows, room->bytes, room->fed);
    add_norm(&layer->after_self, room->fed, word, stack->size);
}

static void look_across(const Stack *stack, long n, const Word *word, const Room *room) {
    const Layer *layer = stack->layers + n;
    const long each = stack->cross_heads * word->source;
    Past past = {word->memory[n], NULL, word->visible, NULL, word->sharers, stack->cross_heads, stack->cross_key,
                 stack->cross_value, word->source, word->source};
    feed(&layer->ask, word->read, word->rows, room->bytes, room->wide);
    float *weights = word->weights + n * each;
    attend(&past, room->wide, layer->ask.outputs, word->rows, word->half, room->context, weights, stack->count * each);
    feed(&layer->cross_output, room->context, word->rows, room->bytes, room->fed);
    add_norm(&layer->after_cross, room->fed, word, stack->size);
}

/* Whether there was memory for it. */
int decode_word(const Stack *stack, const Word *word) {
    Room room;
    void *owned = make_room(stack, word, &room);
    if (!owned) return 0;
    for (long n = 0; n < stack->count; n++) {
        const Layer *layer = stack->layers + n;
        look_back(stack, n, word, &room);
        look_across(stack, n, word, &room);
        feed(&layer->up, word->read, word->rows, room.bytes, room.wide);
        activate(stack->activation, room.wide, word->rows, layer->down.inputs);
        feed(&layer->down, room.wide, word->rows, room.bytes, room.fed);
        add_norm(&layer->after_feedforward, room.fed, word, stack->size);
    }
    free(owned);
    return 1;
}

static inline __m512 hyperbolic_tangent(__m512 x) {
    return _mm512_fmsub_ps(_mm512_set1_ps(2), sigmoid(_mm512_add_ps(x, x)), _mm512_set1_ps(1));
}

typedef struct {
    const float *projected;                    /* [rows][times][4 size]: what the input gives to the gates i, f, g, o */
    long rows, times, row_stride, time_stride;
    const uint8_t *active;                     /* [rows][times], or none: a row that has ended keeps its state */
    const float *hidden, *memory;              /* [rows][size], before the first step */
    float *new_hidden, *new_memory;            /* and after the last one */
    float *outputs;                            /* [rows][times][size], or none */
} Sequence;

/* c' = f * c + i * tanh(g), h' = o * tanh(c') */
static void lstm_step(const Linear *again, const Sequence *all, long time, const float *h, const float *c, float *sums) {
    const long size = again->inputs;
    feed(again, h, all->rows, (uint8_t *)(sums + all->rows * again->outputs), sums);
    for (long row = 0; row < all->rows; row++) {
        const float *projected = all->projected + row * all->row_stride + time * all->time_stride;
        const int going = !all->active || all->active[row * all->times + time];
        for (long i = 0; i < size; i += LANES) {
            __mmask16 there = first_of(size - i);
            __m512 gates[4], memory = load(c, row * size + i, there, 0), hidden = load(h, row * size + i, there, 0);
            EACH(n, 4) {
                __m512 by_input = load(projected, n * size + i, there, 0), by_past = load(sums, (row * 4 + n) * size + i, there, 0);
                gates[n] = _mm512_add_ps(by_input, by_past);
            }
            if (going) {
                __m512 write = _mm512_mul_ps(sigmoid(gates[0]), hyperbolic_tangent(gates[2]));
                memory = _mm512_fmadd_ps(sigmoid(gates[1]), memory, write);
                hidden = _mm512_mul_ps(sigmoid(gates[3]), hyperbolic_tangent(memory));
            }
            _mm512_mask_storeu_ps(all->new_memory + row * size + i, there, memory);
            _mm512_mask_storeu_ps(all->new_hidden + row * size + i, there, hidden);
            if (all->outputs) _mm512_mask_storeu_ps(all->outputs + (row * all->times + time) * size + i, there, hidden);
        }
    }
}

/* Whether there was memory for it. */
int lstm_scan(const Linear *again, const Sequence *all) {
    float *sums = room_of(all->rows * (again->outputs * sizeof(float) + again->inputs + 8));
    if (!sums) return 0;
    for (long time = 0; time < all->times; time++)
        lstm_step(again, all, time, time ? all->new_hidden : all->hidden, time ? all->new_memory : all->memory, sums);
    free(sums);
    return 1;
}
