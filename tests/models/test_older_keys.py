"""Keys of a recipe by their older names: they are read, said, and mean the same to a run that began with them."""

import json
import shutil

import pytest
import yaml
from calling import regard

from regard import recipe
from regard.data.sealed import MANIFEST, manifest_bytes
from regard.errors import RecipeError
from regard.models import configure
from regard.models.names import KEYS, older_keys
from regard.overrides import flatten
from regard.run_directory import HEADER

# as recipes had them before, and have them now
WRITTEN = {
    "stack": (
        {"size": 8, "inner": 12, "inner_dropout": 0.2},
        {"hidden_size": 8, "feedforward_size": 12, "feedforward_dropout": 0.2},
    ),
    "experts": ({"experts": {"number": 6, "chosen": 3}}, {"experts": {"num_experts": 6, "top_k": 3}}),
}  # fmt: skip
STACK = {"kind": "transformer", "attention": {"heads": 2}, "layers": 1}
LAYERS = [{"size": 512, "width": 3, "times": 2}, {"size": 768, "times": 1}]


@pytest.mark.parametrize("name", WRITTEN)
def test_either_name_makes_the_same_model(name):
    older, newer = WRITTEN[name]
    for kind in ({"encoder": {**STACK, **older}}, {"encoder": {**STACK, **newer}}):
        assert configure(kind) == configure({"encoder": {**STACK, **newer}})
    typed = configure({"encoder": {**STACK, **newer}}).model_dump(mode="json")
    assert {newest for _, newest in older_keys({"encoder": {**STACK, **older}}, typed)} == {
        path.rpartition(".")[2] for path in flatten(newer)
    }


def test_every_key_that_has_an_older_name_is_tried():
    assert {path.rpartition(".")[2] for older, _ in WRITTEN.values() for path in flatten(older)} == KEYS.keys()


def test_experts_between_layers_and_layers_of_several_sizes_too():
    experts = {"decoder": {"layers": 2, "experts": {"number": 8, "chosen": 2, "inner": 16}}}
    assert configure(experts).decoder.experts.feedforward_size == 16
    mixed = configure({"encoder": {"kind": "convolutional", "layers": LAYERS}})
    assert mixed.encoder.blocks == [(512, 3), (512, 3), (768, 3)]


def test_an_override_counts_by_either_name():
    for change in ("model.encoder.size=64", "model.encoder.hidden_size=64"):
        changed = configure(recipe.read("vaswani2017-small", [change]).model)
        assert (changed.encoder.hidden_size, changed.decoder.hidden_size) == (64, 256)


def test_a_section_without_the_newer_name_does_not_take_the_older_one():
    with pytest.raises(RecipeError, match=r"unknown key 'model\.encoder\.size'"):
        configure({"encoder": {"kind": "recurrent", "size": 8}})


def older(values):
    """As it was written before."""
    names = {newer: older for older, newer in KEYS.items()}
    if isinstance(values, dict):
        return {names.get(key, key) if values.get("kind") == "transformer" else key: older(one) for key, one in values.items()}
    return [older(one) for one in values] if isinstance(values, list) else values


def test_a_run_that_began_with_older_names_goes_on(tmp_path):
    own = [
        "model.encoder.hidden_size=8", "model.decoder.hidden_size=8", "model.encoder.feedforward_size=8",
        "model.decoder.feedforward_size=8", "model.encoder.layers=1", "model.decoder.layers=1", "data.corpus.name=latin",
        "data.corpus.size=40", "data.tokenizer.kind=word", "training.precision=float32", "training.device=cpu",
        "decoding.max_length=8",
    ]  # fmt: skip
    assert regard("train", "vaswani2017-small", "-r", tmp_path / "run", *own, "training.updates=2").code == 0
    before = shutil.copytree(tmp_path / "run", tmp_path / "before")
    path = before / "recipe.yaml"
    written = yaml.safe_load(path.read_text())
    path.write_text(HEADER + yaml.safe_dump({**written, "model": older(written["model"])}))
    assert "inner: 8" in path.read_text()
    (manifest,) = (before / "checkpoints").glob(f"*/{MANIFEST}")
    content = json.loads(manifest.read_text())
    content["facts"]["identity"]["recipe"]["model"] = older(content["facts"]["identity"]["recipe"]["model"])
    manifest.write_bytes(manifest_bytes({key: value for key, value in content.items() if key != "seal"}))
    resumed = [regard("train", "--run", tmp_path / name, "--resume", "training.updates=4") for name in ("run", "before")]
    assert [one.code for one in resumed] == [0, 0], resumed[1].err
    assert "note: `model.encoder.inner` is an older name; it is `feedforward_size` now" in resumed[1].err
    assert "older name" not in resumed[0].err
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "before")]
    assert weights[0] == weights[1]
    assert "feedforward_size: 8" in path.read_text()
    refused = regard("train", "--run", before, "--resume", "training.updates=6", "model.encoder.inner=16")
    assert refused.code == 2
    assert "the run began with model.encoder.feedforward_size=8, not 16" in refused.err
