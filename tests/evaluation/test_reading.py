"""Which weights are read as an alignment: heads, steps, the choice among them, and where it is kept."""

import json

import numpy as np
import pytest
import torch
from tiny import tiny

from regard.data.fields import texts
from regard.data.links import parse_links
from regard.data.sealed import files_in, seal, verify
from regard.data.tokenizers import train_tokenizer
from regard.decoding.directions import Directions, agreed, symmetrised
from regard.decoding.generator import TrainedGenerator
from regard.decoding.reading import change_reading, readings
from regard.errors import DataError, UserError
from regard.evaluation.alignment import alignment_error_rate, choose_reading, read_gold, score_readings
from regard.models.directory import Bundle, Reading, load_model, save_model, store_reading
from regard.models.interface import Steps
from regard.models.limits import Limits
from regard.recipe import Decoding, Recipe, Tokenizer

HEADS = 3
PAIRS = [("a b c d", "w x y z"), ("c a", "y w"), ("b", "x"), ("d c b a b", "z y x w x"), ("", "w"), ("a", "")]
DIAGONAL = [parse_links(" ".join(f"{i}-{i}" for i in range(min(len(a.split()), len(b.split())))), "") for a, b in PAIRS]


class Looking(torch.nn.Module):
    """No model, but looks as one would give them: `weights(heads, steps, source)` for every row."""

    limits, has_attention, copies_words, regions = Limits(), True, False, None

    def __init__(self, weights):
        super().__init__()
        self.weights = weights

    def teacher_forced(self, batch, words, return_weights=False):
        assert return_weights
        source = batch["source"].values
        looks = self.weights(HEADS, words.shape[1], source.shape[1])
        rows = torch.from_numpy(looks).float().expand(len(source), *looks.shape)
        return Steps(torch.zeros(*words.shape, 1), rows)


def looking(weights, kind="word", **options):
    sides = (train_tokenizer(Tokenizer(kind=kind), [pair[side] for pair in PAIRS]) for side in (0, 1))
    return TrainedGenerator(Bundle(Looking(weights), texts(*sides), Decoding(**options)))


def some(heads, steps, source):
    """Whatever: but a number tells where it stood."""
    return np.random.default_rng(1).random((HEADS, 50, 50))[:heads, :steps, :source]


def planted(head, shift):
    """One head looks at the diagonal, at the step that writes a word or at the next; the others look elsewhere."""

    def weights(heads, steps, source):
        looks = np.zeros((heads, steps, source))
        looks[:, :, 0] = 0.5
        places = range(min(steps - shift, source))
        looks[head, [place + shift for place in places], places] = 0.8
        return looks

    return weights


@pytest.mark.parametrize("reading", readings(HEADS), ids=str)
def test_weights_are_those_of_the_head_and_the_step(reading):
    everything = some(HEADS, 50, 50)
    head = everything.mean(axis=0) if reading.head is None else everything[reading.head]
    for (source, target), found in zip(PAIRS, looking(some).align(PAIRS, reading), strict=True):
        rows = [head[step + reading.shift, : len(source.split())] for step in range(len(target.split()))]
        wanted = np.array(rows).reshape(len(target.split()), len(source.split()))
        np.testing.assert_allclose(found.weights, wanted, rtol=1e-6)


def test_without_another_reading_the_model_s_own_is_used():
    trained = looking(some, batch_tokens=8)
    trained.reading = Reading(head=2, shift=1)
    for found, wanted in zip(trained.align(PAIRS), trained.align(PAIRS, Reading(head=2, shift=1)), strict=True):
        np.testing.assert_array_equal(found.weights, wanted.weights)


