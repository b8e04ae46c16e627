"""decoding.cache=static: the outputs of searches whose tensors grow, in shapes that stay, with no question to the device."""

import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from kinds import KINDS, small
from tiny import FEW, SETTINGS, SOON, tiny

from regard.data.fields import Text, texts
from regard.data.pictures import Image
from regard.data.tokenizers import END, CharacterTokenizer
from regard.decoding import recorded, slots
from regard.decoding.ensemble import ensemble
from regard.decoding.files import answered
from regard.decoding.generator import TrainedGenerator
from regard.decoding.recorded import Recorded, Recording, copies_of, copy_all
from regard.decoding.rules import RULES, must
from regard.decoding.sampling import Sampling
from regard.decoding.slots import SlotSearch, Waiting
from regard.decoding.strides import Strides
from regard.decoding.trained import Answers
from regard.errors import UserError
from regard.models import build, configure
from regard.models.directory import Bundle
from regard.nn.state import tensors_in, with_tensors
from regard.recipe import Decoding

TEXTS = ["abcab", "c", "deb", "ab", "eddab", "d", "aabb", "bc", "cab"]
WRITING = [
    name
    for name, values in KINDS.items()
    if values.get("kind", "sequence_to_sequence") in ("sequence_to_sequence", "decoder_alone")
]
GROWING = ("attends", "deepatt-feeding", "tape", "tanh_attention")  # cells and connections that attend to their earlier states
TWO = ["transformer-positions-sinusoid", "recurrent-gru-additive-into_cell"]


def in_use(name, scale=1.5, device="cpu", dtype=torch.float64):
    torch.manual_seed(5)
    recurrent = name.removeprefix("recurrent-")
    model = tiny(SETTINGS[recurrent], scale=scale) if recurrent in SETTINGS else small(KINDS[name], scale=scale)
    fields = texts(*(CharacterTokenizer(list("abcde")) for _ in range(2)))
    return TrainedGenerator(Bundle(model.to(dtype), fields, Decoding(batch_tokens=60, max_length=24)), device)


def same(trained, sources=TEXTS, **changes):
    """Tokens, ends and the order of hypotheses equal; scores but for rounding, for sums are as long as caches."""
    expected, found = (trained.search(sources, cache=cache, **changes) for cache in ("dynamic", "static"))
    for one, other in zip(expected, found, strict=True):
        assert [(each.tokens, each.end) for each in other] == [(each.tokens, each.end) for each in one]
        for field in ("score", "log_prob"):
            torch.testing.assert_close(
                *([getattr(each, field) for each in side] for side in (other, one)), atol=1e-4, rtol=1e-4
            )
    return found


def test_what_is_written_of_a_picture_is_as_long_as_max_length(tmp_path):
    """A picture is one thing, and no text of one token whose output could not be long."""
    torch.manual_seed(5)
    half = {"kind": "transformer", "hidden_size": 8, "feedforward_size": 8, "layers": 1, "attention": {"heads": 2}}
    reads = {**half, "input": {"kind": "patches", "side": 2}}
    field, target = Image(4, 6, 1), Text(CharacterTokenizer(list("abcde")))
    model = build(configure({"encoder": reads, "decoder": half}), field.shape, target.shape).double()
    with torch.no_grad():
        model.decoder.output.weight[END] = 0.0  # some other word is always likelier: outputs end where they must
    numpy.save(tmp_path / "images.npy", numpy.random.default_rng(1).integers(0, 255, (3, 4, 6), numpy.uint8))
    bundle = Bundle(model, {"source": field, "target": target}, Decoding(batch_tokens=60, max_length=24))
    trained, sources = TrainedGenerator(bundle, "cpu"), [f"{tmp_path}/images.npy#{row}" for row in (1, 2, 3)]
    for beam in (1, 3):
        same(trained, sources, beam=beam)
    assert {len(one[0].tokens) for one in trained.search(sources, cache="static", beam=1)} == {24}


def grows(name):
    return any(part in name for part in GROWING)


