"""The graphs, run by onnxruntime, give the logits of the model, for rows, lengths and steps that they were not written from."""

import json

import pytest
import torch
from calling import regard
from exchanged import bundle, save
from kinds import KINDS
from tiny_transformer import section

from regard.data.batching import reading
from regard.data.tokenizers import START
from regard.errors import UserError
from regard.exchange.onnx import changing, sources, tensors_of, with_tensors, write
from regard.models.decoders import DECODERS

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def recurrent(cell="gru", encoder=None, **decoder):
    sizes = {"cell": cell, "embedding_size": 5}
    return {"encoder": {**sizes, "hidden_size": 4, **(encoder or {})}, "decoder": {**sizes, "hidden_size": 8, **decoder}}


CASES = {
    "recurrent": recurrent(),
    "transformer": section(norm_place="pre", positions="rotary", feedforward="swiglu"),
    "bytenet": KINDS["convolutional-bytenet"],
    "input-feeding": recurrent("lstm", attention={"score": "dot"}, context="input_feeding"),
    "sutskever": recurrent(
        "lstm", {"bidirectional": False, "hidden_size": 8, "layers": 2}, attention=None, context="none", layers=2
    ),
    "peephole-local": recurrent("lstm_peephole", attention={"score": "general", "scope": "local_m", "window": 2}),
    "learned": section(positions="learned", longest=9),
    "coverage": section({"cross_attention": {"heads": 2, "coverage": True}}),
    "alone": {"kind": "decoder_alone", "hidden_size": 8, "feedforward_size": 12, "layers": 2, "attention": {"heads": 2}},
}


def sessions(folder):
    return [onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "step")]


@torch.no_grad()
def agree(section, folder):
    """Four steps of the most probable words, of four sources of up to eight tokens."""
    given = bundle(section)
    counts = write(given, folder)
    encode, step = sessions(folder)
    model, (tokens, lengths) = given.model, sources(given.model, 8, rows=4)
    ours, state = model.start(model.encode(reading(tokens, lengths)))
    found = encode.run(None, {"tokens": tokens.numpy(), "lengths": lengths.numpy()})
    memory, theirs = found[: counts["memory"]], found[counts["memory"] :]
    words = torch.full((4,), START)
    for _ in range(4):
        expected = ours(words, state)
        named = {"words": words.numpy()} | {f"memory_{at}": one for at, one in enumerate(memory)}
        named |= {f"state_{at}": one for at, one in enumerate(theirs)}
        logits, *theirs = step.run(None, {one.name: named[one.name] for one in step.get_inputs()})
        torch.testing.assert_close(torch.from_numpy(logits), expected.logits, rtol=0, atol=1e-4)
        state, words = expected.state, expected.logits.argmax(dim=-1)


def test_a_recurrent_model(tmp_path):
    agree(CASES["recurrent"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_decoder(name, tmp_path):
    agree(CASES[name], tmp_path)


def test_every_decoder_has_a_case():
    assert DECODERS.keys() <= CASES.keys() | REFUSED.keys()


def test_a_tree_is_its_tensors():
    tree = (torch.ones(2), [None, (torch.zeros(3), True)])
    assert [len(one) for one in tensors_of(tree)] == [2, 3]
    back = with_tensors(tree, [torch.zeros(5), torch.ones(7)])
    assert (len(back[0]), back[1][0], len(back[1][1][0]), back[1][1][1]) == (5, None, 7, True)
    assert changing(torch.Size((3, 2, 5)), torch.Size((4, 2, 6))) == [2]


REFUSED = {
    "copy_words": section({"copy_words": "added"}),
    "experts": section(experts={"number": 3, "every": 1}),
    "tape": recurrent("tanh_attention"),
    "convolutional": KINDS["convolutional-convs2s"],
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_graph_holds_is_refused(what, tmp_path):
    with pytest.raises(UserError, match=f"{what}.*not for ONNX"):
        write(bundle(REFUSED[what]), tmp_path)


def test_a_quantization_is_refused_and_nothing_written(tmp_path):
    model = save(bundle(section()), tmp_path / "model")
    done = regard("export", model, "--to", "onnx", "--output", tmp_path / "out", "--quantization", "int8")
    assert (done.code, done.err) == (2, "error: --quantization int8 is unknown to onnx; it has none\n")
    assert not (tmp_path / "out").exists()
    assert json.loads((model / "config.json").read_text())["format"] == 2