def test_pieces_are_merged_after_the_shift():
    """`ab c` to `x y`, by characters (the blank belongs to the second word): words look where their shifted pieces look."""
    trained = looking(some, kind="character")
    (found,) = trained.align([("bb c", "x y")], Reading(head=1, shift=1))
    step = some(HEADS, 50, 50)[1]
    pieces = [step[1, :4], (step[2, :4] + step[3, :4]) / 2]
    wanted = [[piece[:2].sum(), piece[2:].sum()] for piece in pieces]
    np.testing.assert_allclose(found.weights, wanted, rtol=1e-6)


def test_blanks_are_pieces_of_no_word():
    found = looking(some, kind="character").align([("  ", "x y"), ("b", " "), (" b ", "x ")])
    assert [one.weights.shape for one in found] == [(2, 0), (0, 1), (1, 1)]
    assert [one.links for one in found] == [set(), set(), {(0, 0)}]


def test_all_readings_are_tried():
    assert [(one.head, one.shift) for one in readings(2)] == [(None, 0), (None, 1), (0, 0), (0, 1), (1, 0), (1, 1)]
    assert [(one.head, one.shift) for one in readings(1)] == [(None, 0), (None, 1)]  # one head is its own mean
    assert looking(some).num_heads == HEADS


@pytest.mark.parametrize(("head", "shift"), [(0, 0), (1, 1), (2, 0), (2, 1)])
def test_the_reading_with_the_lowest_error_rate_is_chosen(head, shift, monkeypatch):
    monkeypatch.setattr("regard.evaluation.alignment.BLOCK", 4)
    trained = looking(planted(head, shift))
    chosen = choose_reading(trained, PAIRS, DIAGONAL)
    assert chosen == Reading(head=head, shift=shift)
    rates = {way: alignment_error_rate([one.links for one in trained.align(PAIRS, way)], DIAGONAL) for way in readings(HEADS)}
    assert rates == score_readings(trained, PAIRS, DIAGONAL, readings(HEADS))
    assert rates[chosen].error_rate < min(rate.error_rate for way, rate in rates.items() if way != chosen)


def test_the_mean_is_chosen_where_no_head_is_right_alone():
    def weights(heads, steps, source):
        looks = np.full((heads, steps, source), 0.1)
        for place in range(min(steps, source)):  # each head is wrong in its own way, and nearly right
            looks[:, place, place] = 0.5
            for head in range(heads):
                looks[head, place, (place + 1 + head) % source] = 0.6
        return looks

    longest = [PAIRS[3]]
    assert choose_reading(looking(weights), longest, [DIAGONAL[3]]) == Reading()


def test_of_equals_the_first_is_chosen():
    assert choose_reading(looking(lambda *shape: np.ones(shape)), PAIRS, DIAGONAL) == Reading()


def test_a_head_that_is_not_there():
    with pytest.raises(UserError, match="no head 3: its 3 are counted from 0"):
        looking(some).align(PAIRS, Reading(head=3))


def test_readings_change_where_they_are_told():
    stored = Reading(head=2, shift=1)
    assert change_reading(stored, None, None) == stored
    assert change_reading(stored, 0, None) == Reading(head=0, shift=1)
    assert change_reading(stored, -1, 0) == Reading()


def both_ways():
    """A model, and one from its target to its source that looks elsewhere."""
    there, back = looking(some), looking(some)
    back.fields, back.reading = texts(there.target, there.source), Reading(head=2, shift=1)
    return there, back


def test_two_directions():
    there, back = both_ways()
    pairs = PAIRS[:4]
    forward = [one.links for one in there.align(pairs)]
    backward = [one.links for one in back.align([pair[::-1] for pair in pairs])]
    assert any((target, source) not in links for links in backward for source, target in links)
    found = Directions(there, back, symmetrised("intersection")).align(pairs)
    assert list(found) == ["forward", "backward", "both"]
    assert found["forward"] == forward
    assert found["backward"] == [{(source, target) for target, source in links} for links in backward]
    assert found["both"] == [one & other for one, other in zip(found["forward"], found["backward"], strict=True)]
    assert Directions(there).align(pairs) == {"forward": forward}
    with pytest.raises(UserError, match="unknown symmetrisation 'grow'; did you mean 'grow_diag'"):
        symmetrised("grow")