SOME = {*FEW, *sorted(SOON)[::4]}  # of the recurrent ones, what `make test` takes
NAMES = [*WRITING, *(f"recurrent-{name}" for name in SETTINGS if name in SOME)]
NAMES += [pytest.param(f"recurrent-{name}", marks=pytest.mark.slow) for name in sorted(SOON) if name not in SOME]


@pytest.mark.parametrize("name", NAMES)
def test_every_model_writes_the_same_or_says_why_not(name):
    trained = in_use(name)
    if grows(name):
        with pytest.raises(UserError, match="cache=static is for States that keep their shape"):
            trained.search(TEXTS[:2], cache="static", beam=2)
        return
    same(trained, beam=1)
    same(trained, beam=4, length_penalty=0.6)


ALLOWED = [
    {"length_penalty": 0.0},
    {"length_penalty": 1.0, "length_norm": "gnmt"},
    {"coverage_penalty": 0.3},
    {"min_length": 4},
    {"min_ratio": 2.0, "max_ratio": 2.5},
    {"max_length": 3},
    {"stop": "first"},
    {"stop": "last", "max_length": 9},
]


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("beam", [1, 4, 5])
@pytest.mark.parametrize("changes", ALLOWED, ids=lambda changes: "-".join(map(str, changes)))
def test_every_penalty_and_rule_that_is_allowed(name, beam, changes):
    same(in_use(name), beam=beam, **changes)


@pytest.mark.parametrize("name", TWO)
def test_groups_of_a_diverse_beam(name):
    same(in_use(name), beam=4, groups=2, diversity=0.7)


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("beam", [1, 3])
def test_outputs_do_not_depend_on_how_many_are_searched_at_once(name, beam):
    """One slot, a few that are filled again, and one for every text."""
    trained = in_use(name)
    few, some, many = (trained.search(TEXTS, cache="static", beam=beam, batch_tokens=size) for size in (1, 60, 4096))
    for other in (few, many):
        assert [[one.tokens for one in each] for each in other] == [[one.tokens for one in each] for each in some]
    turned = trained.search(TEXTS[::-1], cache="static", beam=beam)[::-1]
    assert [[one.tokens for one in each] for each in turned] == [[one.tokens for one in each] for each in some]


@pytest.mark.parametrize("name", ["transformer-positions-rotary", "transformer-own-scope-compressed", "alone-two-way"])
@pytest.mark.parametrize("beam", [1, 3])
def test_caches_get_more_room_for_long_outputs(name, beam):
    """From 32 places to 64 and to as many as there may be."""
    trained = in_use(name)
    trained.model.decoder.output.weight.data[3] = -5.0  # END is not written soon
    rooms = []
    strides = Strides.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Strides, "__call__", lambda self, *given: rooms.append(given[-1]) or strides(self, *given))
        found = same(trained, TEXTS[:3], beam=beam, min_length=66, max_length=70, max_ratio=100.0)
    assert sorted(set(rooms)) == [32, 64, 70]
    assert min(len(one.tokens) for each in found for one in each) >= 66


IMAGES = {
    "encoder": {
        "kind": "transformer", "hidden_size": 8, "feedforward_size": 12, "layers": 1, "attention": {"heads": 2},
        "norm_place": "pre",
        "input": {"kind": "convolutions", "channels": [4, 6], "strides": [2, [2, 1]], "positions": "sinusoid"},
    },
    "decoder": {
        "kind": "transformer", "hidden_size": 8, "feedforward_size": 12, "layers": 2, "attention": {"heads": 2},
        "cross_attention": {"heads": 2}, "norm_place": "pre",
    },
}  # fmt: skip


