"""What a callback is told while outputs are written, and how it ends them."""

import math
import threading

import pytest
import torch
from bounded import bounded
from tiny import FEW, tiny

from regard.data.fields import texts
from regard.data.tokenizers import END, train_tokenizer
from regard.decoding.beam import beam_search
from regard.decoding.generator import TrainedGenerator
from regard.decoding.sampling import Sampling
from regard.decoding.streaming import PartialOutput, watcher
from regard.errors import UserError
from regard.models.directory import Bundle
from regard.models.interface import Step
from regard.recipe import Decoding, Tokenizer

TEXTS = ["a b c", "c", "", "b a b c a", "a a", "c b a c"]
WAYS = {
    "greedy": lambda model, **more: [[found[0]] if found else [] for found in model.search(TEXTS, beam=1, **more)],
    "beam": lambda model, **more: [found[:1] for found in model.search(TEXTS, beam=3, **more)],
    "sample": lambda model, **more: model.sample(TEXTS, 3, **more),
}


@pytest.fixture(params=[4096, 30])
def trained(request):
    """One batch, or several."""
    source, target = (train_tokenizer(Tokenizer(kind="word"), [side]) for side in ("a b c", "x y z"))
    model = tiny(FEW["gru-additive-into_cell"], vocabulary=len(target), scale=2.0)
    model.decoder.output.bias.data[END] += 1
    return TrainedGenerator(
        Bundle(
            model,
            texts(source, target),
            Decoding(length_penalty=0.5, max_length=9, batch_tokens=request.param),
        )
    )


@pytest.mark.parametrize("way", WAYS)
def test_every_output_is_told_step_by_step_until_it_is_finished(trained, way):
    told: list[PartialOutput] = []
    found = WAYS[way](trained, on_step=told.append)
    assert found == WAYS[way](trained)
    for row, outputs in enumerate(found):
        for sample, output in enumerate(outputs):
            mine = [one for one in told if (one.row, one.sample) == (row, sample)]
            assert [one.finished for one in mine] == [False] * (len(mine) - 1) + [True]
            assert (mine[-1].text, mine[-1].tokens) == (output.text, output.tokens)
            assert mine[-1].log_prob == pytest.approx(output.log_prob, abs=1e-5)
            if way != "beam":  # whose best hypothesis may be another at every step
                assert [one.tokens for one in mine[:-1]] == [output.tokens[:size] for size in range(1, len(mine))]
                assert len(mine) in (len(output.tokens), len(output.tokens) + 1)
            assert all(one.text == trained.target.decode(one.tokens) for one in mine)
    assert {one.row for one in told} == {0, 1, 3, 4, 5}  # an empty text is not searched for


@pytest.mark.parametrize("way", WAYS)
def test_an_output_that_is_told_to_end_ends_as_it_stands(trained, way):
    told, trained.model.decoder.output.bias.data[END] = [], -1e4  # all would go on to their limit

    def on_step(one):
        told.append(one)
        return False if one.row == 3 and len(one.tokens) >= 2 else None

    free, found = WAYS[way](trained), WAYS[way](trained, on_step=on_step)
    for sample, output in enumerate(found[3]):
        *_, last = (one for one in told if (one.row, one.sample) == (3, sample))
        assert last.tokens == output.tokens
        assert (len(output.tokens), len(free[3][sample].tokens)) == (2, 9)
    assert found[:3] + found[4:] == free[:3] + free[4:]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_callback_raises_stops_everything_and_breaks_nothing(trained, way):
    told, before = [], WAYS[way](trained)

    def on_step(one):
        told.append(one)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        WAYS[way](trained, on_step=on_step)
    assert len(told) == 1
    assert WAYS[way](trained) == before


def test_outputs_of_a_generation_are_told_too(trained):
    told = {}
    assert trained.generate(TEXTS, beam=2, on_step=lambda one: told.update({one.row: one.text})) == [
        told.get(row, "") for row in range(len(TEXTS))
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),  # chances of the next word after 0, 1 and the start (2); 3 ends
    [
        ([[0.25, 0.25, 0.0, 0.5], [0.05, 0.05, 0.0, 0.9], [0.6, 0.4, 0.0, 0.0]], [([0], 0.6, True), ([1, 3], 0.36, False)]),
        ([[0.05, 0.05, 0.0, 0.9], [0.25] * 4, [0.6, 0.0, 0.0, 0.4]], [([0], 0.6, True), ([0, 3], 0.54, False)]),
        ([[0.5, 0.2, 0.0, 0.3], [0.25] * 4, [0.4, 0.0, 0.0, 0.6]], [([3], 0.6, True), ([3, 3], 0.6, False)]),
    ],
)
def test_a_beam_tells_its_best_hypothesis_whether_it_is_open_or_closed(rows, expected):
    told, table = [], torch.tensor([*rows, [0.25] * 4]).log()

    def tell(sample, tokens, log_prob, going):
        told.append((tokens, pytest.approx(math.exp(log_prob)), going))
        return going

    given = bounded(lambda words, state: Step(table[words], None, state), torch.zeros(1, 1), [2])
    beam_search(*given, width=2, end=3, watch=watcher([tell], 1))
    assert told == expected


STREAMS = {
    "greedy": lambda model, texts: (model.stream(texts, beam=1), model.search(texts, beam=1)),
    "beam": lambda model, texts: (model.stream(texts, beam=3), model.search(texts, beam=3)),
    "sample": lambda model, texts: (model.stream(texts, beam=2, sampling=Sampling()), model.sample(texts, 2)),
}


@pytest.mark.parametrize("way", STREAMS)
def test_a_stream_yields_what_a_callback_is_told(trained, way):
    stream, found = STREAMS[way](trained, TEXTS)
    last = {(one.row, one.sample): one for one in stream}
    expected = {
        (row, at): one for row, each in enumerate(found) for at, one in enumerate(each if way == "sample" else each[:1])
    }
    assert {key: one.text for key, one in last.items()} == {key: one.text for key, one in expected.items()}
    assert all(one.finished for one in last.values())
    told = []
    trained.search("a b c", beam=1, on_step=told.append)
    assert list(trained.stream("a b c", beam=1)) == told
    assert list(trained.stream("")) == []


@pytest.mark.parametrize("way", STREAMS)
def test_whoever_stops_asking_ends_the_search(trained, way, monkeypatch):
    """The search waits for them: no more than one step is taken ahead, and its thread is gone."""
    trained.model.decoder.output.bias.data[END] = -1e4
    before, steps = threading.active_count(), []
    original = TrainedGenerator.tell

    def tell(self, on_step, row, offer):
        return original(self, lambda one: steps.append(one) or on_step(one), row, offer)

    monkeypatch.setattr(TrainedGenerator, "tell", tell)
    stream, _ = STREAMS[way](trained, "a b c")
    steps.clear()
    for _ in range(3):
        next(stream)
    assert len(steps) <= 5  # asked for, in the queue, and waiting to go there
    stream.close()
    assert threading.active_count() == before
    assert max(len(one.tokens) for one in steps) < 9


def test_what_goes_wrong_in_a_stream_is_raised_where_it_is_asked_for(trained, monkeypatch):
    with pytest.raises(UserError, match=r"decoding\.beam"):
        trained.stream("a", beam=0)
    monkeypatch.setattr(TrainedGenerator, "read", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(trained.stream("a"))
