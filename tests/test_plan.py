"""What a plan says, against torch's own counter of FLOPs, real saved tensors and formulas."""

import json

import pytest
import torch
from calling import refused, regard
from kinds import KINDS
from tiny import SETTINGS
from torch.utils.flop_counter import FlopCounterMode

from regard.data.batching import reading
from regard.models import build, configure
from regard.nn.recurrent import scan
from regard.planning import rate
from regard.planning.cost import ROWS, Cost, Lengths, cost_of, drawn, memory_of, passed
from regard.planning.lecture import ROWS as LECTURE
from regard.planning.lengths import lengths_of
from regard.planning.outline import Drawing, Outline
from regard.planning.paths import paths_of
from regard.recipe import Data, Training, built_in, read

LENGTHS, PAIRS, VOCABULARY = Lengths(9, 7), 4, 50
RECURRENT = ["lstm-general-input_feeding", "mut1-additive-after_cell"]
SECTIONS = {
    name: {
        "encoder": {"cell": SETTINGS[name]["cell"], "embedding_size": 5, "hidden_size": 4},
        "decoder": {"embedding_size": 5, "hidden_size": 8, "layers": 2, **SETTINGS[name]},
    }
    for name in RECURRENT
} | {
    name: KINDS[name]
    for name in (
        "transformer-experts", "transformer-own-scope-compressed", "alone-two-way",
        "convolutional-convs2s-mixed", "convolutional-bytenet", "deep-gnmt", "deep-deepatt",
        "experts-shazeer", "experts-feeding",
    )
}  # fmt: skip
aten = torch.ops.aten


def looking(query, keys, values, *_, out_shape=None, **__):
    batch, heads, target, size = query
    return 2 * batch * heads * target * keys[2] * (size + values[3])


# What torch's counter leaves out. On the way back from an attention there are five products for two (scores again), of which we
# count the four that a gradient needs
MISSED = {
    aten.mv: lambda left, right, *_, **__: 2 * left[0] * left[1],
    aten.dot: lambda left, right, *_, **__: 2 * left[0],
    aten.addmm_: lambda total, left, right, **_: 2 * left[0] * left[1] * right[1],
    aten._scaled_dot_product_flash_attention_for_cpu: looking,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda slope, *rest, **_: 2 * looking(*rest[:3]),
}


def pairs(lengths=LENGTHS, rows=PAIRS):
    source, target = (torch.full((rows, length), 4) for length in lengths)
    return reading(source, torch.full((rows,), lengths.source)), target


def counted(section, learns):
    """By torch, of real numbers in float64, which oneDNN does not multiply."""
    model = build(configure(section), VOCABULARY, VOCABULARY).double().train()
    with FlopCounterMode(display=False, custom_mapping=MISSED) as counter, torch.set_grad_enabled(learns):
        steps = model.teacher_forced(*pairs())
        loss = model.decoder.loss(steps, pairs()[1])
        if learns:
            (loss if steps.cost is None else loss + steps.cost).backward()
    return counter.get_total_flops()


def outlined(section, device="cpu", precision="float32"):
    with paths_of(device), Drawing() as drawing:
        return passed(drawing, drawn(drawing, section, VOCABULARY), PAIRS, LENGTHS, precision)


@pytest.mark.parametrize("name", SECTIONS)
def test_operations_are_those_that_torch_counts(name):
    ours = sum(outlined(SECTIONS[name]).operations.values())
    assert ours == counted(SECTIONS[name], learns=False)
    assert 3 * ours == counted(SECTIONS[name], learns=True)


def really_kept(section, precision):
    """Bytes of all storages that autograd holds, but for the parameters'."""
    model, storages = build(configure(section), VOCABULARY, VOCABULARY).train(), {}
    apart = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    kind = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")
    with kind, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        steps = model.teacher_forced(*pairs())
        model.decoder.loss(steps, pairs()[1])
    return sum(storage.nbytes() for place, storage in storages.items() if place not in apart)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["mut1-additive-after_cell", "transformer-experts", "alone-two-way", "convolutional-bytenet"])
def test_a_cpu_keeps_as_many_bytes(name, precision, monkeypatch):
    monkeypatch.setitem(scan.FASTEST, "cpu", ("diagonal",))  # a library's scans keep what they like
    assert outlined(SECTIONS[name], "cpu", precision).bytes == pytest.approx(really_kept(SECTIONS[name], precision), rel=0.02)


def test_a_gpu_keeps_what_its_kernels_need():
    """A layer more: its input, queries with keys and values, context, two sums and one norm, and the inner states, which two
    ask for; the next layer's input is its last norm. In bfloat16 the weights are cast, and kept."""
    size, inner = 8, 12
    side = {"kind": "transformer", "size": size, "inner": inner, "attention": {"heads": 2}, "dropout": 0.1}
    bytes_of = [
        outlined({"encoder": {**side, "layers": layers}, "decoder": {**side, "layers": 1}}, "cuda", "bfloat16").bytes
        for layers in (2, 3)
    ]
    numbers = PAIRS * LENGTHS.source * (size + 3 * size + size + 2 * size + size + inner) + 4 * size**2 + 2 * size * inner
    assert bytes_of[1] - bytes_of[0] == pytest.approx(2 * numbers, rel=0.1)


