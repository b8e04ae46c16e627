"""Every cell once more, a step at a time and a row at a time, in NumPy and float64: written from the lectures and the papers.

`mask` is recurrent dropout: it multiplies what the past gives where it enters a product. Blocks stand in the order that a
cell's docstring gives: i, f, g, o for the LSTMs, r, z, h for the others.
"""

import numpy as np


def sigmoid(number):
    return 1 / (1 + np.exp(-number))


def softmax(scores):
    powers = np.exp(scores - np.max(scores))
    return powers / powers.sum()


def relu(number):
    return np.maximum(number, 0.0)


class Weights:
    """A cell's parameters by name; `w("from_input", 1)` is the second block [W, b] of that map."""

    def __init__(self, cell):
        self.size = cell.hidden_size
        self.all = {name: parameter.detach().double().numpy() for name, parameter in cell.named_parameters()}

    def block(self, name, number):
        return self.all[name][number * self.size : (number + 1) * self.size]

    def times(self, name, number, vector):
        """W x, and + b where the map has a bias."""
        product = self.block(f"{name}.weight", number) @ vector
        return product + self.block(f"{name}.bias", number) if f"{name}.bias" in self.all else product

    def both(self, number, x, h):
        return self.times("from_input", number, x) + self.times("from_hidden", number, h)


def simple(squash):
    """h = φ(W x + U h + b)  (Elman 1990)."""

    def step(w, x, state, mask):
        return (squash(w.both(0, x, mask * state[0])),)

    return step


def lstm(fixed=None):
    """c = i c~ + f c, h = o tanh(c)  (lecture 004), with one gate fixed at 1 (Jozefowicz et al. 2015)."""

    def step(w, x, state, mask):
        h, c = state
        there = [name for name in "ifgo" if name != fixed]
        p = {name: w.both(number, x, mask * h) for number, name in enumerate(there)}
        i, f, o = (1.0 if name == fixed else sigmoid(p[name]) for name in "ifo")
        c = i * np.tanh(p["g"]) + f * c
        return o * np.tanh(c), c

    return step


def peephole(w, x, state, mask):
    """Gers & Schmidhuber 2000: the input and the forget gate see c_{t-1}, the output gate sees c_t."""
    h, c = state
    p_i, p_f, p_g, p_o = (w.both(number, x, mask * h) for number in range(4))
    w_i, w_f, w_o = w.all["peep"]
    i, f = sigmoid(p_i + w_i * c), sigmoid(p_f + w_f * c)
    c = f * c + i * np.tanh(p_g)
    o = sigmoid(p_o + w_o * c)
    return o * np.tanh(c), c


def gru(w, x, state, mask):
    """As torch.nn.GRU documents it."""
    (h,) = state
    past = mask * h
    r, z = sigmoid(w.both(0, x, past)), sigmoid(w.both(1, x, past))
    n = np.tanh(w.times("from_input", 2, x) + r * w.times("from_hidden", 2, past))
    return ((1 - z) * n + z * h,)


def gru_cho(w, x, state, mask):
    """h_t = (1 - z) h_{t-1} + z tanh(W_h x + U_h (r h_{t-1}) + b_h)  (lecture 004)."""
    (h,) = state
    r, z = sigmoid(w.both(0, x, mask * h)), sigmoid(w.both(1, x, mask * h))
    new = np.tanh(w.times("from_input", 2, x) + w.times("from_reset", 0, mask * (r * h)))
    return ((1 - z) * h + z * new,)


def mgu(w, x, state, mask):
    """f = σ(W_f x + U_f h + b_f), h~ = tanh(W x + U (f h) + b), h = (1 - f) h + f h~  (Zhou et al. 2016)."""
    (h,) = state
    f = sigmoid(w.both(0, x, mask * h))
    new = np.tanh(w.times("from_input", 1, x) + w.times("from_reset", 0, mask * (f * h)))
    return ((1 - f) * h + f * new,)


def as_it_is(w, x):
    """x itself where it has the state's size."""
    return x if len(x) == w.size else w.all["resize.weight"] @ x


def mut1(w, x, state, mask):
    """Lecture 004: no U in z, and x enters the candidate as tanh(x)."""
    (h,) = state
    z = sigmoid(w.times("from_input", 1, x))
    r = sigmoid(w.both(0, x, mask * h))
    new = np.tanh(w.times("from_reset", 0, mask * (r * h)) + np.tanh(as_it_is(w, x)) + w.all["bias"])
    return (new * z + h * (1 - z),)


