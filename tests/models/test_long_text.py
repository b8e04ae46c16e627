"""A language model of one long text: windows that go on equal one pass; every token counts once; what dropout drops."""

import gc
import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from citizens import TEXTS, spread
from torch import nn

from regard.data.batching import Batch, Column, reading
from regard.data.fields import Text
from regard.data.tokenizers import END, PAD, START, train_tokenizer
from regard.decoding import long_text
from regard.decoding.load import in_use
from regard.decoding.recent import Recent
from regard.errors import UserError
from regard.models import build, configure
from regard.models.directory import Bundle
from regard.models.interface import LossOptions
from regard.nn.kernels.recurrent.equation import numbers_of
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.layers import weight_dropped
from regard.nn.recurrent.scan import scan
from regard.recipe import Decoding, Tokenizer
from regard.training.objective import Objective
from regard.training.replay import Replay

TEXT = [4, 5, END, 6, 7, 8, END, END, 5, 4, 8, END]
FIXED = [name for name, cell in CELLS.items() if len(cell.State._fields) == cell.starts]


def model_of(window=3, **decoder):
    section = {"kind": "language_model", "window": window, "decoder": {**TEXTS["recurrent"], **decoder}}
    return spread(build(configure(section), 9)).eval()


def window_of(begin, end, going, before):
    lanes = torch.tensor([[1, before, going]])
    return Batch({"target": Column(torch.tensor([TEXT[begin:end]])), "lanes": Column(lanes, times=0)})


@pytest.mark.parametrize("cell", FIXED)
def test_windows_that_go_on_cost_what_one_pass_does(cell):
    """The text as a row that stands alone reads it: START where a row begins, END never."""
    model = model_of(cell=cell)
    read = torch.tensor([[START if word == END else word for word in [END, *TEXT[:-1]]]])
    whole = model(Batch({}), read).log_softmax(-1)[0]
    expected = -whole[torch.arange(len(TEXT)), torch.tensor(TEXT)].sum()
    model.open_lanes(1)
    cuts = [0, 5, 6, 10, 12]
    total = sum(model.loss(window_of(begin, end, begin > 0, TEXT[begin - 1])).total for begin, end in itertools.pairwise(cuts))
    torch.testing.assert_close(total, expected)
    again = model.loss(window_of(0, 12, False, END)).total  # a new epoch forgets
    torch.testing.assert_close(again, expected)


def test_a_window_of_any_length_hands_its_last_state_on():
    """What a GPU computes has other shapes; nothing is read after the end of a window."""
    model = model_of()
    model.open_lanes(1)
    tokens, lanes = np.array([TEXT[:5]]), np.array([[1, END, 0]])
    Replay(Objective(model), "float32", torch.device("cpu"))(
        Batch({"target": Column(tokens), "lanes": Column(lanes, times=0)}), 1.0
    )
    found = model.carried[1].clone()
    model.loss(window_of(0, 5, False, END))
    torch.testing.assert_close(found, model.carried[1])


def test_gradients_end_where_a_window_begins_and_lane_0_is_nobodys():
    model = model_of()
    model.open_lanes(2)
    target = torch.tensor([TEXT[:4], TEXT[4:8], [PAD] * 4])
    lanes = torch.tensor([[1, END, 0], [2, 6, 0], [0, PAD, 0]])
    batch = Batch({"target": Column(target), "lanes": Column(lanes, times=0)})
    model.loss(batch).total.backward()
    assert not model.carried.requires_grad
    first = model.carried[1:].clone()
    assert first.ne(0).all()
    alone = model_of()
    alone.load_state_dict(model.state_dict())
    alone.open_lanes(2)
    alone.loss(Batch({"target": Column(target[1:2]), "lanes": Column(lanes[1:2], times=0)}))
    torch.testing.assert_close(alone.carried[2], first[1])
    assert alone.carried[1].eq(0).all()
    assert "carried" not in model.state_dict()


