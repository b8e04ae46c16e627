"""The Transformer against torch.nn's and Hugging Face Marian, and what training does to it."""

import math

import pytest
import torch
from kinds import small
from marian import section as marian_section
from marian import weights as marian_weights
from test_laws import LENGTHS, SOURCE, TARGET, stepped
from tiny_transformer import section
from torch import nn
from torch.nn import functional

from regard.data.batching import reading
from regard.data.tokenizers import PAD
from regard.errors import RecipeError, UserError
from regard.models import configure
from regard.nn.dropout import Dropout
from regard.nn.positions import POSITIONS, bucket

SIZE, HEADS = 8, 2
BIASED = {"heads": HEADS, "bias": True}


def torch_layers(activation, before):
    """torch.nn's two stacks; its norm above a post-norm stack is not the paper's, and left out."""
    options = {"dropout": 0.0, "activation": activation, "norm_first": before, "batch_first": True, "dtype": torch.float64}
    encoder, decoder = (kind(SIZE, HEADS, 12, **options) for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer))
    norms = [nn.LayerNorm(SIZE, dtype=torch.float64) if before else None for _ in range(2)]
    return (
        nn.TransformerEncoder(encoder, 2, norms[0], enable_nested_tensor=False),
        nn.TransformerDecoder(decoder, 2, norms[1]),
    )


def pairs_of_attention(theirs, attention, leave):
    score = attention.score
    layers = score.project_query, score.project_key, attention.project_value
    yield theirs.in_proj_weight, [layer.weight for layer in layers]
    yield theirs.in_proj_bias, [layer.bias for layer in layers]
    yield theirs.out_proj.weight, [leave.weight]
    yield theirs.out_proj.bias, [leave.bias]


def pairs_of_norm(theirs, norm):
    yield theirs.weight, [norm.weight]
    yield theirs.bias, [norm.offset]


def pairs_of_layer(theirs, ours):
    yield from pairs_of_attention(theirs.self_attn, ours.self_attention.attention, ours.self_output)
    if ours.cross is not None:
        yield from pairs_of_attention(theirs.multihead_attn, ours.cross, ours.cross_output)
    for their, our in ((theirs.linear1, ours.feedforward.up), (theirs.linear2, ours.feedforward.down)):
        yield their.weight, [our.weight]
        yield their.bias, [our.bias]


def norms_in_order(stack):
    """Ours as they are met on the way up, with the one before a pre-norm stack first."""
    found = [] if stack.first_norm is None else [stack.first_norm]
    for layer in stack.layers:
        joins = layer.after_self, *([layer.after_cross] if layer.cross is not None else []), layer.after_feedforward
        found += [join.norm for join in joins]
    return found


def parallel(theirs, stack):
    """(their parameter, ours that lie in it one after the other)."""
    for their, our in zip(theirs.layers, stack.layers, strict=True):
        yield from pairs_of_layer(their, our)
    names = ("norm1", "norm2", "norm3")[: 3 if stack.layers[0].cross is not None else 2]
    norms = [getattr(layer, name) for layer in theirs.layers for name in names] + ([theirs.norm] if theirs.norm else [])
    for their, our in zip(norms, norms_in_order(stack), strict=True):
        yield from pairs_of_norm(their, our)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("place", ["post", "pre"])
def test_it_is_torch_nn_transformer(place, activation):
    """Logits of padded rows, and the gradient of every weight, in float64."""
    options = {"positions": "none", "feedforward": activation, "norm_place": place, "attention": BIASED, "dropout": 0.0}
    model = small(section({"cross_attention": BIASED}, **options)).double().train()
    encoder, decoder = torch_layers(activation, place == "pre")
    pairs = [*parallel(encoder, model.encoder.stack), *parallel(decoder, model.decoder.stack)]
    for theirs, ours in pairs:
        theirs.data.normal_()
        for part, tensor in zip(theirs.data.chunk(len(ours)), ours, strict=True):
            tensor.data.copy_(part)
    padding = torch.arange(4) >= LENGTHS[:, None]
    words, target = (side.embed(tokens) * SIZE**0.5 for side, tokens in ((model.encoder, SOURCE), (model.decoder, TARGET)))
    memory = encoder(words, src_key_padding_mask=padding)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    outputs = decoder(target, memory, tgt_mask=future, memory_key_padding_mask=padding)
    expected, found = model.decoder.output(outputs), model(reading(SOURCE, LENGTHS), TARGET)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    weight = torch.randn_like(expected)
    (expected * weight).sum().backward(inputs=[theirs for theirs, _ in pairs])
    (found * weight).sum().backward()
    for theirs, ours in pairs:
        torch.testing.assert_close(torch.cat([tensor.grad for tensor in ours]), theirs.grad, rtol=1e-8, atol=1e-8)