def mut2(w, x, state, mask):
    """Lecture 004: x enters r as it is."""
    (h,) = state
    z = sigmoid(w.times("from_input", 0, x) + w.times("from_hidden", 1, mask * h))
    r = sigmoid(as_it_is(w, x) + w.times("from_hidden", 0, mask * h) + w.all["bias"])
    new = np.tanh(w.times("from_reset", 0, mask * (r * h)) + w.times("from_input", 1, x))
    return (new * z + h * (1 - z),)


def mut3(w, x, state, mask):
    """Lecture 004: z sees tanh(h)."""
    (h,) = state
    z = sigmoid(w.times("from_input", 1, x) + w.times("from_squashed", 0, mask * np.tanh(h)))
    r = sigmoid(w.both(0, x, mask * h))
    new = np.tanh(w.times("from_reset", 0, mask * (r * h)) + w.times("from_input", 2, x))
    return (new * z + h * (1 - z),)


def weights_over(w, asked, context, tape):
    """α = softmax_i v · tanh(W_x x_t + W_c c_{t-1} + W_h h_i)  (lecture 003)."""
    query = asked + w.all["query.weight"] @ context
    return softmax(np.array([w.all["score_vector"] @ np.tanh(query + w.all["key.weight"] @ h) for h in tape]))


def tanh_attention(w, x, state, mask):
    """h_t = tanh(A [x_t; c_{t-1}] + b), c_t = Σ α_i h_i over all of h_1 .. h_t. The state: h, c, α, the h_i."""
    _, context, _, tape = state
    context = mask * context
    hidden = np.tanh(w.times("from_input", 0, x) + w.times("from_context", 0, context))
    tape = [*tape, (hidden,)]
    alpha = weights_over(w, w.times("from_input", 1, x), context, [h for (h,) in tape])
    return hidden, sum(a * h for a, (h,) in zip(alpha, tape, strict=True)), alpha, tape


def lstm_tape(w, x, state, mask):
    """s_t and c'_t summed with the same α over the earlier positions; all gates from x_t and s_t; f on c'_t (lecture 003)."""
    _, last, _, tape = state
    context, adapted, alpha = np.zeros(w.size), np.zeros(w.size), np.zeros(0)
    if tape:
        alpha = weights_over(w, w.times("from_input", 4, x), mask * last, [h for h, _ in tape])
        context, adapted = (sum(a * pair[part] for a, pair in zip(alpha, tape, strict=True)) for part in (0, 1))
    i, f, g, o = (w.times("from_input", number, x) + w.times("from_context", number, mask * context) for number in range(4))
    memory = sigmoid(f) * adapted + sigmoid(i) * np.tanh(g)
    hidden = sigmoid(o) * np.tanh(memory)
    return hidden, context, alpha, [*tape, (hidden, memory)]


EQUATIONS = {
    "tanh": simple(np.tanh),
    "relu": simple(relu),
    "lstm": lstm(),
    "lstm_f": lstm("f"),
    "lstm_i": lstm("i"),
    "lstm_o": lstm("o"),
    "lstm_b": lstm(),
    "lstm_peephole": peephole,
    "gru": gru,
    "gru_cho": gru_cho,
    "mut1": mut1,
    "mut2": mut2,
    "mut3": mut3,
    "mgu": mgu,
    "tanh_attention": tanh_attention,
    "lstm_tape": lstm_tape,
}
TAPES = ("tanh_attention", "lstm_tape")


def first_state(name, cell, vectors):
    """None: h_0 = 0 and nothing on the tape. A given state is the first position of a tape."""
    zeros = np.zeros(cell.hidden_size)
    if name not in TAPES:
        return tuple(vectors) if vectors is not None else (zeros,) * cell.starts
    if vectors is None:
        return zeros, zeros, np.zeros(0), []
    return vectors[0], vectors[0], np.ones(1), [tuple(vectors)]


def run(name, cell, inputs, starts=None, lengths=None, mask=None):
    """A list of states a row: before the first step, and after each; a row that has ended keeps its state."""
    w, rows = Weights(cell), []
    for row, sequence in enumerate(inputs.detach().double().numpy()):
        vectors = None if starts is None else [start[row].detach().double().numpy() for start in starts]
        keep = np.ones(cell.hidden_size) if mask is None else mask[row].double().numpy()
        states = [first_state(name, cell, vectors)]
        for time, x in enumerate(sequence):
            over = lengths is not None and time >= int(lengths[row])
            states.append(states[-1] if over else EQUATIONS[name](w, x, states[-1], keep))
        rows.append(states)
    return rows