def reader_of_images(device="cpu", dtype=torch.float64):
    """A model that hardly ever writes the end mark, and images as files give them."""
    torch.manual_seed(5)
    field, target = Image(12, 16, 1), CharacterTokenizer(list("abcdefghij"))
    model = build(configure(IMAGES), field.shape, len(target)).eval().to(dtype)
    for name, parameter in model.named_parameters():
        parameter.data.mul_(1.0 if "norm" in name else 2.0)
    model.decoder.output.weight.data[END] = 0.0
    decoding = Decoding(batch_tokens=60, max_length=120)
    trained = TrainedGenerator(Bundle(model, {"source": field, "target": Text(target)}, decoding), device)
    return trained, [*torch.randint(0, 256, (9, 1, *field.features), dtype=torch.uint8).numpy()]


def same_of_images(trained, images, **changes):
    """Limits are those of the rule: a source without a length allows outputs of any."""
    expected, found = (
        trained.search_batch(images, trained.settings(cache=cache, **changes)) for cache in ("dynamic", "static")
    )
    assert all(found)
    assert [[(one.tokens, one.end) for one in each] for each in found] == [
        [(one.tokens, one.end) for one in each] for each in expected
    ]
    return [len(one.tokens) for each in found for one in each]


@pytest.mark.parametrize("beam", [1, 5])
def test_outputs_of_images_are_as_long_as_settings_say(beam):
    """Where hardly an output ends, and there are more images than slots."""
    trained, images = reader_of_images()
    lengths = same_of_images(trained, images, beam=beam)
    assert max(lengths) == 120
    assert sorted(lengths)[len(lengths) // 2] > 100


def search_of(trained, **changes):
    return trained.slot_search(trained.settings(cache="static", **changes))


def test_sentences_are_taken_in_as_others_are_finished():
    trained, encoded = in_use(TWO[0]), []
    limits = [2, 17, 3, 5, 4, 9, 2, 2]
    search = search_of(trained, beam=1, min_length=20)
    sources = trained.encoded("source", ["abc"] * len(limits))[0]

    def encode(rows):
        encoded.append(list(rows))
        return trained.encode_wide(sources, search.strides.settings, 16, rows)

    with torch.inference_mode():
        search([Waiting(row, limit) for row, limit in enumerate(limits)], 4, encode)
    assert encoded[0] == [0, 1, 2, 3]
    assert [row for rows in encoded for row in rows] == list(range(8))
    assert len(encoded) > 2  # the long one goes on beside others


@pytest.mark.parametrize("beam", [1, 3])
def test_what_is_finished_is_read_without_its_state(beam, monkeypatch):
    """Caches are large: they are moved for those that go on, and where all are finished, nothing is."""
    trained, moved = in_use(TWO[0]), []
    select = slots.select_sentences
    monkeypatch.setattr(slots, "select_sentences", lambda tree, *given: moved.append(tree) or select(tree, *given))
    trained.search(["abc"] * 4, cache="static", beam=beam, batch_tokens=4096, min_length=5, max_length=6)
    assert not moved
    trained.search(["abc"] * 3, cache="static", beam=beam, batch_tokens=4096, min_length=5, max_length=6)
    assert [getattr(tree, "state", "all") for tree in moved] == ["all", None]  # a spare slot is filled; three of four are read


def test_spare_slots_repeat_a_sentence():
    trained = in_use(TWO[0])
    search, sources = search_of(trained, beam=2), trained.encoded("source", ["abc", "b", "d"])[0]

    def encode(rows):
        return trained.encode_wide(sources, search.strides.settings, 16, rows)

    with torch.inference_mode():
        filled = search.filled(slots.NOBODY, [Waiting(row, 9) for row in range(3)], 8, encode)
    assert filled.number == 4
    assert filled.given.lengths.tolist() == [4, 2, 2, 4]


def test_those_that_go_on_move_together(monkeypatch):
    """Of eight slots, soon four, two, one."""
    trained, numbers = in_use(TWO[0]), []
    stride = SlotSearch.stride
    monkeypatch.setattr(SlotSearch, "stride", lambda self, one: numbers.append(one.number) or stride(self, one))
    same(trained, ["abcdeabcdeabc", "abcdeabc", "abcde", "abc", "ab", "a", "b", "c"], beam=1, batch_tokens=4096, max_ratio=1.0,
         min_length=11)  # fmt: skip
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] == 8
    assert len(set(numbers)) > 1
    assert all(number & (number - 1) == 0 for number in numbers)