@pytest.fixture
def theirs(monkeypatch):
    """Hugging Face's library, which must not ask its hub for anything."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import transformers

    return transformers


@pytest.mark.parametrize(("activation", "scaled"), [("relu", True), ("gelu", False), ("swish", True)])
def test_it_is_marian_with_marians_weights(theirs, activation, scaled):
    """From a random configuration: logits to 1e-5, and every tensor of theirs is used."""
    config = theirs.MarianConfig(
        vocab_size=9, d_model=8, encoder_layers=2, decoder_layers=3, encoder_attention_heads=2, decoder_attention_heads=4,
        encoder_ffn_dim=12, decoder_ffn_dim=10, max_position_embeddings=16, activation_function=activation,
        scale_embedding=scaled, pad_token_id=0, eos_token_id=3, bos_token_id=2, decoder_start_token_id=2,
        forced_eos_token_id=None,
    )  # fmt: skip
    oracle = theirs.MarianMTModel(config).eval()
    for tensor in (*(each for each in oracle.parameters() if each.requires_grad), oracle.final_logits_bias):
        tensor.data.normal_(std=0.5)
    model = small(marian_section(config))
    model.load_state_dict(marian_weights(config, oracle.state_dict()))
    visible = torch.arange(4) < LENGTHS[:, None]
    expected = oracle(input_ids=SOURCE, attention_mask=visible.long(), decoder_input_ids=TARGET).logits
    torch.testing.assert_close(model(reading(SOURCE, LENGTHS), TARGET), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(stepped(model, SOURCE, LENGTHS, TARGET)[0], expected, rtol=0, atol=1e-5)


def test_its_positions_are_not_marians_but_can_be(theirs):
    """sin | cos in halves; ours take turns, as the paper's."""
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    halves = MarianSinusoidalPositionalEmbedding(16, 8).create_weight()
    ours = small(section()).encoder.stack.positions.encode(torch.arange(16)[None])[0]
    torch.testing.assert_close(halves, torch.cat([ours[:, 0::2], ours[:, 1::2]], dim=1))


@pytest.mark.parametrize("both", [True, False])
def test_its_buckets_are_t5s(theirs, both):
    from transformers.models.t5.modeling_t5 import T5Attention

    steps = torch.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(steps, bidirectional=both, num_buckets=32, max_distance=128)
    assert bucket(steps, 32, 128, both).equal(expected)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_dropout_lies_where_the_paper_puts_it(side, monkeypatch):
    """On √d w + p, and on what each sublayer made before it joins: nowhere else, unless inner dropout is asked for."""
    model, dropped = small(section(dropout=0.3)).train(), []

    def forward(self, input):
        if self.p:
            dropped.append(input)
        return input

    monkeypatch.setattr(Dropout, "forward", forward)
    monkeypatch.setattr(Dropout, "added", lambda self, total, input: total + self(input))
    memory = model.encode(reading(SOURCE, LENGTHS))
    if side == "decoder":
        dropped.clear()
        model.decoder(TARGET, memory)
    part, tokens, sublayers = getattr(model, side), SOURCE if side == "encoder" else TARGET, 2 if side == "encoder" else 3
    assert len(dropped) == 1 + 2 * sublayers
    words = math.sqrt(SIZE) * part.embed.weight[tokens]
    place = part.stack.positions.encode(torch.arange(tokens.shape[1])[None])
    torch.testing.assert_close(dropped[0], words + place)
    states = dropped[0]
    for layer, made in zip(part.stack.layers, (dropped[1 : 1 + sublayers], dropped[1 + sublayers :]), strict=True):
        joins = [layer.after_self, *([layer.after_cross] if side == "decoder" else []), layer.after_feedforward]
        for join, result in zip(joins, made, strict=True):
            states = join.norm(states + result)
    torch.testing.assert_close(states, part.stack(part.embed(tokens), None if side == "decoder" else memory.visible,
                                                  memory.keys.layers if side == "decoder" else None).states)  # fmt: skip


def test_nearly_all_dropped_the_top_is_what_the_norm_adds():
    model = small(section(dropout=1 - 1e-6)).train()
    layer = model.encoder.stack.layers[-1]
    layer.after_feedforward.norm.offset.data.normal_()
    states = model.encoder(SOURCE, LENGTHS).states
    torch.testing.assert_close(states, layer.after_feedforward.norm.offset.expand_as(states))


def test_matrices_begin_as_glorot_and_bengio_say_and_words_at_length_1():
    model = small(section(hidden_size=64, feedforward_size=96, attention=BIASED), vocabulary=500)
    for part in (model.encoder.stack, model.decoder.stack):
        for layer in (module for module in part.modules() if isinstance(module, nn.Linear)):
            bound = math.sqrt(6 / sum(layer.weight.shape))
            assert 0.97 * bound < layer.weight.abs().max() <= bound
            assert layer.bias is None or layer.bias.eq(0).all()
    for side in (model.encoder, model.decoder):
        assert 0.97 < side.embed.weight.square().sum(dim=1).mean() < 1.03
    assert model.decoder.output.bias is None  # the paper has none
    assert small(section({"output_bias": True})).decoder.output.bias.eq(0).all()


