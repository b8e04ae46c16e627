"""The laws that every encoder and decoder obeys, over everything the tables can combine."""

import pytest
import torch
from tiny import FEW, LAWS, SETTINGS, SOON, tiny

from regard.data.batching import reading
from regard.models.interface import Steps

SOURCE = torch.tensor([[4, 5, 6, 7], [8, 4, 0, 0], [5, 0, 0, 0]])
LENGTHS = torch.tensor([4, 2, 1])
TARGET = torch.tensor([[2, 5, 6, 7, 8], [2, 4, 4, 8, 5], [2, 6, 8, 5, 7]])


def stepped(model, source, lengths, target):
    step, state = model.start(model.encode(reading(source, lengths)))
    logits, weights = [], []
    for tokens in target.unbind(1):
        one = step(tokens, state)
        state = one.state
        logits.append(one.logits)
        weights.append(one.weights)
    return torch.stack(logits, 1), None if weights[0] is None else torch.stack(weights, 2)


def test_what_is_taken_in_time_is_among_them():
    assert SETTINGS.keys() > SOON


@pytest.mark.parametrize("name", LAWS)
def test_stepping_equals_teacher_forcing(name):
    model = tiny(SETTINGS[name])
    logits, weights = stepped(model, SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(model(reading(SOURCE, LENGTHS), TARGET), logits)
    forced = model.teacher_forced(reading(SOURCE, LENGTHS), TARGET, return_weights=True).weights
    assert (forced is None) == (weights is None) == (not model.decoder.has_attention)
    if weights is not None:
        torch.testing.assert_close(forced, weights)


@pytest.mark.parametrize("name", LAWS)
def test_the_future_does_not_reach_the_past(name):
    model, changed = tiny(SETTINGS[name]), TARGET.clone()
    changed[:, 3:] = changed[:, 3:] % 5 + 4
    before, after = model(reading(SOURCE, LENGTHS), TARGET), model(reading(SOURCE, LENGTHS), changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", FEW)
def test_padding_reaches_nothing(name, bidirectional, reverse):
    size = 4 if bidirectional else 8
    model = tiny(FEW[name], bidirectional=bidirectional, reverse=reverse, hidden_size=size)
    together = model(reading(SOURCE, LENGTHS), TARGET)
    noisy = torch.where(SOURCE == 0, torch.tensor(7), SOURCE)
    torch.testing.assert_close(model(reading(noisy, LENGTHS), TARGET), together)
    for row, length in enumerate(LENGTHS):
        alone = model(reading(SOURCE[row : row + 1, :length], LENGTHS[row : row + 1]), TARGET[row : row + 1])
        torch.testing.assert_close(alone, together[row : row + 1])


@pytest.mark.parametrize("name", LAWS)
def test_weights_are_a_distribution_over_the_source(name):
    model = tiny(SETTINGS[name])
    if not model.decoder.has_attention:
        pytest.skip("no attention, no weights")
    weights = model.teacher_forced(reading(SOURCE, LENGTHS), TARGET, return_weights=True).weights
    total = weights.sum(-1)
    if "local_p" in name:  # a Gaussian takes some away
        assert (total <= 1 + 1e-6).all()
        assert (total > 0).all()
    else:
        torch.testing.assert_close(total, torch.ones_like(total))
    assert weights[1, ..., 2:].eq(0).all()
    assert weights[2, ..., 1:].eq(0).all()


@pytest.mark.parametrize("name", LAWS)
def test_every_parameter_learns(name):
    model = tiny(SETTINGS[name]).train()
    model(reading(SOURCE, LENGTHS), TARGET).square().sum().backward()
    idle = [name for name, parameter in model.named_parameters() if parameter.grad is None or parameter.grad.eq(0).all()]
    assert not idle


@pytest.mark.parametrize("name", LAWS)
def test_hypotheses_of_one_sentence_share_its_memory(name):
    """Rows of several hypotheses beside one memory equal as many sentences with a memory each."""
    model, tokens = tiny(SETTINGS[name]), torch.tensor([4, 5, 6, 7, 8, 4])
    memory = model.encode(reading(SOURCE, LENGTHS))
    step, state = model.start(memory)
    twice = SOURCE.repeat_interleave(2, 0), LENGTHS.repeat_interleave(2, 0)
    other, other_state = model.start(model.encode(reading(*twice)))
    from regard.nn.state import repeat_rows

    torch.testing.assert_close(step(tokens, repeat_rows(state, 2)).logits, other(tokens, other_state).logits)


def test_the_bridge_and_the_context_follow_their_equations():
    """s_0 = tanh(W summary); c_1 = Σ α_1j h_j with α from s_0 (Bahdanau); the output is tanh(W [s_1; c_1] + b)."""
    model = tiny(SETTINGS["gru-additive-into_cell"], layers=1)
    decoder, memory = model.decoder, model.encode(reading(SOURCE, LENGTHS))
    start = torch.tanh(memory.summary @ decoder.bridge.weight.T + decoder.bridge.bias)
    torch.testing.assert_close(decoder.start(memory).cells[0].hidden, start)
    score = decoder.attention.score
    inner = (score.project_query(start)[:, None] + score.project_key(memory.states)).tanh() @ score.score_vector[0]
    weights = inner.masked_fill(~memory.visible, float("-inf")).softmax(dim=-1)[:, None]
    context = weights @ memory.states
    one = decoder.step(torch.tensor([2, 2, 2]), memory, decoder.start(memory))
    torch.testing.assert_close(one.weights, weights)
    cell = decoder.cells[0]
    joint = torch.nn.GRUCell(5 + 8, 8)
    joint.weight_ih.data = torch.cat([cell.from_input.weight, decoder.from_fed.weight], dim=1)
    joint.bias_ih.data, joint.weight_hh.data, joint.bias_hh.data = cell.weights[2], cell.weights[1], cell.weights[3]
    state = joint(torch.cat([decoder.embed(torch.tensor([2, 2, 2])), context[:, 0]], dim=-1), start)
    known = torch.cat([state, context[:, 0]], dim=-1)
    expected = decoder.output(torch.tanh(known @ decoder.join.weight.T + decoder.join.bias))
    torch.testing.assert_close(one.logits, expected)


def test_input_feeding_feeds_the_last_output():
    model = tiny(SETTINGS["lstm-dot-input_feeding"])
    memory = model.encode(reading(SOURCE, LENGTHS))
    first = model.decoder.step(torch.tensor([2, 2, 2]), memory, model.decoder.start(memory))
    torch.testing.assert_close(model.decoder.logits(Steps(first.state.fed[:, None]))[:, 0], first.logits)
    other = first.state._replace(fed=torch.zeros_like(first.state.fed))
    words = torch.tensor([5, 6, 7])
    assert not torch.allclose(
        model.decoder.step(words, memory, first.state).logits, model.decoder.step(words, memory, other).logits
    )


def test_summary_is_the_last_state_of_each_direction():
    model = tiny(SETTINGS["gru-additive-into_cell"], layers=1)
    memory = model.encode(reading(SOURCE, LENGTHS))
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(memory.summary[row, :4], memory.states[row, length - 1, :4])
        torch.testing.assert_close(memory.summary[row, 4:], memory.states[row, 0, 4:])


@pytest.mark.parametrize("layers", [1, 2])
def test_the_summary_of_an_lstm_holds_hidden_and_memory_at_each_rows_end(layers):
    """For each layer and direction h and tanh(c), where torch.nn's LSTM on packed sequences ends."""
    model = tiny(FEW["lstm-none"], layers=layers).encoder
    oracle = torch.nn.LSTM(5, 4, layers, batch_first=True, bidirectional=True)
    ours = [weight for layer in model.stack.layers for cell in layer.cells for weight in cell.weights]
    for parameter, weight in zip(oracle.parameters(), ours, strict=True):
        parameter.data = weight.data
    packed = torch.nn.utils.rnn.pack_padded_sequence(model.embed(SOURCE), LENGTHS, batch_first=True)
    _, (hidden, memory) = oracle(packed)
    expected = torch.stack([hidden, memory.tanh()], dim=1).flatten(
        0, 1
    )  # h, tanh(c) of the first layer's first direction, and so on
    summary = model(SOURCE, LENGTHS).summary
    assert summary.shape == (3, model.summary_size)
    torch.testing.assert_close(summary.view(3, -1, 4), expected.transpose(0, 1))


EXTRAS = {
    "residual": {"connections": "residual"},
    "fast_forward": {"connections": "fast_forward"},
    "layer norm": {"layer_norm": True},
    "recurrent dropout": {"recurrent_dropout": 0.5},
    "all": {"connections": "fast_forward", "layer_norm": True, "recurrent_dropout": 0.5, "dropout": 0.5},
}


def with_extras(name, extra):
    """Three layers, so that a connection joins two of one size."""
    options = {"locked_dropout": True} if extra == "all" else {}
    return tiny({**FEW[name], **EXTRAS[extra]}, layers=3, **EXTRAS[extra], **options)


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("name", FEW)
def test_the_laws_hold_with_what_lies_between_and_inside_layers(name, extra):
    """Stepping equals teacher forcing; padding reaches nothing; the setting is there and does something."""
    model = with_extras(name, extra)
    together = model(reading(SOURCE, LENGTHS), TARGET)
    torch.testing.assert_close(together, stepped(model, SOURCE, LENGTHS, TARGET)[0])
    noisy = torch.where(SOURCE == 0, torch.tensor(7), SOURCE)
    torch.testing.assert_close(model(reading(noisy, LENGTHS), TARGET), together)
    for row, length in enumerate(LENGTHS):
        alone = model(reading(SOURCE[row : row + 1, :length], LENGTHS[row : row + 1]), TARGET[row : row + 1])
        torch.testing.assert_close(alone, together[row : row + 1])


@pytest.mark.parametrize("name", FEW)
def test_a_residual_connection_adds_what_the_layer_read(name):
    """Taken away, both the encoder and the decoder give something else."""
    from regard.nn.recurrent.connections import Connection

    for side in ("encoder", "decoder"):
        model = with_extras(name, "residual")
        before = model(reading(SOURCE, LENGTHS), TARGET)
        part = model.encoder.stack if side == "encoder" else model.decoder
        part.connections = torch.nn.ModuleList(Connection(8, 8) for _ in part.connections)
        assert not torch.allclose(model(reading(SOURCE, LENGTHS), TARGET), before)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("name", FEW)
def test_recurrent_dropout_acts_in_training_only(name, side):
    model = tiny({**FEW[name], "recurrent_dropout": 0.5 if side == "decoder" else 0.0},
                 recurrent_dropout=0.5 if side == "encoder" else 0.0)  # fmt: skip
    used = model(reading(SOURCE, LENGTHS), TARGET)
    assert used.equal(model(reading(SOURCE, LENGTHS), TARGET))
    model.train()
    assert not torch.allclose(model(reading(SOURCE, LENGTHS), TARGET), model(reading(SOURCE, LENGTHS), TARGET))


@pytest.mark.parametrize("name", FEW)
def test_a_target_has_one_recurrent_mask_a_layer(name, monkeypatch):
    """However many steps it has, a decoder draws as many masks as it has cells, for stepping and for teacher forcing."""
    from regard.models.decoders import recurrent

    drawn = []

    def counted(cell, *arguments):
        drawn.append(cell)
        return torch.nn.functional.dropout(torch.ones(3, cell.hidden_size), 0.5)

    monkeypatch.setattr(recurrent, "recurrent_mask", counted)
    model = tiny({**FEW[name], "recurrent_dropout": 0.5})
    memory = model.encode(reading(SOURCE, LENGTHS))
    model.decoder(TARGET, memory)
    assert drawn == list(model.decoder.cells)
    drawn.clear()
    stepped(model, SOURCE, LENGTHS, TARGET)
    assert drawn == list(model.decoder.cells)


@pytest.mark.parametrize("cell", ["gru", "lstm", "tanh"])
def test_the_two_directional_encoder_is_torch_nn_on_packed_sequences(cell):
    model = tiny({"cell": cell, "attention": None, "context": "none"}).encoder
    oracle = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM, "tanh": torch.nn.RNN}[cell](
        5, 4, 2, batch_first=True, bidirectional=True
    )
    ours = [weight for layer in model.stack.layers for cell in layer.cells for weight in cell.weights]
    for parameter, weight in zip(oracle.parameters(), ours, strict=True):
        parameter.data = weight.data
    packed = torch.nn.utils.rnn.pack_padded_sequence(model.embed(SOURCE), LENGTHS, batch_first=True)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(oracle(packed)[0], batch_first=True)
    torch.testing.assert_close(model(SOURCE, LENGTHS).states, expected)


def test_tied_weights_are_one_tensor():
    model = tiny({**FEW["gru-additive-into_cell"], "tied": True})
    assert model.decoder.output.weight is model.decoder.embed.weight


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*FEW, *(name for name in SETTINGS if name.endswith("-none") and name not in FEW)])
def test_a_gpu_computes_what_a_cpu_computes(name):
    """Values and gradients, through cuDNN, the loops and every cell's kernels; float32 sums in another order."""
    here, there = tiny(SETTINGS[name]), tiny(SETTINGS[name])
    there.load_state_dict(here.state_dict())
    there = there.cuda()
    for model, device in ((here, "cpu"), (there, "cuda")):
        steps = model.train().teacher_forced(reading(SOURCE.to(device), LENGTHS.to(device)), TARGET.to(device))
        model.decoder.loss(steps, TARGET.to(device), 0.1).backward()
    for (name, ours), theirs in zip(here.named_parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(
            theirs.grad.cpu(), ours.grad, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
    logits, _ = stepped(there.eval(), SOURCE.cuda(), LENGTHS.cuda(), TARGET.cuda())
    torch.testing.assert_close(logits.cpu(), stepped(here.eval(), SOURCE, LENGTHS, TARGET)[0], rtol=1e-3, atol=1e-4)
