"""GNMT and Deep-Att, equation by equation in float64, with an LSTM written out here."""

import pytest
import torch
from kinds import small
from test_laws import LENGTHS, SOURCE, TARGET, stepped
from tiny_deep import KINDS, section

from regard.data.batching import reading
from regard.errors import UserError
from regard.models import configure
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.layers import RecurrentLayer
from regard.recipe import built_in, read_values

SIZE = 4
ROW = torch.tensor([[4, 5, 6, 7, 8]])
WORDS = [2, 5, 6, 7]


def lstm(cell, share, state):
    """i, f, g, o = f_t + U h + b;  c = σ(f) c + σ(i) tanh(g);  h = σ(o) tanh(c)."""
    hidden, memory = state
    recurrent = cell.from_hidden
    gates = share + recurrent.weight @ hidden + recurrent.bias
    take, keep, new, show = gates.split(SIZE)
    memory = keep.sigmoid() * memory + take.sigmoid() * new.tanh()
    return show.sigmoid() * memory.tanh(), memory


def feed(cell, inputs):
    return cell.from_input.weight @ inputs + cell.from_input.bias


def run(cell, inputs, from_the_right=False):
    """h_t and f_t = W x_t + b of one direction, each beside its word."""
    state, results = (torch.zeros(SIZE).double(),) * 2, []
    for word in inputs[::-1] if from_the_right else inputs:
        share = feed(cell, word)
        state = lstm(cell, share, state)
        results.append((state[0], share))
    hidden, shares = zip(*(results[::-1] if from_the_right else results), strict=True)
    return list(hidden), list(shares)


def look(attention, query, memory):
    """softmax_j v · tanh(W q + U h_j), and Σ_j α_j h_j."""
    score = attention.score
    energies = [score.score_vector[0] @ torch.tanh(score.project_query.weight @ query + score.project_key.weight @ key)
                for key in memory]  # fmt: skip
    weights = torch.stack(energies).softmax(0)
    return sum(weight * state for weight, state in zip(weights, memory, strict=True)), weights


def result(decoder, top, context):
    joined = torch.tanh(decoder.join.weight @ torch.cat([top, context]) + decoder.join.bias)
    return decoder.output.weight @ joined + decoder.output.bias


def model_of(name):
    torch.manual_seed(1)
    return small(KINDS[name]).double()


@torch.no_grad()
def test_the_first_layer_of_gnmts_encoder_reads_both_ways_and_the_third_is_the_first_to_add():
    encoder = model_of("gnmt").encoder
    first, second, third = (layer.cells for layer in encoder.stack.layers)
    words = list(encoder.embed(ROW[0]))
    left, right = run(first[0], words)[0], run(first[1], words, from_the_right=True)[0]
    middle = run(second[0], [torch.cat(both) for both in zip(left, right, strict=True)])[0]
    top = [hidden + below for hidden, below in zip(run(third[0], middle)[0], middle, strict=True)]
    torch.testing.assert_close(encoder(ROW, torch.tensor([5])).states[0], torch.stack(top))


@torch.no_grad()
def test_gnmts_decoder_asks_with_its_lowest_layer_and_tells_all_layers():
    """a_i from y_{i-1}, the lowest layer's last output; each layer reads it; the third adds what it read (a_i aside)."""
    model = model_of("gnmt")
    decoder, memory = model.decoder, model.encode(reading(ROW, torch.tensor([5])))
    states, expected = [(torch.zeros(SIZE).double(),) * 2] * 3, []
    for word in WORDS:
        context, _ = look(decoder.attention, states[0][0], memory.states[0])
        low, middle, high = decoder.cells
        first = lstm(low, feed(low, decoder.embed.weight[word]) + decoder.from_fed.weight @ context, states[0])
        second = lstm(middle, feed(middle, torch.cat([first[0], context])), states[1])
        third = lstm(high, feed(high, torch.cat([second[0], context])), states[2])
        states = [first, second, third]
        expected.append(result(decoder, third[0] + second[0], context))
    torch.testing.assert_close(model(reading(ROW, torch.tensor([5])), torch.tensor([WORDS]))[0], torch.stack(expected))


