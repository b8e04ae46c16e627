"""What a plan says, against torch's own counter of FLOPs, real saved tensors and formulas."""

import json
import sys
from typing import ClassVar, Literal

import pytest
import torch
from calling import refused, regard
from kinds import KINDS
from tiny import SETTINGS
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard.data.fields import Shape
from regard.errors import UserError
from regard.models import MODELS, Model, build, configure
from regard.models.device import on_device
from regard.models.interface import PLAIN, Loss
from regard.nn.outline import Outline
from regard.nn.recurrent import scan
from regard.planning import plan as planning
from regard.planning import rate
from regard.planning.cost import ROWS, Cost, bytes_kept, cost_of, drawn, memory_of, operations_of
from regard.planning.example import Lengths, example, shapes_of
from regard.planning.lecture import ROWS as LECTURE
from regard.planning.lengths import lengths_of
from regard.planning.outline import Drawing
from regard.planning.plan import plan
from regard.recipe import Data, Recipe, Section, Training, built_in, read

LENGTHS, PAIRS, VOCABULARY = Lengths(9, 7), 4, 50


def words(size):
    return {"source": Shape("text", (size,)), "target": Shape("text", (size,))}


WORDS = words(VOCABULARY)
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


def pairs(section, rows=PAIRS):
    return on_device(example(configure(section), WORDS, LENGTHS, rows), torch.device("cpu"))


def counted(section, learns):
    """By torch, of real numbers in float64, which oneDNN does not multiply."""
    model = build(configure(section), VOCABULARY, VOCABULARY).double().train()
    with FlopCounterMode(display=False, custom_mapping=MISSED) as counter, torch.set_grad_enabled(learns):
        loss = model.loss(pairs(section)).total
        if learns:
            loss.backward()
    return counter.get_total_flops()


def outlined(section, device="cpu", rows=PAIRS):
    """Operations of a forward pass, by part."""
    batch = pairs(section, rows)
    with Drawing(device) as drawing:
        return operations_of(drawing, drawn(drawing, configure(section), WORDS), batch)


def outlined_bytes(section, device, precision, rows=PAIRS):
    batch = pairs(section, rows)
    with Drawing(device) as drawing:
        return bytes_kept(drawn(drawing, configure(section), WORDS), batch, precision)


@pytest.mark.parametrize("name", SECTIONS)
def test_operations_are_those_that_torch_counts(name):
    ours = sum(outlined(SECTIONS[name]).values())
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
        model.loss(pairs(section))
    return sum(storage.nbytes() for place, storage in storages.items() if place not in apart)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["mut1-additive-after_cell", "transformer-experts", "alone-two-way", "convolutional-bytenet"])
def test_a_cpu_keeps_as_many_bytes(name, precision, monkeypatch):
    monkeypatch.setitem(scan.FASTEST, "cpu", ("diagonal",))  # a library's scans keep what they like
    assert outlined_bytes(SECTIONS[name], "cpu", precision) == pytest.approx(really_kept(SECTIONS[name], precision), rel=0.02)


def test_a_gpu_keeps_what_its_kernels_need():
    """A layer more: its input, queries with keys and values, context, two sums and one norm, and the inner states, which two
    ask for; the next layer's input is its last norm. In bfloat16 the weights are cast, and kept."""
    size, inner = 8, 12
    side = {"kind": "transformer", "hidden_size": size, "feedforward_size": inner, "attention": {"heads": 2}, "dropout": 0.1}
    bytes_of = [
        outlined_bytes({"encoder": {**side, "layers": layers}, "decoder": {**side, "layers": 1}}, "cuda", "bfloat16")
        for layers in (2, 3)
    ]
    numbers = PAIRS * LENGTHS.source * (size + 3 * size + size + 2 * size + size + inner) + 4 * size**2 + 2 * size * inner
    assert bytes_of[1] - bytes_of[0] == pytest.approx(2 * numbers, rel=0.1)


def test_the_base_transformer_by_hand():
    recipe, lengths = read("vaswani2017-base"), Lengths(20, 30)
    cost = cost_of(recipe.model, words(37000), lengths)
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
    with Drawing("cuda") as drawing:
        model = drawn(drawing, configure(read("vaswani2017-big").model), words(37000))
    assert all(isinstance(parameter, Outline) for parameter in model.parameters())


