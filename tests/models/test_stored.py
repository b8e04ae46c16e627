"""A model directory whose checksums hold and whose content does not is refused by the name of the file."""

import json
import os
import shutil
import socket
from pathlib import Path

import fuzz_models
import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.data.sealed import MANIFEST, manifest_bytes, read_manifest
from regard.decoding.generator import TrainedGenerator
from regard.errors import DamagedError, UserError
from regard.models import build, configure
from regard.models.budget import Budget
from regard.models.directory import Reading, check_model, load_model, store_reading
from regard.models.stored import Stored, build_stored, read_header, read_stored


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fuzz_models.make_models(folder)
    return folder


@pytest.fixture
def model(models, tmp_path):
    """A recurrent one, to be spoilt."""
    return shutil.copytree(models / "recurrent", tmp_path / "model")


def reseal(directory):
    fuzz_models.reseal(directory, read_manifest(directory), keep_missing=True)


def refused(directory):
    """The message; what is refused when it is loaded is refused when it is only checked."""
    reseal(directory)
    with pytest.raises(DamagedError) as loading:
        load_model(directory)
    with pytest.raises(DamagedError) as checking:
        check_model(directory)
    assert str(loading.value).partition(": ")[0] == str(checking.value).partition(": ")[0]
    assert len(str(loading.value)) < fuzz_models.LONGEST
    return str(loading.value).removeprefix(f"{directory}/")


def test_initial_weights_are_not_drawn_where_others_are_loaded(models):
    before = torch.get_rng_state()
    load_model(models / "recurrent")
    load_model(models / "transformer")
    assert torch.get_rng_state().equal(before)


def change_config(directory, place, value):
    path = directory / "config.json"
    values = json.loads(path.read_text())
    inner = values
    *way, last = place.split(".")
    for key in way:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    path.write_text(json.dumps(values))


@pytest.mark.parametrize("name", fuzz_models.MODELS)
def test_every_kind_is_whole_and_comes_back_bit_by_bit(models, name):
    check_model(models / name)
    loaded, stored = load_model(models / name).model, load_file(models / name / "model.safetensors")
    section = configure(fuzz_models.MODELS[name][1])
    for key, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, stored[key])
    fresh = build(section, *(column.shape for column in read_stored(models / name).config.columns.values()))
    assert {key: tuple(one.shape) for key, one in fresh.named_buffers()} == {
        key: tuple(one.shape) for key, one in loaded.named_buffers()
    }
    assert not any(one.is_meta for one in [*loaded.buffers(), *loaded.parameters()])
    assert len(TrainedGenerator(load_model(models / name)).generate(fuzz_models.TEXT)) == 2


CONFIGS = [
    ("format", 3, "not a model of this version"),
    ("format", ..., "not a model of this version"),
    ("model_type", "other", "model_type: input should be 'regard'"),
    ("architectures", [], "architectures"),
    ("architectures", ["decoder_alone"], "architectures: 'decoder_alone' is not the kind of the model"),
    ("model", [], "model: input should be a valid dictionary"),
    ("model", ..., "model: field required"),
    ("model.kind", [], "architectures"),
    ("model.more", 1, "unknown key 'model.more'"),
    ("model.encoder.kind", "x", "model.encoder"),
    ("model.encoder.layers", 1000, "more values than model.safetensors holds"),
    ("model.encoder.hidden_size", 10**6, "more values than model.safetensors holds"),
    ("model.encoder.hidden_size", 9, "does not fit config.json"),
    ("model.decoder.attention.longest", "many", "model.decoder.attention.longest"),
    ("decoding", {"beam": 0}, "decoding.beam"),
    ("decoding", None, "decoding"),
    ("decoding.more", 1, "unknown key 'decoding.more'"),
    ("reading", {"head": -1}, "reading.head"),
    ("columns.source.sizes", [10**9], "columns.source.sizes"),
    ("columns.source.sizes", [14], "text of 13, and config.json says text of 14"),
    ("columns.source.sizes", [], "columns.source.sizes"),
    ("columns.target.sizes", ["x"], "columns.target.sizes"),
    ("columns.target.sizes", [13] * 9, "columns.target.sizes"),
    ("columns.target.kind", "label", "text of 13, and config.json says label of 13"),
    ("columns", {}, "columns , and the model has source, target"),
    ("columns.more", {"kind": "text", "sizes": [13]}, "columns source, target, more, and the model has source, target"),
    ("more", {}, "unknown key 'more'"),
    ("model.encoder", {"kind": {"deep": [[[]]]}}, "model.encoder"),
    ("about", dict.fromkeys(map(str, range(2_000)), 1), "unknown key 'about'"),
    ("decoding", dict.fromkeys(map(str, range(2_000)), 1), "unknown key 'decoding.0'"),
]