# -- what a stride asks the device --

ASKS = {"_local_scalar_dense", "is_nonzero", "item", "nonzero", "masked_select", "equal", "lift_fresh", "lift_fresh_copy"}
# Places that ask on a CPU alone: they look at where their tensors are first (the last fills with a number, and asks nothing)
ON_A_CPU = {("additive.py", "too_large"), ("attend.py", "library"), ("grouped.py", "forward")}


class Asked(TorchDispatchMode):
    """Operators that give the host a value, or take one from it, and which of our functions they were called by."""

    def __init__(self):
        super().__init__()
        self.found, self.operators = Counter(), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.removeprefix("aten::")
        by_mask = name == "index" and any(one is not None and one.dtype == torch.bool for one in args[1])
        self.operators += 1
        if name in ASKS or by_mask or str(function) == "aten.repeat_interleave.Tensor":
            frames = [one for one in traceback.extract_stack() if "/regard/" in one.filename]
            self.found[Path(frames[-1].filename).name, frames[-1].name] += 1
        return function(*args, **(kwargs or {}))


def one_stride(trained, **changes):
    search = search_of(trained, **changes)
    sources = trained.encoded("source", ["abca", "b"])[0]
    given = trained.encode_wide(sources, search.strides.settings, trained.width(sources[0]), [0, 1])
    before = search.strides.begin(given, 8)
    shapes = [one.shape for one in tensors_in(before)]
    with Asked() as asked:
        after = search.strides(given, before, 2, 8)
    return asked, shapes, [one.shape for one in tensors_in(after)]


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_a_stride_asks_the_device_nothing_and_keeps_every_shape(name):
    trained = in_use(name)
    attends = {"coverage_penalty": 0.3} if trained.has_attention else {}
    for changes in ({"beam": 1, "min_length": 2}, {"beam": 4, "groups": 2, **attends}):
        asked, before, after = one_stride(trained, **changes)
        assert set(asked.found) <= ON_A_CPU
        assert (before == after) != grows(name)


@torch.inference_mode()
def test_searches_in_growing_tensors_do_ask():
    """So that what is counted above can be found at all."""
    trained = in_use(TWO[1])
    with Asked() as asked:
        trained.search_batch(trained.encoded("source", ["abca"])[0], trained.settings(beam=2))
    assert ("greedy.py", "searched") in asked.found


def test_each_place_that_asks_on_a_cpu_is_there():
    """Or it could be left out above."""
    found = set()
    for name in (*TWO, "experts-no-attention"):
        with torch.inference_mode():
            found |= set(one_stride(in_use(name), beam=1)[0].found)
    assert found == ON_A_CPU


# -- what is refused --


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"token_scores": True}, "token scores or alignments are told step by step; take cache=dynamic"),
        ({"alignment": True}, "token scores or alignments"),
        ({"on_step": lambda one: True}, "on_step are told step by step"),
        ({"constraints": [{"prefix": "a"}, None]}, "constraints"),
        ({"ban": ["a"]}, "constraints"),
        ({"no_repeat_ngram": 2}, "no_repeat_ngram looks at each word as it is written"),
        ({"repetition_penalty": 1.2}, "repetition_penalty looks at each word"),
        ({"cache": "sttic"}, "unknown cache 'sttic'; did you mean 'static'"),
    ],
)
def test_what_is_refused_is_told(given, told):
    with pytest.raises(UserError, match=told):
        in_use(TWO[1]).search(["ab", "c"], **{"cache": "static", "beam": 2, **given})