def test_a_state_that_is_no_number_is_forgotten():
    model = model_of()
    model.open_lanes(1)
    model.carried.fill_(float("nan"))
    assert not model.loss(window_of(0, 4, True, END)).total.isfinite()
    assert model.loss(window_of(4, 8, True, 6)).total.isfinite()


@pytest.mark.parametrize("cell", [name for name in CELLS if name not in FIXED])
def test_a_state_that_grows_is_refused(cell):
    with pytest.raises(UserError, match=f"model.window carries a state.*cell={cell}"):
        model_of(cell=cell)


def test_windows_need_places_and_no_second_pass():
    with pytest.raises(UserError, match=r"model.window=16, and there are places for 15 \(model.decoder.longest\)"):
        build(configure({"kind": "language_model", "window": 16, "decoder": TEXTS["transformer-learned"]}), 9)
    with pytest.raises(UserError, match="scheduled_sampling reads a batch twice"):
        model_of().part_names(LossOptions(scheduled_sampling=0.1))


def scorer(body, window, budget=64):
    field = Text(train_tokenizer(Tokenizer(kind="word"), ["a b c d"]))
    model = spread(build(configure({"kind": "language_model", "window": window, "decoder": TEXTS[body]}), field.shape)).eval()
    return in_use(Bundle(model, {"target": field}, Decoding(batch_tokens=budget)))


ROWS = ["a b", "", "c d a", "b", "b b a c d d", "", "a"]


@pytest.mark.parametrize("budget", [1, 5, 64])
def test_every_token_is_scored_once_with_all_that_stands_before_it(budget):
    trained = scorer("recurrent", 4, budget)
    tokens = [word for row in trained.target.encode(ROWS) for word in (*row, END)]
    read = [START if word == END else word for word in [END, *tokens[:-1]]]
    each = trained.model(Batch({}), torch.tensor([read])).log_softmax(-1)[0, torch.arange(len(tokens)), torch.tensor(tokens)]
    found = trained.score(ROWS)
    assert [one.tokens for one in found] == [len(row.split()) + 1 for row in ROWS]
    ends = np.cumsum([one.tokens for one in found]).tolist()
    expected = [float(part.sum()) for part in torch.tensor_split(each.detach().double(), ends[:-1])]
    assert [one.log_prob for one in found] == pytest.approx(expected, abs=1e-4)
    assert trained.score(ROWS[0]).log_prob == pytest.approx(expected[0], abs=1e-4)


def test_lanes_of_a_long_text_have_read_what_stands_before_them(monkeypatch):
    """Lanes of 4 tokens that read 3 before: as if each began there with nothing."""
    monkeypatch.setattr(long_text, "LANE", 4)
    monkeypatch.setattr(long_text, "EARLIER", 3)
    trained = scorer("recurrent", 4)
    tokens = [word for row in trained.target.encode(ROWS) for word in (*row, END)]
    for place, found in enumerate(long_text.log_probs(trained.model, np.array(tokens), 7)):
        begin = max(place // 4 * 4 - 3, 0)
        read = [START if word == END else word for word in [tokens[begin - 1], *tokens[begin:place]]]
        expected = trained.model(Batch({}), torch.tensor([read])).log_softmax(-1)[0, -1, tokens[place]]
        assert found == pytest.approx(expected.item(), abs=1e-5)


def test_a_transformer_sees_half_a_window_at_least():
    trained = scorer("transformer-learned", 5)
    tokens = [word for row in trained.target.encode(ROWS) for word in (*row, END)]
    for place, found in enumerate(long_text.log_probs(trained.model, np.array(tokens), 11)):
        begin = max(place // 3 * 3 - 2, 0)
        read = [START if word == END else word for word in [tokens[begin - 1], *tokens[begin:place]]]
        expected = trained.model(Batch({}), torch.tensor([read])).log_softmax(-1)[0, -1, tokens[place]]
        assert found == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("path", ["loop", "library", "diagonal"])
def test_dropped_weights_are_zeros_of_torchs_lstm(path):
    cell, inputs = CELLS["lstm"](3, 8).train(), torch.randn(2, 5, 3)
    dropped = weight_dropped(cell, 0.5)
    share = dropped.from_hidden.weight / cell.from_hidden.weight
    assert set(share.detach().round(decimals=4).unique().tolist()) == {0.0, 2.0}
    oracle = nn.LSTM(3, 8, batch_first=True)
    matrices = (cell.from_input.weight, dropped.from_hidden.weight, cell.from_input.bias, cell.from_hidden.bias)
    for one, weight in zip(oracle.parameters(), matrices, strict=True):
        one.data.copy_(weight)
    outputs, last = scan(dropped, inputs, path=path)
    expected, (_, memory) = oracle(inputs)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(last.memory, memory[0])
    outputs.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(cell.from_hidden.weight.grad, oracle.weight_hh_l0.grad * share.detach())
    assert weight_dropped(cell.eval(), 0.5) is cell


def test_what_is_known_of_an_equation_keeps_no_dropped_weights():
    cell = CELLS["lstm"](3, 4).train()
    first, second = (weight_dropped(cell, 0.5) for _ in range(2))
    assert numbers_of(first) == numbers_of(second) == numbers_of(cell)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "mut1"])
