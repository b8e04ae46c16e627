"""A Marian model of Hugging Face becomes one of ours that cuts, computes and generates the same; others are refused."""

import json
import shutil

import numpy as np
import opus
import pytest
import torch
from calling import regard as command
from opus import SOURCES, TARGETS
from safetensors.torch import load_file, save_file

import regard
from regard.data.batching import reading
from regard.data.tokenizers import END, PAD, START, UNKNOWN
from regard.errors import UserError
from regard.exchange import import_model
from regard.models.directory import load_model

CASES = {
    "opus": {},
    "relu-unscaled": {"activation_function": "relu", "scale_embedding": False},
    "gelu-padding-of-its-own": {"activation_function": "gelu", "padding": 0.3},
}
LINES = [*SOURCES, ">>deu<< the old dog", "Ωx", "  the   house "]


@pytest.fixture(scope="module")
def theirs():
    """Hugging Face's library, which must not ask its hub for anything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def made(theirs, tmp_path_factory):
    """By case: their model, their tokenizer, its directory, ours."""
    folder, found = tmp_path_factory.mktemp("marian"), {}
    for name, changes in CASES.items():
        model = opus.write(folder / name, theirs, **changes)
        import_model(folder / name, folder / f"ours-{name}")
        found[name] = model, folder / name, folder / f"ours-{name}"
    return found


def their_tokenizer(theirs, folder):
    with pytest.warns(UserWarning, match="sacremoses"):
        return theirs.MarianTokenizer(*(str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")))


def order(folder):
    """Their id of each of ours."""
    size = len(json.loads((folder / "vocab.json").read_text()))
    return [size - 1, 1, size - 1, 0, *range(2, size - 1)]


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_logits_are_theirs(made, name):
    oracle, folder, ours = made[name]
    model, number = load_model(ours).model, torch.tensor(order(folder))
    source, target = torch.tensor([[9, 5, 7, END], [8, END, PAD, PAD]]), torch.tensor([[START, 6, 9, 12], [START, 30, 4, 4]])
    lengths = torch.tensor([4, 2])
    visible = torch.arange(4) < lengths[:, None]
    expected = oracle(input_ids=number[source], attention_mask=visible.long(), decoder_input_ids=number[target]).logits
    found = model(reading(source, lengths), target)
    torch.testing.assert_close(found[..., 3:], expected[..., number[3:]], rtol=0, atol=2e-5)
    torch.testing.assert_close(found[..., UNKNOWN], expected[..., 1], rtol=0, atol=2e-5)
    assert (found[..., [PAD, START]] < -9000).all()


@pytest.mark.parametrize("name", CASES)
def test_it_generates_what_theirs_does(theirs, made, name):
    """Tokens and texts. Where padding has a probability of its own, which a vocabulary without padding does not know, the
    words share it out: one by one the same are the most probable."""
    oracle, folder, ours = made[name]
    tokenizer, model, number = their_tokenizer(theirs, folder), regard.load(ours), order(folder)
    inputs = tokenizer(LINES, return_tensors="pt", padding=True)
    for beams in (1, 4) if "padding" not in CASES[name] else (1,):
        rows = oracle.generate(**inputs, num_beams=beams, do_sample=False).tolist()
        found = model.search(LINES, beam=beams, max_length=23)
        for row, hypotheses in zip(rows, found, strict=True):
            words = row[1:]
            words = words[: words.index(0)] if 0 in words else words[:23]
            assert [number[token] for token in hypotheses[0].tokens] == words
            assert hypotheses[0].text == tokenizer.decode(words, use_source_tokenizer=False)
    assert len({hypotheses[0].text for hypotheses in found}) > 2


def test_texts_are_cut_as_theirs(theirs, made):
    _, folder, ours = made["opus"]
    tokenizer, model, number = their_tokenizer(theirs, folder), regard.load(ours), order(folder)
    for line in LINES:
        assert [number[token] for token in model.source.encode([line])[0]] + [0] == tokenizer(line).input_ids
        assert b"".join(model.source.surfaces([line])[0]).decode().split() == line.replace("<<", "<< ").split()
    for line in TARGETS:
        ids = [number[token] for token in model.target.encode([line])[0]]
        assert [*ids, 0] == tokenizer(text_target=line).input_ids
        assert model.target.decode(model.target.encode([line])[0]) == line


def numpy_logits(tensors, source, target, heads, size=16):
    """Marian's equations in NumPy float64, from the file: one source, no padding."""
    get = {name: tensor.double().numpy() for name, tensor in tensors.items()}

    def linear(x, name):
        return x @ get[f"{name}.weight"].T + get[f"{name}.bias"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * get[f"{name}.weight"] + get[f"{name}.bias"]

    def attend(query, memory, name, heads, causal):
        q, k, v = (linear(x, f"{name}.{p}_proj") for x, p in ((query, "q"), (memory, "k"), (memory, "v")))
        part, outputs = size // heads, []
        for head in range(heads):
            at = slice(head * part, (head + 1) * part)
            scores = q[:, at] @ k[:, at].T / np.sqrt(part)
            scores[np.triu(np.ones_like(scores), 1) > 0 if causal else np.zeros_like(scores) > 0] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            outputs.append(weights / weights.sum(-1, keepdims=True) @ v[:, at])
        return linear(np.concatenate(outputs, -1), f"{name}.out_proj")

    def enter(tokens):
        angles = np.arange(len(tokens))[:, None] / 10000 ** (2 * np.arange(size // 2) / size)
        return get["model.shared.weight"][tokens] * np.sqrt(size) + np.concatenate([np.sin(angles), np.cos(angles)], -1)

    def feed(x, name):
        inner = linear(x, f"{name}.fc1")
        return norm(x + linear(inner / (1 + np.exp(-inner)), f"{name}.fc2"), f"{name}.final_layer_norm")

    x = enter(source)
    for layer in range(2):
        name = f"model.encoder.layers.{layer}"
        x = norm(x + attend(x, x, f"{name}.self_attn", heads[0], False), f"{name}.self_attn_layer_norm")
        x = feed(x, name)
    y = enter(target)
    for layer in range(3):
        name = f"model.decoder.layers.{layer}"
        y = norm(y + attend(y, y, f"{name}.self_attn", heads[1], True), f"{name}.self_attn_layer_norm")
        y = norm(y + attend(y, x, f"{name}.encoder_attn", heads[1], False), f"{name}.encoder_attn_layer_norm")
        y = feed(y, name)
    return y @ get["model.shared.weight"].T + get["final_logits_bias"][0]


@torch.no_grad()
def test_logits_are_those_of_the_equations(made):
    _, folder, ours = made["opus"]
    number = np.array(order(folder))
    source, target = [5, 9, 6, 7, END], [START, 8, 11, 5]
    expected = numpy_logits(load_file(folder / "model.safetensors"), number[source], number[target], (2, 4))
    found = load_model(ours).model(reading(torch.tensor([source]), torch.tensor([5])), torch.tensor([target]))[0]
    np.testing.assert_allclose(found[:, 3:].numpy(), expected[:, number[3:]], rtol=0, atol=5e-5)


def test_it_is_trained_on_looked_into_and_evaluated(made, tmp_path):
    """By the commands that users type."""
    _, folder, _ = made["opus"]
    assert command("import", folder, "--output", tmp_path / "ours").code == 0
    (tmp_path / "a").write_text("".join(f"{line}\n" for line in SOURCES[:5] * 4))
    (tmp_path / "b").write_text("".join(f"{line}\n" for line in TARGETS * 4))
    rows = (
        "--source",
        tmp_path / "a",
        "--target",
        tmp_path / "b",
        "--valid-source",
        tmp_path / "a",
        "--valid-target",
        tmp_path / "b",
    )
    few = (
        "training.updates=3",
        "training.learning_rate=0.001",
        "training.warmup=0",
        "data.batch_tokens=200",
        "decoding.max_length=9",
    )
    done = command(
        "train", tmp_path / "ours", *rows, "--run", tmp_path / "run", f"training.start_from={tmp_path / 'ours'}", *few
    )
    assert done.code == 0, done.err
    before, after = (load_model(tmp_path / name).model.encoder.embed.weight for name in ("ours", "run"))
    assert 0 < (before - after).abs().max() < 0.1
    assert command("verify", tmp_path / "ours").code == 0
    assert command("evaluate", tmp_path / "ours", "--source", tmp_path / "a", "--target", tmp_path / "b").code == 0
    assert regard.load(tmp_path / "ours").look(SOURCES[0], TARGETS[0]).heatmap.target[:3] == TARGETS[0].split()[:3]


CONFIGS = {
    "normalize_before": (True, "normalize_before=True is not imported"),
    "activation_function": ("tanh", "activation_function='tanh' is not imported"),
    "model_type": ("bert", "unknown model_type"),
    "d_model": (10**15, "d_model"),
    "encoder_layers": (900, "has no model.encoder.layers.2"),
    "encoder_ffn_dim": (1_000_000, "does not fit config.json|more values than"),
    "decoder_layers": (4, "has no model.decoder.layers.3"),
    "pad_token_id": (0, "are not two pieces"),
    "decoder_vocab_size": (7, "only one vocabulary"),
}


@pytest.fixture
def spoilt(made, tmp_path):
    return shutil.copytree(made["opus"][1], tmp_path / "spoilt")


def refused(folder, told):
    with pytest.raises(UserError, match=told) as error:
        import_model(folder, folder.parent / "out")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600
    assert not (folder.parent / "out").exists()


@pytest.mark.parametrize("key", CONFIGS)
def test_a_config_of_another_model_is_refused(spoilt, key):
    value, told = CONFIGS[key]
    path = spoilt / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    refused(spoilt, told)


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "source.spm", "target.spm", "model.safetensors"])
@pytest.mark.parametrize("how", ["missing", "empty", "link"])
def test_a_file_that_is_missing_or_no_file_of_its_kind_is_refused(spoilt, name, how):
    path = spoilt / name
    path.rename(spoilt / "aside")
    if how == "empty":
        path.write_bytes(b"")
    if how == "link":
        path.symlink_to("aside")
    refused(spoilt, name.replace(".", r"\."))


def test_a_pickle_is_named_and_not_read(spoilt):
    (spoilt / "model.safetensors").rename(spoilt / "pytorch_model.bin")
    refused(spoilt, r"pytorch_model\.bin: such a file can .*save_pretrained")


@pytest.mark.parametrize(("change", "told"), [
    (lambda found: found.pop("model.decoder.layers.1.fc1.bias"), r"has no model\.decoder\.layers\.1\.fc1\.bias"),
    (lambda found: found.update({"model.decoder.layers.1.fc1.bias": torch.zeros(3)}), "does not fit config.json"),
    (lambda found: found.update({"model.shared.weight": torch.zeros(3, 16)}), "3 words"),
    (lambda found: found.update({"model.encoder.layer_norm.weight": torch.zeros(16)}), "is of no Marian model"),
    (lambda found: found.update({"model.encoder.embed_positions.weight": torch.zeros(9, 16)}), "not Marian's sinusoids"),
    (lambda found: found.update({"lm_head.weight": torch.zeros(9, 16)}), "one table of words"),
    (lambda found: found["final_logits_bias"].fill_(float("nan")), "finite"),
])  # fmt: skip
def test_other_weights_are_refused(spoilt, change, told):
    found = load_file(spoilt / "model.safetensors")
    change(found)
    save_file(found, spoilt / "model.safetensors")
    refused(spoilt, told)
