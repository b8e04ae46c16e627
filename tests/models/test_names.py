"""Models and checkpoints whose tensors have the names of before load, and mean what they meant."""

import json
import shutil
from pathlib import Path

import fuzz_models
import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.data.sealed import read_manifest, sealed
from regard.decoding.load import in_use
from regard.errors import DamagedError
from regard.models.directory import check_model, load_model
from regard.models.names import current_name
from regard.training.checkpoint import Progress, mean_weights, moments, restore, write_tensors

BEFORE = Path(__file__).parent / "format_1"
ANSWERS = json.loads((BEFORE / "answers.json").read_text())


@pytest.mark.parametrize("name", ANSWERS)
def test_a_model_of_format_1_loads_and_answers_as_it_did(name):
    check_model(BEFORE / name)
    found = [one for many in in_use(load_model(BEFORE / name)).search(fuzz_models.TEXT, beam=2) for one in many]
    assert [one.text for one in found] == [text for text, _ in ANSWERS[name]]
    assert [one.log_prob for one in found] == pytest.approx([log_prob for _, log_prob in ANSWERS[name]], abs=1e-4)


@pytest.mark.parametrize("name", ANSWERS)
def test_each_renamed_tensor_is_there_once_and_no_name_of_today_is_an_older_one(name):
    before, now = load_file(BEFORE / name / "model.safetensors"), load_model(BEFORE / name).model.state_dict()
    assert {current_name(key) for key in before} == set(now)
    assert set(before) != set(now)
    assert [current_name(key) for key in now] == list(now)


def test_a_tensor_by_both_its_names_is_refused(tmp_path):
    model = shutil.copytree(BEFORE / "tape", tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    (old,) = (key for key in weights if key.endswith("score.energy"))
    save_file({**weights, current_name(old): weights[old].clone()}, model / "model.safetensors")
    fuzz_models.reseal(model, read_manifest(model), keep_missing=True)
    with pytest.raises(DamagedError, match="by its name and by an older one"):
        load_model(model)


def test_a_checkpoint_of_before_is_restored_with_its_moments(tmp_path):
    before, model = load_file(BEFORE / "experts" / "model.safetensors"), load_model(BEFORE / "experts").model
    older = {current_name(key): key for key in before}
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    kept = {key: value.clone() for key, value in moments(model, optimizer).items()}
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    with sealed(tmp_path / "step", {}) as inside:
        write_tensors(inside / "model.safetensors", {older[key]: value for key, value in weights.items()})
        named = {f"{older[key.rpartition('/')[0]]}/{key.rpartition('/')[2]}": value for key, value in kept.items()}
        write_tensors(inside / "optimizer.safetensors", named)
        (inside / "progress.json").write_text(json.dumps(vars(Progress(step=1))))
    for key, value in mean_weights([tmp_path / "step"]).items():
        assert torch.equal(value, weights[key])
    fresh = load_model(BEFORE / "experts").model
    empty = torch.optim.AdamW(fresh.parameters())
    assert restore(tmp_path / "step", fresh, empty, pytest.fail, {})[0].step == 1
    assert all(torch.equal(value, weights[key]) for key, value in fresh.state_dict().items())
    found = moments(fresh, empty)
    assert found.keys() == kept.keys()
    assert all(torch.equal(found[key], value) for key, value in kept.items())
