"""What lecture 004 reports of these cells (Jozefowicz et al. 2015), for a reference beside our own figures."""

from typing import NamedTuple


class Row(NamedTuple):
    name: str  # in the lecture
    arith: float  # next-step accuracy
    xml: float  # next-step accuracy
    words: float  # nats a word, Penn Treebank, models of 20 million parameters ("20M-tst")
    words_5m: float  # the same of 5 million parameters ("5M-tst")


# by the name of our cell; the lecture's GRU resets before the product, as `gru_cho` does
LECTURE: dict[str, Row] = {
    "tanh": Row("Tanh", 0.29493, 0.32050, 4.582, 4.811),
    "lstm": Row("LSTM", 0.89228, 0.42470, 4.399, 4.699),
    "lstm_f": Row("LSTM-f", 0.29292, 0.23356, 4.606, 4.785),
    "lstm_i": Row("LSTM-i", 0.75109, 0.41371, 4.444, 4.755),
    "lstm_o": Row("LSTM-o", 0.86747, 0.42117, 4.411, 4.708),
    "lstm_b": Row("LSTM-b", 0.90163, 0.44434, 4.380, 4.698),
    "gru_cho": Row("GRU", 0.89565, 0.45963, 4.519, 4.684),
    "mut1": Row("MUT1", 0.92135, 0.47483, 4.550, 4.699),
    "mut2": Row("MUT2", 0.89735, 0.47324, 4.503, 4.707),
    "mut3": Row("MUT3", 0.90728, 0.46478, 4.494, 4.692),
}
