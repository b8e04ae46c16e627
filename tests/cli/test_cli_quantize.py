"""`regard quantize`, and models that are used in other precisions."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from calling import refused, regard
from safetensors.torch import load_file, save_file

from regard import load
from regard.data.sealed import MANIFEST, seal
from regard.decoding.load import in_use
from regard.models.directory import find_model, load_model
from regard.nn.rounding import RoundedMatrix


@pytest.fixture(scope="module")
def int8(trained, tmp_path_factory):
    """The model in int8, and what was said of it."""
    into = tmp_path_factory.mktemp("rounded") / "model"
    code, out, err = regard("quantize", trained, "--output", into)
    assert (code, err) == (0, "")
    return into, out


def test_its_loss_is_told_and_kept_on_the_card(int8):
    into, out = int8
    told = [line for line in out.splitlines() if line.startswith(("short: ", "long: "))]
    assert any("in float32" in line and "in int8" in line for line in told)
    assert sum("outputs are the same" in line for line in told) == 2
    card = (into / "README.md").read_text()
    assert all(line in card for line in told)


def test_it_is_loaded_verified_and_used_as_any_other(int8, trained, corpus):
    into, _ = int8
    assert load(into).engine is not None
    assert load(trained).engine is None
    assert regard("verify", into).code == 0
    lines = (corpus / "short.source").read_bytes()
    plain, rounded, at_once = (
        regard("generate", *words, stdin=lines) for words in ([trained], [into], [trained, "--precision", "int8"])
    )
    assert rounded.code == at_once.code == 0
    same = sum(one == other for one, other in zip(plain.lines, rounded.lines, strict=True))
    assert same >= 0.8 * len(plain.lines)
    assert len(at_once.lines) == len(plain.lines)


def test_matrices_are_integers_whose_error_is_half_a_step(int8, trained):
    held, before = load_file(int8[0] / "model.safetensors"), load_file(find_model(trained) / "model.safetensors")
    after = load(int8[0]).model.state_dict()
    for name, tensor in before.items():
        if tensor.dim() == 2:
            assert held[name].dtype == torch.int8
            steps = (after[name] - tensor).abs() / held[f"{name}:scales"][:, None]
            assert steps.max() <= 0.5001
        else:
            assert held[name].equal(tensor)


@torch.inference_mode()
def test_what_is_not_written_by_the_engine_is_as_with_whole_matrices(int8, corpus):
    """Scores and alignments of the model itself, whose matrices stay rounded."""
    into, lines = int8[0], (corpus / "short.source").read_text().splitlines()[:5]
    kept, plain = load(into), in_use(load_model(find_model(into)))
    assert any(isinstance(one, RoundedMatrix) for one in kept.model.parameters())
    assert not any(isinstance(one, RoundedMatrix) for one in plain.model.parameters())
    outputs = plain.generate(lines)
    assert kept.generate(lines) == outputs
    pairs = [*zip(lines, outputs, strict=True)]
    scores = [torch.tensor([score.log_prob for score in one.score(pairs)]) for one in (kept, plain)]
    torch.testing.assert_close(*scores, atol=1e-4, rtol=1e-4)
    for one, other in zip(kept.align(pairs), plain.align(pairs), strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)


def test_a_rounded_model_is_read_without_what_it_does_not_need(int8):
    """Each would make every call of the command wait."""
    code = f"""
import sys
from regard.cli import main
sys.argv = ["regard", "generate", {str(int8[0])!r}]
try:
    main()
finally:
    print(*(name for name in ("torch.distributed.tensor", "sympy", "torch._dynamo") if name in sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], input=b"amicus\n", capture_output=True)
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"\n")


def test_bfloat16_is_stored_as_such(trained, tmp_path):
    assert regard("quantize", trained, "--to", "bfloat16", "--output", tmp_path / "half").code == 0
    held = load_file(tmp_path / "half" / "model.safetensors")
    assert {tensor.dtype for tensor in held.values() if tensor.dim() == 2} == {torch.bfloat16}
    assert load(tmp_path / "half").generate("amicus")


def test_without_a_name_it_lies_beside_the_model(own):
    assert regard("quantize", own).code == 0
    assert json.loads((own / "model-int8" / "config.json").read_text())["precision"] == "int8"


def test_what_makes_no_sense_is_refused(int8, trained, tmp_path):
    assert "rounded already" in refused("quantize", int8[0])
    assert "did you mean 'int8'" in refused("quantize", trained, "--to", "int9")
    assert "--to int8 or bfloat16" in refused("quantize", trained, "--to", "float32")
    assert "did you mean 'int8'" in refused("generate", trained, "--precision", "int9")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    refused("quantize", trained, "--output", tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def spoilt(model, into, change):
    """A copy whose checksums hold, with other tensors or another configuration."""
    shutil.copytree(model, into)
    weights, config = load_file(into / "model.safetensors"), json.loads((into / "config.json").read_text())
    change(weights, config)
    save_file(weights, into / "model.safetensors")
    (into / "config.json").write_text(json.dumps(config))
    facts = json.loads((into / MANIFEST).read_text())["facts"]
    (into / MANIFEST).unlink()
    seal(into, facts)
    return into


def as_float32(weights, config):
    config["precision"] = "float32"


def without_scales(weights, config):
    del weights[next(name for name in weights if name.endswith(":scales"))]


def with_nan(weights, config):
    weights[next(name for name in weights if name.endswith(":scales"))][0] = float("nan")


def as_floats(weights, config):
    name = next(name for name, tensor in weights.items() if tensor.dtype == torch.int8)
    weights[name] = weights[name].float()


@pytest.mark.parametrize("change", [as_float32, without_scales, with_nan, as_floats])
def test_hostile_directories_are_refused(int8, tmp_path, change):
    path = spoilt(int8[0], tmp_path / "hostile", change)
    assert "model.safetensors" in refused("generate", path)
