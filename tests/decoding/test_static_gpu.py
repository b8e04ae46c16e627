"""decoding.cache=static on a GPU: strides replayed as graphs, strides launched step by step, and growing tensors."""

import pytest
import torch
from test_static import TEXTS, TWO, in_use, reader_of_images, same, same_of_images, search_of

from regard.decoding import slots
from regard.nn.graphs import no_waiting
from regard.nn.kernels.steps import early

pytestmark = pytest.mark.gpu
MORE = ["alone-two-way", "transformer-positions-rotary", "convolutional-convs2s", "recurrent-lstm-general-input_feeding"]
MORE += ["transformer-positions-learned", "transformer-norm-rms-post", "transformer-feedforward-gelu"]


def on_gpu(name, dtype=torch.float32):
    return in_use(name, device="cuda", dtype=dtype)


@pytest.mark.parametrize("name", [*TWO, *MORE])
@pytest.mark.parametrize("beam", [1, 4])
def test_replayed_equals_launched_equals_growing(name, beam, monkeypatch):
    trained = on_gpu(name)
    for _ in range(3):  # shapes are recorded once they have come before
        replayed = same(trained, beam=beam)
    search = trained.slotted.advance
    assert not search.refused
    assert search.recordings
    monkeypatch.setattr(slots.Recorded, "due", lambda *given: False)
    trained.slotted = None
    launched = same(trained, beam=beam)
    assert [[one.tokens for one in each] for each in launched] == [[one.tokens for one in each] for each in replayed]


@pytest.mark.parametrize("name", TWO)
def test_graphs_read_weights_where_they_lie(name):
    """As training moves them between validations."""
    trained = on_gpu(name)
    for _ in range(4):
        same(trained, beam=3)
        for parameter in trained.model.parameters():
            parameter.data.mul_(0.97)
    assert trained.slotted.advance.recordings


@pytest.mark.parametrize("beam", [1, 3])
def test_a_replay_does_not_wait(beam):
    trained = on_gpu(TWO[0])
    search = search_of(trained, beam=beam)
    sources = trained.encoded("source", ["abca", "b"])[0]
    with torch.inference_mode():
        given = trained.encode_wide(sources, search.strides.settings, 16, [0, 1])
        going = search.strides.begin(given, 32)
        for _ in range(3):
            going = search.advance(given, going, 4, 32)
        with no_waiting():
            search.advance(given, going, 4, 32)
    assert search.advance.recordings


@pytest.mark.parametrize("name", TWO)
def test_bfloat16_is_close(name):
    """The first four steps, before which no other word is likely to have been chosen."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        trained = on_gpu(name, dtype)
        found.append([trained.search(TEXTS, cache="static", beam=1, max_length=4) for _ in range(3)][-1])
    pairs = [(one[0], other[0]) for one, other in zip(*found, strict=True)]
    alike = [(one.log_prob, other.log_prob) for one, other in pairs if one.tokens == other.tokens]
    assert len(alike) >= len(pairs) // 2
    torch.testing.assert_close(*(torch.tensor(side) for side in zip(*alike, strict=True)), atol=0.1, rtol=0.05)


def test_many_sentences_and_long_outputs():
    """Slots that are filled again while rooms grow, in bfloat16 too: every output is there, in its order."""
    torch.manual_seed(0)
    lines = ["".join("abcde"[at] for at in torch.randint(5, (int(length),))) for length in torch.randint(1, 30, (300,))]
    trained = on_gpu(TWO[0])
    same(trained, lines, beam=2, batch_tokens=4096, max_ratio=4.0, max_length=90)
    trained.model.to(torch.bfloat16)
    found = trained.search(lines, cache="static", beam=2, batch_tokens=4096, max_ratio=4.0, max_length=90)
    assert all(found)


@pytest.mark.parametrize("beam", [1, 3])
def test_auto_is_static_on_a_gpu_by_our_kernels(beam):
    """And encoders are replayed, until what was recorded is given back."""
    trained = on_gpu(TWO[0])
    for _ in range(3):
        found = [[one.tokens for one in each] for each in trained.search(TEXTS[:8], beam=beam)]
    assert found == [[one.tokens for one in each] for each in trained.search(TEXTS[:8], beam=beam, cache="dynamic")]
    assert trained.slotted.strides.fused is not None
    assert trained.slotted.encoding.recordings
    assert not trained.slotted.encoding.refused
    trained.release()
    assert [[one.tokens for one in each] for each in trained.search(TEXTS[:8], beam=beam)] == found


@pytest.mark.parametrize("beam", [1, 3])
def test_one_sentence_and_many_write_alike(beam):
    """Few rows and many are multiplied by other kernels."""
    trained = on_gpu(TWO[0])
    lines = ["".join("abcde"[at] for at in torch.randint(5, (7,))) for _ in range(100)]
    for _ in range(2):
        many = trained.search(lines, beam=beam, batch_tokens=1 << 16)
    alone = [trained.search(line, beam=beam) for line in lines[:10]]
    assert [[one.tokens for one in each] for each in alone] == [[one.tokens for one in each] for each in many[:10]]


@pytest.mark.parametrize("beam", [1, 5])
def test_long_outputs_of_images(beam):
    """Where hardly an output ends, and there are more images than slots."""
    trained, images = reader_of_images("cuda", torch.float32)
    for _ in range(3):
        assert max(same_of_images(trained, images, beam=beam)) == 120
    assert trained.slotted.strides.fused is not None
    assert trained.slotted.advance.recordings


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("beam", "lines"), [(1, 1), (2, 2), (1, 8), (4, 2)])
def test_early_launches_change_nothing(beam, lines, dtype, monkeypatch):
    """Replayed and launched."""
    outputs = []
    for rows in (0, early.ROWS):
        monkeypatch.setattr(early, "ROWS", rows)
        trained = on_gpu(TWO[0], dtype)
        for _ in range(5):
            found = trained.search(["abcdeab"] * lines, beam=beam, min_length=20)
            outputs.append([(one.tokens, one.log_prob) for each in found for one in each])
    for one in outputs:
        assert [tokens for tokens, _ in one] == [tokens for tokens, _ in outputs[0]]
        assert [log_prob for _, log_prob in one] == pytest.approx([log_prob for _, log_prob in outputs[0]], rel=1e-3)