def test_samples_ensembles_and_copies_are_refused():
    trained = in_use(TWO[1])
    with pytest.raises(UserError, match="samples are told step by step"):
        trained.sample("ab", 2, Sampling(), cache="static")
    with pytest.raises(UserError, match="Ensemble has no State that keeps its shape"):
        ensemble([trained, trained]).search("ab", cache="static")
    trained.model.float()
    trained.use_engine("float32")
    same(trained, ["ab", "c"], beam=2)  # recurrent engines step as modules do
    transformer = in_use(TWO[0])
    transformer.model.float()
    transformer.use_engine("float32")
    with pytest.raises(UserError, match="TransformerDecoderEngine has no State that keeps its shape"):
        transformer.search("ab", cache="static")


def test_not_a_number_is_an_error():
    trained = in_use(TWO[0])
    trained.model.decoder.stack.layers[0].feedforward.down.weight.data[:] = float("nan")
    for beam in (1, 3):
        with pytest.raises(UserError, match="not-a-number"):
            trained.search("ab", cache="static", beam=beam)


def test_what_is_asked_of_the_model_and_of_words_does_not_grow_with_sentences(monkeypatch):
    """Its limits, and what every output must have."""
    trained, asked = in_use(TWO[0]), Counter()
    limits, phrases = type(trained.model).limits.fget, must.tokens_of
    monkeypatch.setattr(type(trained.model), "limits", property(lambda self: asked.update(["limits"]) or limits(self)))
    monkeypatch.setattr(must, "tokens_of", lambda *given: asked.update(["phrases"]) or phrases(*given))
    counts = []
    for many in (2, 2, 40):
        asked.clear()
        trained.search_batch([[5, 6]] * many, trained.settings(cache="static", beam=1, batch_tokens=4096))
        counts.append(dict(asked))
    assert counts[1] == counts[2]
    assert "phrases" not in counts[2]


def test_rules_say_whether_they_are_static():
    assert [name for name, rule in RULES.items() if rule.static] == ["max_length", "min_length"]


# -- graphs, with a stand-in for CUDA's --


class Replayed:
    """Computes again in the tensors that a graph would have, where it would leave them."""

    def __init__(self, stride, own, after):
        self.stride, self.own, self.after = stride, own, after

    def replay(self):
        copy_all(tensors_in(self.after), tensors_in(self.stride(*self.own)))


class Played(Recorded):
    played = 0

    def due(self, key, going):
        self.waited[key] += 1
        return self.waited[key] > recorded.AFTER

    def record(self, key, given, going, steps, room):
        sides = copies_of(given), copies_of(going)
        own = with_tensors(given, sides[0]), with_tensors(going, sides[1]), steps, room
        after = self.stride(*own)
        self.recordings[key] = Recording(Replayed(self.stride, own, after), *sides, after)
        type(self).played += 1
        return True


@pytest.mark.parametrize("name", [*TWO, "alone-two-way", "transformer-own-scope-compressed", "recurrent-lstm-none"])
@pytest.mark.parametrize("beam", [1, 3])
def test_what_lies_in_the_tensors_of_graphs_is_never_mixed_up(name, beam, monkeypatch):
    """As strides are replayed, sentences come and go, and another search follows."""
    monkeypatch.setattr(slots, "Recorded", Played)
    monkeypatch.setitem(slots.BEHIND, "cpu", 1)
    trained, before = in_use(name), Played.played
    for sources in (TEXTS, TEXTS[::-1], ["abcdeabcdeabcdeabcde", *TEXTS[2:5]], TEXTS):
        same(trained, sources, beam=beam)
        for parameter in trained.model.parameters():  # as training moves them between validations
            parameter.data.mul_(0.97)
    assert Played.played > before


class Lines(NamedTuple):
    items: list


def test_one_process_answers_whole_windows_at_once():
    """Each text once; several processes share what windows are cut into."""
    asked = []
    items = [(str(number % 300),) for number in range(600)]

    def answer(some):
        asked.append(len(some))
        return Answers([int(text) for (text,) in some], {})

    for whole, counts in ((True, [300]), (False, [38] * 7 + [34])):
        asked.clear()
        ((_, found),) = answered([Lines(items)], answer, whole=whole)
        assert found.results == [number % 300 for number in range(600)]
        assert asked == counts