@torch.no_grad()
def test_the_columns_of_deep_att_read_in_turns_and_carry_half_of_f():
    """f_k = W_k [h_{k-1}; half of f_{k-1}]; the memory is W_p [h; f] of both columns, all of f."""
    encoder = model_of("deepatt").encoder
    words, tops = list(encoder.embed(ROW[0])), []
    for number, column in enumerate(encoder.stack.columns):
        inputs = words
        for depth, layer in enumerate(column.layers):
            hidden, shares = run(layer.cells[0], inputs, from_the_right=(depth + number) % 2 == 1)
            part = 4 * SIZE if depth == 2 else 2 * SIZE
            inputs = [torch.cat([one, share[:part]]) for one, share in zip(hidden, shares, strict=True)]
        tops.append(inputs)
    expected = [encoder.project.weight @ torch.cat(both) for both in zip(*tops, strict=True)]
    torch.testing.assert_close(encoder(ROW, torch.tensor([5])).states[0], torch.stack(expected))


@torch.no_grad()
def test_deep_atts_decoder_carries_the_context_upward_in_f():
    """f_1 = W_1 [y; c], asked for by the first layer's last state; above, f_k = W_k [h_{k-1}; half of f_{k-1}]."""
    model = model_of("deepatt")
    decoder, memory = model.decoder, model.encode(reading(ROW, torch.tensor([5])))
    states, expected = [(torch.zeros(SIZE).double(),) * 2] * 3, []
    for word in WORDS:
        context, _ = look(decoder.attention, states[0][0], memory.states[0])
        share = feed(decoder.cells[0], decoder.embed.weight[word]) + decoder.from_fed.weight @ context
        for depth, cell in enumerate(decoder.cells):
            states[depth] = lstm(cell, share, states[depth])
            if depth < 2:
                share = feed(decoder.cells[depth + 1], torch.cat([states[depth][0], share[: 2 * SIZE]]))
        expected.append(result(decoder, torch.cat([states[2][0], share]), context))
    torch.testing.assert_close(model(reading(ROW, torch.tensor([5])), torch.tensor([WORDS]))[0], torch.stack(expected))


@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_steps_as_it_is_forced(cell):
    forward = {"connections": "fast_forward_half", "connect_top": True}
    model = small(section({"bidirectional": "first"}, {**forward, "context": "to_all_layers", "start_from": "zero"}, cell))
    torch.testing.assert_close(model(reading(SOURCE, LENGTHS), TARGET), stepped(model, SOURCE, LENGTHS, TARGET)[0])


@pytest.mark.parametrize("name", ["gnmt", "deepatt", "gnmt-top-asks", "deepatt-feeding"])
def test_only_the_lowest_layer_goes_step_by_step_where_it_asks(name, monkeypatch):
    """The layers above are scanned whole, so their kernels stay in use; where the top asks, none is."""
    from regard.models.decoders import recurrent

    scanned, real = [], recurrent.scan
    monkeypatch.setattr(recurrent, "scan", lambda cell, *rest, **more: scanned.append(cell) or real(cell, *rest, **more))
    model = small(KINDS[name])
    model(reading(SOURCE, LENGTHS), TARGET)
    above = name in ("gnmt", "deepatt")
    assert scanned == (list(model.decoder.cells)[1:] if above else [])


def test_without_a_bridge_the_decoder_starts_from_nothing():
    model = small(KINDS["gnmt"])
    assert model.decoder.bridge is None
    for state in model.decoder.start(model.encode(reading(SOURCE, LENGTHS))).cells:
        assert all(part.eq(0).all() for part in state)


def test_a_layer_from_the_right_is_a_layer_over_the_turned_rows():
    layer, inputs = RecurrentLayer(CELLS["lstm"], 5, 4, directions=-1), torch.randn(2, 6, 5)
    plain = RecurrentLayer(CELLS["lstm"], 5, 4)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(inputs)[0], plain(inputs.flip(1))[0].flip(1))


@pytest.mark.parametrize("option", [{"bidirectional": "second"}, {"connect_from": 0}, {"connections": "fast_backward"}])
def test_what_the_tables_do_not_know_is_refused(option):
    with pytest.raises(UserError, match=next(iter(option))):
        configure({"encoder": option})


def test_the_recipes_have_the_sizes_of_the_papers():
    """Layers, units and the depth of 16 that both papers name; c_t of Deep-Att has 1280 numbers."""
    gnmt, deep = (read_values(name)["model"] for name in ("gnmt2016", "deepatt2016"))
    for side in ("encoder", "decoder"):
        assert (gnmt[side]["layers"], gnmt[side]["hidden_size"]) == (8, 1024)
        assert (deep[side]["embedding_size"], deep[side]["hidden_size"]) == (256, 512)
    assert (deep["encoder"]["layers"], deep["decoder"]["layers"], deep["encoder"]["memory_size"]) == (9, 7, 1280)
    assert {"gnmt2016-small", "deepatt2016-small"} <= built_in().keys()
