"""Laws of models that the first ones leave open: reversal, dropout, sharing, who asks."""

import copy

import pytest
import torch
from tiny import FEW, SETTINGS, tiny

from regard.data.batching import reading
from regard.errors import UserError
from regard.models import build, configure
from regard.models.interface import Steps

SOURCE = torch.tensor([[4, 5, 6, 7], [8, 4, 0, 0], [5, 0, 0, 0]])
LENGTHS = torch.tensor([4, 2, 1])
TARGET = torch.tensor([[2, 5, 6, 7, 8], [2, 4, 4, 8, 5], [2, 6, 8, 5, 7]])


def turned(source, lengths):
    rows = [row[:length].flip(0) for row, length in zip(source, lengths, strict=True)]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_reading_from_the_end_is_reading_the_turned_source(bidirectional):
    """State j belongs to word j: only the way to it changes."""
    reverse = tiny(FEW["lstm-none"], bidirectional=bidirectional, reverse=True).encoder
    plain = copy.deepcopy(reverse)
    plain.reverse = False
    ours, theirs = reverse(SOURCE, LENGTHS), plain(turned(SOURCE, LENGTHS), LENGTHS)
    torch.testing.assert_close(ours.summary, theirs.summary)
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(ours.states[row, :length], theirs.states[row, :length].flip(0))
    assert not torch.allclose(ours.summary, plain(SOURCE, LENGTHS).summary)


NEARLY_ALL = 1 - 1e-7


@pytest.mark.parametrize("name", FEW)
def test_dropout_stands_before_every_layer(name):
    """Where (nearly) everything is dropped, no word of either side and no lower layer reaches anything."""
    model = tiny({**FEW[name], "dropout": NEARLY_ALL}, dropout=NEARLY_ALL).train()
    memory = model.encode(reading(SOURCE, LENGTHS))
    other = model.encode(reading(SOURCE % 4 + 4, LENGTHS))
    assert memory.states.eq(0).all()
    torch.testing.assert_close(memory.summary, other.summary)
    changed = TARGET % 4 + 4
    torch.testing.assert_close(model.decoder(TARGET, memory).outputs, model.decoder(changed, memory).outputs)
    outputs = model.decoder(TARGET, memory).outputs
    bias = model.decoder.output.bias.expand(*TARGET.shape, -1)
    torch.testing.assert_close(model.decoder.logits(Steps(outputs)), bias)
    expected = torch.nn.functional.cross_entropy(bias.flatten(0, 1), TARGET.flatten(), reduction="sum", ignore_index=0)
    torch.testing.assert_close(model.decoder.loss(Steps(outputs), TARGET), expected)


@pytest.mark.parametrize("name", FEW)
def test_between_layers_all_is_dropped_too(name):
    """The upper layer then sees nothing of the lower one: its weights from below get no gradient."""
    model = tiny({**FEW[name], "dropout": NEARLY_ALL}, dropout=NEARLY_ALL).train()
    model.decoder(TARGET, model.encode(reading(SOURCE, LENGTHS))).outputs.square().sum().backward()
    upper = [model.decoder.cells[1], *model.encoder.stack.layers[1].cells]
    for cell in upper:
        gradient = cell.from_input.weight.grad
        assert gradient is None or gradient.eq(0).all()


@pytest.mark.parametrize("name", FEW)
def test_nothing_is_dropped_when_a_model_is_used(name):
    model = tiny({**FEW[name], "dropout": 0.5}, dropout=0.5)
    torch.testing.assert_close(model(reading(SOURCE, LENGTHS), TARGET), model(reading(SOURCE, LENGTHS), TARGET), rtol=0, atol=0)


def shared_tables(tied=False, size=5, **vocabularies):
    config = configure(
        {
            "share_embeddings": True,
            "encoder": {"embedding_size": 5, "hidden_size": 4},
            "decoder": {"embedding_size": size, "hidden_size": 8, "tied": tied},
        }
    )
    return build(config, vocabularies.get("source", 9), vocabularies.get("target", 9))


@pytest.mark.parametrize("tied", [False, True])
def test_shared_embeddings_are_one_parameter_and_stay_one(tied):
    model = shared_tables(tied)
    for one in (model, model.double(), copy.deepcopy(model)):
        assert one.encoder.embed.weight is one.decoder.embed.weight
        assert (one.decoder.output.weight is one.decoder.embed.weight) == tied
    model = model.float()
    model.load_state_dict({name: torch.randn_like(tensor) for name, tensor in model.state_dict().items()})
    assert model.encoder.embed.weight is model.decoder.embed.weight
    before = sum(parameter.numel() for parameter in model.parameters())
    apart = build(
        configure({"encoder": {"embedding_size": 5, "hidden_size": 4}, "decoder": {"embedding_size": 5, "hidden_size": 8}}),
        9,
        9,
    )
    assert before == sum(parameter.numel() for parameter in apart.parameters()) - 45 - (9 * 8 if tied else 0) - (
        8 * 16 + 8 - (5 * 16 + 5) if tied else 0
    )


def test_tables_of_two_shapes_cannot_be_one():
    for wrong in ({"size": 6}, {"source": 8}):
        with pytest.raises(UserError, match="share_embeddings"):
            shared_tables(**wrong)


@pytest.mark.parametrize("name", [name for name in SETTINGS if "input_feeding" in name and "gru" in name])
def test_input_feeding_asks_with_the_new_top_state(name):
    """c_i = Σ α_ij h_j with α from the top layer's s_i; the output is tanh(W [s_i; c_i] + b)  (Luong et al. 2015)."""
    model = tiny(SETTINGS[name])
    decoder, memory = model.decoder, model.encode(reading(SOURCE, LENGTHS))
    one = decoder.step(torch.tensor([5, 6, 7]), memory, decoder.start(memory))
    top = one.state.cells[-1].hidden
    context, weights, _ = decoder.attention(top[:, None], memory.keys.attention, return_weights=True)
    torch.testing.assert_close(one.weights, weights[:, :, 0])
    torch.testing.assert_close(one.state.fed, torch.tanh(decoder.join(torch.cat([top, context[:, 0]], dim=-1))))


@pytest.mark.parametrize("name", [name for name in SETTINGS if "into_cell" in name and "lstm" in name])
def test_into_the_cell_asks_with_the_last_top_state(name):
    model = tiny(SETTINGS[name])
    decoder, memory = model.decoder, model.encode(reading(SOURCE, LENGTHS))
    start = decoder.start(memory)
    one = decoder.step(torch.tensor([5, 6, 7]), memory, start)
    _, weights, _ = decoder.attention(start.cells[-1].hidden[:, None], memory.keys.attention, return_weights=True)
    torch.testing.assert_close(one.weights, weights[:, :, 0])


def test_the_additive_score_has_the_size_it_is_given():
    model = tiny({"cell": "gru", "attention": {"score": "additive", "size": 3}, "context": "into_cell"})
    assert model.decoder.attention.score.score_vector.shape == (1, 3)
    assert model.encode(reading(SOURCE, LENGTHS)).keys.attention.keys.shape == (3, 1, 4, 3)


@pytest.mark.parametrize("options", [{"size": 9, "heads": 2}, {"values": 7, "heads": 2}])
def test_heads_that_cannot_share_are_refused_with_the_key(options):
    with pytest.raises(UserError, match=r"decoder\.attention: 2 heads cannot share (size=9|values=7)"):
        configure({"decoder": {"attention": {"score": "additive", **options}}})