def test_the_base_transformer_by_hand():
    recipe, lengths = read("vaswani2017-base"), Lengths(20, 30)
    cost = cost_of(recipe.model, 37000, lengths)
    layer, square = 4 * 512 * 20, 4 * 512**2
    there = lengths.source / lengths.target  # source tokens a target token
    assert cost.operations["encoder.attention"] == pytest.approx(6 * there * (2 * square + layer))
    own, cross = 2 * square + 4 * 512 * 30, 2 * 2 * 512**2 + there * 2 * 2 * 512**2 + 4 * 512 * 20
    assert cost.operations["decoder.attention"] == pytest.approx(6 * (own + cross))
    assert cost.operations["decoder.feed-forward"] == 6 * 2 * 2 * 512 * 2048
    assert cost.operations["output"] == 2 * 512 * 37000
    assert cost.parameters["embeddings"] == 37000 * 512  # three uses, one table
    layer, norm = 2 * 512 * 2048 + 2048 + 512, 2 * 512
    both = 6 * (square + layer + 2 * norm) + 6 * (2 * square + layer + 3 * norm)
    assert cost.size - cost.parameters.get("output", 0) == 37000 * 512 + both


def test_nothing_of_a_models_size_is_allocated():
    with paths_of("cuda"), Drawing() as drawing:
        model = drawn(drawing, read("vaswani2017-big").model, 37000)
    assert all(isinstance(parameter, Outline) for parameter in model.parameters())


def test_only_chosen_experts_are_counted():
    section = KINDS["transformer-experts"]
    sides = [{**section["encoder"], "experts": {"number": number, "noise": False}} for number in (4, 64)]
    few, many = (outlined({**section, "encoder": side}).operations["encoder.experts"] for side in sides)
    assert many - few == 2 * 8 * (64 - 4) * PAIRS * LENGTHS.source  # the gate, in one layer of two


def test_the_work_of_experts_between_layers_by_hand():
    """Of a row: two gates of 3 scores, of which 2 are chosen; a network of 4 x 6 there and back, each; and their sum."""
    found = outlined(SECTIONS["experts-shazeer"]).operations
    row = 2 * 4 * (2 * 3 + 2 * 2 * 6 + 2)
    assert found["encoder.experts"] == row * PAIRS * LENGTHS.source
    assert found["decoder.experts"] == row * PAIRS * LENGTHS.target
    assert "encoder.attention" not in found


def test_memory_grows_by_so_much_a_sentence():
    cost = Cost(Lengths(10, 20), 100, {"all": 7}, {"all": 1.0}, {"bfloat16": 50}, {"bfloat16": 3})
    memory = memory_of(cost, "bfloat16", 200)
    assert memory == (28, 28, 56, 50 + 10 * 3, 10 * 20 * 100 * 2)
    assert memory.total == sum(memory)
    section = SECTIONS["deep-gnmt"]
    rows, found = 5, cost_of(section, VOCABULARY, LENGTHS, "cpu")
    with paths_of("cpu"), Drawing() as drawing:
        direct = passed(drawing, drawn(drawing, section, VOCABULARY), rows, LENGTHS, "float32")
    assert rows not in ROWS
    assert found.fixed["float32"] + rows * found.each["float32"] == direct.bytes
    assert found.forward * rows * LENGTHS.target == pytest.approx(sum(direct.operations.values()))


@pytest.mark.parametrize("name", LECTURE)
def test_the_lectures_numbers_are_time_times_gpus_times_rate(name):
    row = LECTURE[name]
    for value, how in ((row.german, row.german_by), (row.french, row.french_by)):
        if how is not None:
            assert how.operations == pytest.approx(value, rel=0.03)


def test_lengths_come_from_the_data(tmp_path):
    (tmp_path / "a").write_text("one two three\nfour\n")
    (tmp_path / "b").write_text("five six\nseven eight nine ten\n")
    files = {"train": {"source": tmp_path / "a", "target": tmp_path / "b"}}
    assert lengths_of(Data(**files, tokenizer={"kind": "word"}), None, None).lengths == (3, 4)
    assert lengths_of(Data(**files, tokenizer={"kind": "character"}), None, None).lengths == (9 + 0, 15)
    assert lengths_of(Data(**files), None, 40).lengths == (3, 40)
    assert "pieces" in lengths_of(Data(**files), None, None).how
    assert lengths_of(Data(), None, None).lengths == (25, 25)


def test_a_rate_is_the_median_step(monkeypatch):
    monkeypatch.setattr(rate, "timed", lambda step, device: iter([step() or 9.0, 9.0, 0.5, 0.1, 0.2, 0.3, 0.4]))
    section = SECTIONS["transformer-experts"]
    assert rate.tokens_a_second(section, 50, LENGTHS, 90, Training(), "cpu") == pytest.approx(10 * LENGTHS.target / 0.3)


def test_the_command_shows_ours_beside_the_lectures():
    found = json.loads(regard("plan", "vaswani2017-base", "--json", "--rate", "100").out)
    assert found["lecture"] == {"system": "Transformer (base model)", "en-de": 3.3e18, "en-fr": None}
    assert found["updates"] == 100_000
    assert found["target_tokens"] == 2_500_000_000
    assert 5e17 < found["training_flops"] < 2e18
    given = next(one for one in found["times"] if one["device"] == "given")
    assert given["seconds"] == pytest.approx(found["training_flops"] / 1e14)
    lines = regard("plan", "demo", "training.updates=10").lines
    assert any(line.split("\t")[0] == "  decoder.attention" for line in lines)
    assert any("10 updates" in line for line in lines)


def test_errors_are_for_people():
    assert "did you mean 'vaswani2017-base'" in refused("plan", "vaswani2017-bas")
    assert "choose from cpu, cuda" in refused("plan", "demo", "--device", "tpu")
    assert "data.batch_tokens" in refused("plan", "demo", "--source-length", "5000")
    assert "unknown key" in refused("plan", "demo", "training.update=1")


def test_recipes_of_the_lecture_are_there():
    assert LECTURE.keys() <= built_in().keys()