def test_two_directions_by_agreement():
    there, back = both_ways()
    found = Directions(there, back, agreed(0.5)).align(PAIRS)["both"]
    for links, one, other in zip(found, there.align(PAIRS), back.align([pair[::-1] for pair in PAIRS]), strict=True):
        both = np.sqrt(one.weights * other.weights.T)
        wanted = {(j, i) for i, j in np.argwhere(both >= 0.5) if both[i, j] in (both[i].max(), both[:, j].max())}
        assert links == wanted
    assert any(found)


def test_gold_that_does_not_fit_is_refused_with_its_place(tmp_path):
    path = tmp_path / "gold"
    for content, told in {
        "0-0\n": "1 lines of gold alignments for 2 pairs",
        "0?0\n0?0\n": "no sure link",
        "0-0\n1-0 0-2\n": ":2: the link 0-2 is beyond 2 source and 2 target words",
        "0-0\n2?1\n": ":2: the link 2-1 is beyond",
        "0-0\n0-0 x\n": ":2: 'x' is not a link",
    }.items():
        path.write_text(content)
        with pytest.raises((DataError, UserError)) as caught:
            read_gold(path, [("a b", "c"), ("a b", "c d")])
        assert str(caught.value).startswith(str(path))
        assert told in str(caught.value)
    path.write_text("0-0\n1-1 0?1\n")
    assert read_gold(path, [("a b", "c"), ("a b", "c d")]) == [parse_links("0-0", ""), parse_links("1-1 0?1", "")]


@pytest.fixture
def directory(tmp_path):
    """A model on disk, read by head 1."""
    setting = {"cell": "gru", "attention": {"score": "additive"}, "context": "into_cell"}
    sides = [train_tokenizer(Tokenizer(kind="word"), [pair[side] for pair in PAIRS]) for side in (0, 1)]
    sizes = {"embedding_size": 5, "layers": 2, "cell": "gru"}
    sections = {"encoder": {**sizes, "hidden_size": 4}, "decoder": {**sizes, "hidden_size": 8, **setting}}
    recipe = Recipe(model={"kind": "sequence_to_sequence", **sections})
    weights = tiny(setting, vocabulary=len(sides[0])).state_dict()
    save_model(tmp_path / "model", weights, recipe, texts(*sides), "card", Reading(head=1, shift=0))
    return tmp_path / "model"


def test_the_reading_is_kept_with_the_model(directory):
    assert load_model(directory).reading == Reading(head=1, shift=0)
    assert TrainedGenerator(load_model(directory)).reading == Reading(head=1, shift=0)


def test_another_reading_is_stored_and_nothing_else_is_changed(directory):
    before = {name: path.read_bytes() for name, path in files_in(directory)}
    facts = verify(directory)
    store_reading(directory.parent, Reading(shift=1))  # as of a run: its model is found
    assert verify(directory) == facts
    after = {name: path.read_bytes() for name, path in files_in(directory)}
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {
        "config.json", "manifest.json",
    }  # fmt: skip
    old, new = (json.loads(files["config.json"]) for files in (before, after))
    assert new == {**old, "reading": {"head": None, "shift": 1}}
    assert load_model(directory).reading == Reading(shift=1)
    assert [path.name for path in directory.parent.iterdir()] == ["model"]


def test_a_damaged_model_is_not_sealed_anew(directory):
    (directory / "README.md").write_text("another")
    with pytest.raises(UserError, match=r"README\.md: damaged"):
        store_reading(directory, Reading(shift=1))


def test_an_older_model_without_a_reading_loads(directory):
    config = json.loads((directory / "config.json").read_text())
    del config["reading"]
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "manifest.json").unlink()
    seal(directory, {"kind": "model"})
    assert load_model(directory).reading == Reading()