@pytest.mark.parametrize(("place", "value", "told"), CONFIGS)
def test_a_config_of_other_values_is_refused(model, place, value, told):
    change_config(model, place, value)
    assert told in refused(model)


TEXTS = [
    (lambda text: "", "not readable JSON"),
    (lambda text: "[]", "not an object"),
    (lambda text: "[" * 100_000, "not readable JSON"),
    (lambda text: text.replace("{", '{"x": ' + '{"x": ' * 50 + "1" + "}" * 50 + ",", 1), "at most 40 levels"),
    (lambda text: text.replace("{", '{"format": 2,', 1), "the key 'format' stands there twice"),
    (lambda text: text.replace("3.0", "NaN", 1), "NaN is no finite number"),
    (lambda text: text.replace("3.0", "1e999", 1), "1e999 is no finite number"),
    (lambda text: text.replace("3.0", "1" * 5000, 1), "not readable JSON"),
    (lambda text: " " * (1 << 20) + text, "bytes are too many"),
    (lambda text: text.encode("utf-16"), "not readable JSON"),
]


@pytest.mark.parametrize(("spoil", "told"), TEXTS)
def test_a_config_of_other_text_is_refused(model, spoil, told):
    path = model / "config.json"
    text = spoil(path.read_text())
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    message = refused(model)
    assert message.startswith("config.json: ")
    assert told in message


def test_a_budget_counts_before_anything_is_made():
    for make in (lambda: torch.zeros(10**6, 10**6), lambda: torch.randn((10**6, 10**6)), lambda: torch.nn.Linear(10**6, 10**6)):
        with pytest.raises(UserError, match="more values than it holds"), Budget(10**6, "it"):
            make()
    with Budget(100, "it"):
        torch.nn.Linear(9, 9)
    with pytest.raises(UserError), Budget(100, "it"):
        torch.nn.Sequential(torch.nn.Linear(9, 9), torch.nn.Linear(9, 9))


WEIGHTS = {
    "int8": (lambda name, one: {name: one.to(torch.int8)}, "is I8 [13, 8], not F32 [13, 8]"),
    "complex": (lambda name, one: {name: one.to(torch.complex64)}, "is C64 [13, 8], not F32 [13, 8]"),
    "double": (lambda name, one: {name: one.double()}, "is F64 [13, 8], not F32 [13, 8]"),
    "half": (lambda name, one: {name: one.half()}, "is F16 [13, 8], not F32 [13, 8]"),
    "shape": (lambda name, one: {name: one.T.contiguous()}, "is F32 [8, 13], not F32 [13, 8]"),
    "name": (lambda name, one: {"more": one.clone()}, "more is F32 [13, 8], not absent"),
    "nan": (lambda name, one: {name: one.index_fill(0, torch.tensor(3), float("nan"))}, "are finite numbers"),
    "inf": (lambda name, one: {name: one.index_fill(0, torch.tensor(3), float("-inf"))}, "are finite numbers"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_other_weights_are_refused(model, name):
    change, told = WEIGHTS[name]
    path = model / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | change("encoder.embed.weight", tensors["encoder.embed.weight"]), path)
    message = refused(model)
    assert message.startswith("model.safetensors: ")
    assert told in message


def test_a_missing_tensor_is_refused(model):
    tensors = load_file(model / "model.safetensors")
    del tensors["encoder.embed.weight"]
    save_file(tensors, model / "model.safetensors")
    assert "encoder.embed.weight is absent, not F32 [13, 8]" in refused(model)


def test_a_header_that_does_not_describe_the_file_is_refused(model):
    path = model / "model.safetensors"
    good = path.read_bytes()
    size = int.from_bytes(good[:8], "little")
    head = json.loads(good[8 : 8 + size])
    first = min(head.values(), key=lambda entry: entry["data_offsets"])
    begin, end = first["data_offsets"]
    heads = [{**head, "encoder.embed.weight": {**head["encoder.embed.weight"], "data_offsets": [0, 10**15]}}]
    heads += [{**head, "more": {"dtype": "F32", "shape": [1], "data_offsets": [begin, end]}}]
    heads += [{**head, "encoder.embed.weight": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [begin, end]}}]
    for content in [json.dumps(one).encode() for one in heads]:
        path.write_bytes(len(content).to_bytes(8, "little") + content + good[8 + size :])
        assert refused(model).startswith("model.safetensors: damaged: ")
    for content in (b"", good[:7], good[:-1], good + b"\0", (2**60).to_bytes(8, "little") + good[8:]):
        path.write_bytes(content)
        assert refused(model).startswith("model.safetensors: damaged: ")