def test_only_chosen_experts_are_counted():
    section = KINDS["transformer-experts"]
    sides = [{**section["encoder"], "experts": {"number": number, "noise": False}} for number in (4, 64)]
    few, many = (outlined({**section, "encoder": side})["encoder.experts"] for side in sides)
    assert many - few == 2 * 8 * (64 - 4) * PAIRS * LENGTHS.source  # the gate, in one layer of two


def test_the_work_of_experts_between_layers_by_hand():
    """Of a row: two gates of 3 scores, of which 2 are chosen; a network of 4 x 6 there and back, each; and their sum."""
    found = outlined(SECTIONS["experts-shazeer"])
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
    rows, found = 5, cost_of(section, WORDS, LENGTHS, "cpu")
    assert rows not in ROWS
    assert found.fixed["float32"] + rows * found.each["float32"] == outlined_bytes(section, "cpu", "float32", rows)
    assert found.forward * rows * LENGTHS.target == pytest.approx(sum(outlined(section, "cpu", rows).values()))


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
    config = configure({})
    assert lengths_of(Data(**files, tokenizer={"kind": "word"}), config, None, None).lengths == (3, 4)
    assert lengths_of(Data(**files, tokenizer={"kind": "character"}), config, None, None).lengths == (9 + 0, 15)
    assert lengths_of(Data(**files), config, None, 40).lengths == (3, 40)
    assert "pieces" in lengths_of(Data(**files), config, None, None).how
    assert lengths_of(Data(), config, None, None).lengths == (25, 25)


def test_a_rate_is_the_median_step(monkeypatch):
    monkeypatch.setattr(rate, "timed", lambda step, device: iter([step() or 9.0, 9.0, 0.5, 0.1, 0.2, 0.3, 0.4]))
    section = SECTIONS["transformer-experts"]
    assert rate.tokens_a_second(section, WORDS, LENGTHS, 90, Training(), "cpu") == pytest.approx(10 * LENGTHS.target / 0.3)


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


def test_no_time_is_told_that_nobody_measured(monkeypatch):
    result = regard("plan", "demo")
    assert "Not known until a few steps are timed here (--device cpu, --device cuda)" in result.out
    assert not any(unit in result.out for unit in (" seconds", " minutes", " hours"))
    assert json.loads(regard("plan", "demo", "--json").out)["times"] == []
    monkeypatch.setattr(planning, "tokens_a_second", lambda *_: 1000.0)
    (time,) = json.loads(regard("plan", "demo", "--json", "--device", "cpu").out)["times"]
    assert time["how"] == "1,000 target tokens/s measured here"


def test_what_train_would_choose_is_planned(tmp_path):
    words = [f"{a}{b}{c}" for a in "bcd" for b in "aeiou" for c in "lmnrst"]
    (tmp_path / "p.tsv").write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in words))
    (tmp_path / "s").write_text("".join(f"{word}\n" for word in words))
    (tmp_path / "t").write_text("".join(f"{' '.join(word.upper())}\n" for word in words))
    code, out, err = regard("plan", "--pairs", tmp_path / "p.tsv", "training.updates=7", "--json")
    found = json.loads(out)
    assert (code, found["recipe"], found["updates"]) == (0, "chosen from the data", 7)
    assert found["lengths"]["source"] == 4  # letters and the end mark
    assert "source as characters" in err
    apart = regard("plan", "--source", tmp_path / "s", "--target", tmp_path / "t", "training.updates=7", "--json")
    assert apart.out == out
    assert "give --source and --target, or --pairs" in refused("plan")


class TaggerConfig(Section):
    columns: ClassVar[dict[str, str]] = {"source": "text", "target": "tags"}
    copies_words: ClassVar[bool] = False
    kind: Literal["made_up"] = "made_up"