def test_one_table_for_both_sides_and_the_output_layer():
    """Its gradient is the sum of what the three would get apart."""
    torch.manual_seed(1)
    shared = small({**section(dropout=0.0), "share_embeddings": True}).double().train()
    assert shared.encoder.embed.weight is shared.decoder.embed.weight is shared.decoder.output.weight
    apart = small(section({"tied": False}, dropout=0.0)).double().train()
    apart.load_state_dict({name: tensor.clone() for name, tensor in shared.state_dict().items()})
    for model in (shared, apart):
        model(reading(SOURCE, LENGTHS), TARGET).square().sum().backward()
    three = apart.encoder.embed.weight, apart.decoder.embed.weight, apart.decoder.output.weight
    torch.testing.assert_close(shared.decoder.embed.weight.grad, sum(each.grad for each in three))


def test_the_loss_is_pytorchs_with_label_smoothing():
    model, labels = small(section()), torch.tensor([[5, 6, 7, 8, 3], [4, 4, 3, 0, 0], [3, 0, 0, 0, 0]])
    steps = model.teacher_forced(reading(SOURCE, LENGTHS), TARGET)
    logits = model(reading(SOURCE, LENGTHS), TARGET).flatten(0, 1)
    expected = functional.cross_entropy(logits, labels.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(model.decoder.loss(steps, labels, 0.1), expected)


EXPERTS = {"number": 3, "every": 1, "noise": False, "capacity": 1.0}


@pytest.mark.parametrize("options", [{"norm": "batch"}, {"experts": EXPERTS}], ids=["batch norm", "experts"])
def test_padding_of_targets_reaches_nothing_in_training(options):
    """Neither moments over a batch nor the room and the cost of experts."""
    short = torch.where(torch.arange(5) < torch.tensor([[5], [2], [3]]), TARGET, PAD)
    found = []
    for more in (0, 4):
        torch.manual_seed(0)
        model = small(section(dropout=0.0, **options)).train()
        steps = model.teacher_forced(reading(SOURCE, LENGTHS), functional.pad(short, (0, more)))
        found.append((steps.outputs[:, :5][short != PAD], steps.cost))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_each_attention_has_the_biases_that_it_asks_for(own, cross):
    model = small(section({"cross_attention": {"heads": 2, "bias": cross}}, attention={"heads": 2, "bias": own}))
    for layer in model.decoder.stack.layers:
        assert [(layer.self_output.bias is not None), (layer.cross_output.bias is not None)] == [own, cross]
        assert (layer.self_attention.attention.project_value.bias is not None) is own
        assert (layer.cross.project_value.bias is not None) is cross


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(RecipeError, match="selection `hard`"):
        small(section(attention={"heads": 2, "selection": "hard"}))
    with pytest.raises(UserError, match="shared by all layers"):
        small(section(positions="alibi", attention=[{"heads": 2}, {"heads": 4}]))
    for score in ("general", "location"):  # whose heads see whole queries
        small(section(positions="shaw", attention={"heads": 2, "score": score}))(reading(SOURCE, LENGTHS), TARGET)


@pytest.mark.parametrize("name", POSITIONS)
def test_only_positions_that_are_read_are_concatenated(name):
    values = section(positions=name, positions_join="concatenated", longest=9)
    if POSITIONS[name].absolute:
        small(values)(reading(SOURCE, LENGTHS), TARGET)
        return
    with pytest.raises(
        RecipeError, match=rf"model\.encoder.*positions_join=concatenated.*\(sinusoid, .*positions={name} are not"
    ):
        configure(values)


def test_learned_positions_end_clearly_whole_or_step_by_step():
    model = small(section(positions="learned", longest=4))
    for read in (lambda *given: model(reading(*given[:2]), given[2]), lambda *given: stepped(model, *given)):
        read(SOURCE, LENGTHS, TARGET[:, :4])
        with pytest.raises(UserError, match="know 4 places, and a sequence has 5 tokens: raise `longest`"):
            read(SOURCE, LENGTHS, TARGET)


@torch.no_grad()
@pytest.mark.parametrize("scope", ["global", "blocks", "compressed", "local_m"])
def test_a_very_long_target(scope):
    """Its first half does not know how long it becomes; and it goes on."""
    model = small(section(attention={"heads": 2, "scope": scope, "window": 16}, layers=1)).double()
    target = torch.randint(4, 9, (1, 700))
    whole, half = (model(reading(SOURCE[:1], LENGTHS[:1]), target[:, :length]) for length in (700, 350))
    torch.testing.assert_close(whole[:, :350], half)
    assert whole.isfinite().all()


@torch.no_grad()
def test_no_place_of_the_future_reaches_the_past_through_alternating_layers():
    """T-DMCA's decoder: every place of a target is changed in turn."""
    attention = [{"heads": 2, "scope": "blocks", "window": 4}, {"heads": 2, "scope": "compressed", "window": 3}]
    model, target = small(section(layers=4, attention=attention)).double(), torch.randint(4, 9, (1, 11))
    before = model(reading(SOURCE[:1], LENGTHS[:1]), target)
    for place in range(11):
        changed = target.clone()
        changed[:, place] = 4 + (changed[:, place] - 3) % 5
        after = model(reading(SOURCE[:1], LENGTHS[:1]), changed)
        torch.testing.assert_close(before[:, :place], after[:, :place], rtol=0, atol=1e-12)
        assert not torch.allclose(before[:, place], after[:, place], atol=1e-6)
