"""Where a recurrent decoder starts: tanh(W summary), the encoder's last states, or 0."""

import pytest
import torch
from kinds import KINDS, small
from test_laws import LENGTHS, SOURCE
from tiny_deep import section

from regard.data.batching import reading
from regard.models import configure
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.tape import TapeCell
from regard.recipe import RecipeError

HANDED = {"start_from": "encoder"}


def start(model):
    return model.decoder.start(model.encode(reading(SOURCE, LENGTHS))).cells


def backwards(words):
    """Each row from its end, its padding left where it is."""
    turned = words.clone()
    for row, length in enumerate(LENGTHS.tolist()):
        turned[row, :length] = words[row, :length].flip(0)
    return turned


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("both_ways", [False, True])
def test_each_layer_starts_where_the_encoders_layer_ended(both_ways, reverse):
    """h and c of torch.nn's LSTM over packed rows, layer by layer, the directions side by side."""
    size = 2 if both_ways else 4
    encoder = {"bidirectional": both_ways, "reverse": reverse, "hidden_size": size}
    model = small(section(encoder, HANDED, layers=3))
    oracle = torch.nn.LSTM(4, size, 3, batch_first=True, bidirectional=both_ways)
    ours = [weight for layer in model.encoder.stack.layers for cell in layer.cells for weight in cell.weights]
    for parameter, weight in zip(oracle.parameters(), ours, strict=True):
        parameter.data = weight.data
    words = model.encoder.embed(backwards(SOURCE) if reverse else SOURCE)
    _, ends = oracle(torch.nn.utils.rnn.pack_padded_sequence(words, LENGTHS, batch_first=True))
    hidden, memory = (end.view(3, -1, *end.shape[1:]).transpose(1, 2).flatten(2) for end in ends)
    assert model.decoder.bridge is None
    for layer, state in enumerate(start(model)):
        torch.testing.assert_close(state.hidden, hidden[layer])
        torch.testing.assert_close(state.memory, memory[layer])


def test_columns_lie_side_by_side_depth_by_depth():
    model = small(KINDS["deep-handed-over-columns"])
    last = model.encode(reading(SOURCE, LENGTHS)).last
    for depth, state in enumerate(start(model)):
        torch.testing.assert_close(state.hidden, torch.cat([last[depth][0].hidden, last[3 + depth][0].hidden], dim=-1))


def test_the_source_learns_from_the_target_by_way_of_the_states_alone():
    """Without attention, nothing else leads from the encoder to the decoder."""
    model = small(KINDS["deep-handed-over"])
    model(reading(SOURCE, LENGTHS), SOURCE).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.ne(0).any() for parameter in model.encoder.parameters())


@pytest.mark.parametrize(
    ("encoder", "decoder", "said"),
    [
        ({}, {}, "the encoder ends with 2 x lstm of 8, the decoder begins with 2 x lstm of 4"),
        ({"bidirectional": "first"}, {}, "ends with 1 x lstm of 8 + 1 x lstm of 4, the decoder begins with 2 x lstm of 4"),
        ({"bidirectional": False}, {"cell": "gru"}, "ends with 2 x lstm of 4, the decoder begins with 2 x gru of 4"),
        ({"bidirectional": False}, {"layers": 3}, "ends with 2 x lstm of 4, the decoder begins with 3 x lstm of 4"),
    ],
)
def test_states_that_do_not_fit_are_refused_before_anything_is_built(encoder, decoder, said):
    with pytest.raises(RecipeError, match=r"^model: `decoder\.start_from: encoder`") as refusal:
        configure(section(encoder, {**HANDED, **decoder}))
    assert said in str(refusal.value)
    assert str(refusal.value).endswith("or set model.decoder.start_from=projected")


@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_hands_its_state_over_but_those_with_a_tape(cell):
    values = section({"bidirectional": False}, HANDED, cell)
    if issubclass(CELLS[cell], TapeCell):
        with pytest.raises(RecipeError, match="no states that another network could begin with"):
            configure(values)
        return
    model = small(values)
    for state, (last,) in zip(start(model), model.encode(reading(SOURCE, LENGTHS)).last, strict=True):
        assert all(map(torch.equal, state, last))


def test_an_encoder_without_recurrence_hands_nothing_over():
    with pytest.raises(RecipeError, match="no states that another network could begin with"):
        configure({"encoder": {"kind": "transformer", "hidden_size": 8}, "decoder": HANDED})


@pytest.mark.parametrize(("bridge", "start_from"), [(True, "projected"), (False, "zero")])
def test_the_older_name_is_read(bridge, start_from):
    values = section({}, {})
    older = {**values, "decoder": {**values["decoder"], "bridge": bridge}}
    newer = {**values, "decoder": {**values["decoder"], "start_from": start_from}}
    assert configure(older) == configure(newer)
    with pytest.raises(RecipeError, match=r"unknown key 'model\.decoder\.bridge'"):
        configure({**newer, "decoder": {**newer["decoder"], "bridge": bridge}})