class Tagger(Model):
    """softmax(W x) at every word; or at the mean of them, where a row has one label."""

    Config, writes = TaggerConfig, "target"

    def __init__(self, config, source, target):
        super().__init__()
        self.embed, self.output = nn.Embedding(source.sizes[0], 6), nn.Linear(6, target.sizes[0] + 1)

    def loss(self, batch, options=PLAIN):
        states, target = self.embed(batch["source"].values), batch["target"].values
        states = states.mean(1) if target.ndim == 1 else states[:, : target.shape[1]]
        total = nn.functional.cross_entropy(self.output(states).flatten(0, -2), target.flatten(), reduction="sum")
        return Loss(total, {"loss": total.detach()}, (target != 0).sum())

    def part_names(self, options):
        return ("loss",)


@pytest.mark.parametrize(("kind", "target"), [("tags", 8), ("label", 1)])
def test_any_shape_of_model_is_planned(kind, target, monkeypatch):
    """What is written is as long as its field says, whatever length is asked for."""
    monkeypatch.setitem(MODELS, "made_up", Tagger)
    data = {"fields": {"target": {"kind": kind}}, "tokenizer": {"size": 90}, "batch_tokens": 90}
    recipe = Recipe.model_validate({"model": {"kind": "made_up"}, "data": data, "training": {"updates": 3}})
    found = plan("mine", recipe, source=9, target=7)
    assert found.measured.lengths == (9, target)
    assert found.cost.parameters == {"embeddings": 90 * 6, "output": (6 + 1) * 9}
    assert found.cost.operations == {"output": 2 * 6 * 9}
    assert found.tokens == 3 * 10 * target
    shapes = shapes_of(recipe.data, configure(recipe.model))
    assert rate.tokens_a_second({"kind": "made_up"}, shapes, found.measured.lengths, 90, recipe.training, "cpu") > 0


def test_images_of_unknown_size_are_refused():
    with pytest.raises(UserError, match=r"data\.fields\.source\.height"):
        shapes_of(Data(fields={"source": {"kind": "image"}}), configure({}))
    shapes = shapes_of(Data(fields={"source": {"kind": "image", "height": 8, "width": 4}}), configure({}))
    assert shapes["source"] == ("image", (8, 4, 1))


def test_vectors_and_images_are_planned():
    side = {"kind": "transformer", "hidden_size": 8, "feedforward_size": 12, "layers": 1, "attention": {"heads": 2}}
    for shape, positions in ((Shape("vectors", (5,)), LENGTHS.source), (Shape("image", (8, 4, 1)), 2)):
        way = {"vectors": "features", "image": "patches"}[shape.kind]
        section = {"encoder": {**side, "input": {"kind": way}}, "decoder": side}
        cost = cost_of(section, {**WORDS, "source": shape}, LENGTHS, "cpu")
        assert cost.operations["encoder.feed-forward"] == 2 * 2 * 8 * 12 * positions / LENGTHS.target


def names_of_nn():
    """Every name of every module of regard.nn, and every entry of their tables."""
    modules = {name: vars(module) for name, module in sys.modules.items() if name.startswith("regard.nn")}
    flat = {(where, name): value for where, names in modules.items() for name, value in names.items()}
    tables = {
        (*key, entry): one
        for key, value in flat.items()
        if key[1].isupper() and isinstance(value, dict)
        for entry, one in value.items()
    }
    return {key: id(value) for key, value in {**flat, **tables}.items()}


def test_nothing_is_replaced_while_a_plan_is_made():
    batch = pairs(SECTIONS["transformer-experts"])
    outlined(SECTIONS["transformer-experts"], "cuda")  # modules are imported
    before = names_of_nn()
    with Drawing("cuda") as drawing:
        operations_of(drawing, drawn(drawing, configure(SECTIONS["transformer-experts"]), WORDS), batch)
        assert names_of_nn() == before


def test_errors_are_for_people():
    assert "did you mean 'vaswani2017-base'" in refused("plan", "vaswani2017-bas")
    assert "choose from cpu, cuda" in refused("plan", "demo", "--device", "tpu")
    assert "data.batch_tokens" in refused("plan", "demo", "--source-length", "5000")
    assert "unknown key" in refused("plan", "demo", "training.update=1")


def test_recipes_of_the_lecture_are_there():
    assert LECTURE.keys() <= built_in().keys()