def special(path: Path, kind: str) -> None:
    content = path.read_bytes()
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    else:
        (path.parent.parent / "aside").write_bytes(content)
        path.symlink_to({"link": path.parent.parent / "aside", "device": Path("/dev/zero")}[kind])


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "link", "device"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "README.md", MANIFEST])
def test_what_is_no_plain_file_is_refused_and_not_waited_for(model, monkeypatch, name, kind):
    monkeypatch.chdir(model)  # the name of a socket is short
    special(Path(name).absolute() if kind != "socket" else Path(name), kind)
    with pytest.raises(UserError, match=rf"{name}: (not a plain file|missing)|no config\.json in it"):
        load_model(model)


def test_a_folder_that_is_a_link_is_refused(model):
    (model / "fields" / "source").rename(model.parent / "aside")
    (model / "fields" / "source").symlink_to(model.parent / "aside")
    with pytest.raises(DamagedError, match=r"fields/source"):
        load_model(model)


ENTRIES = [None, [], {}, {"size": -1, "sha256": "0" * 64}, {"size": "1", "sha256": "0" * 64}, {"size": 1, "sha256": 1}]


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_manifest_of_other_entries_is_refused(model, entry):
    content = read_manifest(model)
    content["files"]["config.json"] = entry
    (model / MANIFEST).write_bytes(manifest_bytes({key: value for key, value in content.items() if key != "seal"}))
    with pytest.raises(DamagedError, match=rf"{MANIFEST}: not a manifest"):
        load_model(model)


def test_a_manifest_too_large_is_refused(model, monkeypatch):
    monkeypatch.setattr("regard.data.sealed.LARGEST", 100)
    with pytest.raises(DamagedError, match=rf"{MANIFEST}: .* bytes are too many"):
        load_model(model)


@pytest.mark.parametrize("name", ["shared", "decoder_alone"])
def test_one_table_of_words_needs_one_vocabulary(models, tmp_path, name):
    """As many tokens on both sides are not enough."""
    directory = shutil.copytree(models / name, tmp_path / "model")
    path = directory / "fields" / "source" / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lowercase": True}))
    assert "one table of words for both sides" in refused(directory)


def test_building_on_meta_makes_nothing(models):
    stored = read_stored(models / "recurrent")
    assert isinstance(stored, Stored)
    built = build_stored(stored, models / "recurrent", "meta")
    assert all(one.is_meta for one in built.parameters())
    assert read_header(models / "recurrent" / "model.safetensors").keys() == built.state_dict().keys()


@pytest.fixture
def old(model):
    """The model as it would have been written before there were fields: format 1."""
    path = model / "config.json"
    values = json.loads(path.read_text())
    for name, column in values.pop("columns").items():
        values[f"{name}_vocabulary"] = column["sizes"][0]
        (model / "fields" / name).rename(model / f"{name}_tokenizer")
    (model / "fields").rmdir()
    path.write_text(json.dumps(values | {"format": 1}, indent=1))
    fuzz_models.reseal(model, read_manifest(model), keep_missing=False)
    return model


def answers(directory):
    trained = TrainedGenerator(load_model(directory))
    return trained.generate(fuzz_models.TEXT), trained.score([tuple(fuzz_models.TEXT)])


def test_a_model_from_before_there_were_fields_answers_alike(models, old):
    assert sorted(path.name for path in old.iterdir() if path.is_dir()) == ["source_tokenizer", "target_tokenizer"]
    check_model(old)
    assert answers(old) == answers(models / "recurrent")
    store_reading(old, Reading(head=0, shift=1))
    assert load_model(old).reading == Reading(head=0, shift=1)
    assert answers(old) == answers(models / "recurrent")


@pytest.mark.parametrize(("place", "value", "told"), [
    ("source_vocabulary", ..., "columns.source.sizes"),
    ("source_vocabulary", 10**9, "columns.source.sizes"),
    ("source_vocabulary", 14, "text of 13, and config.json says text of 14"),
    ("target_vocabulary", "x", "columns.target.sizes"),
])  # fmt: skip
def test_an_old_config_of_other_values_is_refused(old, place, value, told):
    change_config(old, place, value)
    assert told in refused(old)