def test_a_step_with_dropped_weights_leaves_nothing_that_leads_to_the_weights(cell, precision):
    """What is left would keep their nodes of the graph of gradients, which belong to the stream of the step that made them: a
    CUDA graph that is recorded on another stream afterwards is refused for waiting for that one."""
    model = model_of(cell=cell, weight_drop=0.5, word_dropout=0.2, locked=True).train()
    model.open_lanes(2)
    replay = Replay(Objective(model, penalties={"activation": 1.0}), precision, torch.device("cpu"))
    lanes = Column(np.array([[1, END, 0], [2, END, 0]]), times=0)
    batch = Batch({"target": Column(np.array([TEXT[:3], TEXT[3:6]])), "lanes": lanes})
    gc.collect()
    gc.disable()
    try:
        replay(batch, 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some objects warn when they are asked what they are
            left = [one for one in gc.get_objects() if isinstance(one, torch.Tensor) and one.grad_fn is not None]
    finally:
        gc.enable()
    assert [type(one.grad_fn).__name__ for one in left] == []


@pytest.mark.parametrize("cell", [name for name in CELLS if name not in FIXED])
def test_a_cell_without_a_recurrent_matrix_drops_none(cell):
    with pytest.raises(UserError, match="weight_drop is for cells with"):
        weight_dropped(CELLS[cell](3, 4).train(), 0.5)


def test_a_word_is_dropped_wherever_it_stands_and_locked_masks_stay():
    model = model_of(word_dropout=0.5, locked=True, input_dropout=0.5, output_dropout=0.25, dropout=0.0)
    tokens = torch.arange(4, 9).repeat(2, 6)
    plain = model.decoder.words(tokens)
    model.train()
    found = (model.decoder.words(tokens) / plain).detach().unflatten(1, (6, 5))  # row, repetition, word, element
    assert set(found.round(decimals=3).unique().tolist()) == {0.0, 4.0}
    torch.testing.assert_close(found, found[:, :1].expand_as(found))
    words, elements = found.amax(dim=(0, 1, 3)) > 0, found.amax(dim=(1, 2)) > 0
    torch.testing.assert_close(found[:, 0] > 0, words[None, :, None] & elements[:, None])
    ones = torch.ones(2, 7, model.decoder.output_size)
    kept = model.decoder.finished(ones)
    torch.testing.assert_close(kept, kept[:, :1].expand_as(kept))
    assert kept.unique().tolist() == pytest.approx([0.0, 4 / 3])


def test_a_recurrent_model_alone_is_torchs_lstm_over_source_start_mark_and_target():
    model = spread(
        build(configure({"kind": "recurrent_alone", "embedding_size": 5, "hidden_size": 6, "cell": "lstm"}), 9, 9)
    ).eval()
    cell, decoder = model.decoder.cells[0], model.decoder
    oracle = nn.LSTM(5, 6, batch_first=True)
    for one, weight in zip(oracle.parameters(), cell.weights, strict=True):
        one.data.copy_(weight)
    source, words = torch.tensor([[4, 5, END], [6, END, PAD]]), torch.tensor([[START, 7, 8], [START, 5, 4]])
    found = model(reading(source, torch.tensor([3, 2])), words)
    for row, length in enumerate((3, 2)):
        joined = torch.cat([source[row, :length], words[row]])
        top = oracle(decoder.embed(joined)[None])[0][0, length:]
        torch.testing.assert_close(found[row], decoder.output(torch.tanh(decoder.join(top))))
    target = torch.tensor([[7, 8, END], [5, 4, END]])
    batch = Batch({**reading(source, torch.tensor([3, 2])).columns, "target": Column(target)})
    expected = nn.functional.cross_entropy(found.flatten(0, 1), target.flatten(), reduction="sum")
    torch.testing.assert_close(model.loss(batch).total, expected)  # of the target alone
    with pytest.raises(UserError, match=r"one table of words.*data\.tokenizer\.shared=true"):
        build(configure({"kind": "recurrent_alone"}), 9, 8)


@pytest.mark.parametrize(("budget", "words"), [(3, 4), (64, 4), (64, 100)])
def test_recent_words_are_looked_back_at(budget, words):
    """Against the equation of Grave et al. 2017, token by token."""
    trained, again = scorer("recurrent", 4, budget), Recent(words, sharpness=2.0, share=0.3)
    tokens = [word for row in trained.target.encode(ROWS * 3) for word in (*row, END)]
    read = [START if word == END else word for word in [END, *tokens[:-1]]]
    steps, _ = trained.model.read_on(torch.tensor([read]), torch.zeros(1, trained.model.decoder.state_size))
    states = steps.outputs[0].detach().double()
    chances = trained.model.logits(steps)[0].detach().double().softmax(-1)
    trained.recent = again
    found = [number for one in trained.score(ROWS * 3, token_scores=True) for number in one.token_scores]
    for place, token in enumerate(tokens):
        chance = chances[place, token].item()
        before = range(max(place - words, 0), place)
        if before:
            weights = {i: math.exp(2.0 * float(states[place] @ states[i])) for i in before}
            copied = sum(weight for i, weight in weights.items() if tokens[i] == token) / sum(weights.values())
            chance = 0.7 * chance + 0.3 * copied
        assert found[place] == pytest.approx(math.log(chance), abs=1e-4)


@pytest.mark.parametrize("body", TEXTS)
def test_looking_back_changes_nothing_else_and_does_not_depend_on_lanes(body, monkeypatch):
    """A Transformer sees its window as before, and the first words of a lane have as much to look back at."""
    rows = ROWS * 3
    trained = scorer(body, 6)
    alone = [one.log_prob for one in trained.score(rows)]
    monkeypatch.setattr(long_text, "PIECE", 2)
    trained.recent = Recent(200, share=0.0)
    assert [one.log_prob for one in trained.score(rows)] == pytest.approx(alone, abs=1e-4)
    trained.recent = Recent(200, share=0.5)
    looked = [one.log_prob for one in trained.score(rows)]
    assert looked != pytest.approx(alone, abs=1e-2)
    monkeypatch.setattr(long_text, "LANE", 7)
    monkeypatch.setattr(long_text, "EARLIER", 1)
    assert [one.log_prob for one in trained.score(rows)] == pytest.approx(looked, abs=1e-4)


def test_where_each_row_is_a_text_nothing_is_looked_back_at():
    trained = scorer("recurrent", None)
    trained.recent = Recent()
    with pytest.raises(UserError, match=r"`recent` looks back in one long text.*model\.window"):
        trained.score(ROWS)
