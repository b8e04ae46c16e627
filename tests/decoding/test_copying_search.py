"""A model that copies, in use: words that nobody knows come out as they stand, as probable as the training loss says."""

import numpy as np
import pytest
import torch
from tiny import tiny

from regard.data.fields import texts
from regard.data.plan import BatchPlan
from regard.data.readers import BadRows
from regard.data.store import prepare
from regard.data.tokenizers import END, train_tokenizer
from regard.decoding.generator import TrainedGenerator
from regard.models.device import on_device
from regard.models.directory import Bundle
from regard.nn.copying import COPIES
from regard.recipe import Decoding, Pairs, Tokenizer
from regard.training.feed import StoreFeed
from regard.training.objective import Objective

SOURCES = ["a b c", "c Zaphod", "b Ford b Arthur a", "Ford", "c x a c"]
TARGETS = ["x y", "Zaphod z Trillian", "Arthur Ford x", "y x z", "x Ford"]
PAIRS = list(zip(SOURCES, TARGETS, strict=True))
SIZE = 7  # of both vocabularies: three words and the specials


@pytest.fixture(params=[(way, kind) for way in COPIES for kind in ("word", "character")], ids="-".join)
def trained(request):
    way, kind = request.param
    source, target = (train_tokenizer(Tokenizer(kind=kind, size=SIZE), [side]) for side in ("a b c", "x y z"))
    setting = {"cell": "gru", "attention": {"score": "additive"}, "context": "into_cell", "copy_words": way}
    model = tiny(setting, vocabulary=SIZE, scale=2.0)
    return TrainedGenerator(Bundle(model, texts(source, target), Decoding(beam=3, length_penalty=0.5)))


def copies_often(trained):
    bias = trained.model.decoder.output.bias.data
    bias[:] = -60.0
    bias[END] = 1.5  # most outputs end before their limit, whatever the seed
    return trained


@pytest.mark.parametrize("beam", [1, 3])
def test_words_outside_every_vocabulary_are_written(trained, beam):
    """Copying forced at every step, the best output is made of the source's own words, unknown ones among them."""
    trained.model.decoder.output.bias.data[:] = -1e3
    if hasattr(trained.model.decoder.copy_words, "project_gate"):
        trained.model.decoder.copy_words.project_gate.bias.data[:] = -1e3
    parted = str.split if trained.target.kind == "word" else set
    inputs = ["Zaphod Ford", "Arthur", "c Zaphod"]
    for text, (best, *_) in zip(inputs, trained.search(inputs, beam=beam), strict=True):
        limit = 3 * (len(trained.source.encode([text])[0]) + 1) + 10
        assert len(best.tokens) == limit
        assert set(parted(best.text)) <= set(parted(text))
        assert best.text == trained.target.decode(best.tokens, trained.offers([text])[0].extra)
        if text != "c Zaphod":  # no other words in it
            assert min(best.tokens) >= SIZE or trained.target.kind == "character"
            assert "⁇" in trained.target.decode(best.tokens)


def test_a_sentence_is_decoded_alike_alone_and_beside_others(trained):
    copies_often(trained)
    alone = [trained.search([text])[0] for text in SOURCES]
    for ours, theirs in zip(trained.search(SOURCES), alone, strict=True):
        assert [(one.text, one.tokens) for one in ours] == [(one.text, one.tokens) for one in theirs]
        assert [one.log_prob for one in ours] == pytest.approx([one.log_prob for one in theirs], abs=1e-4)


def test_what_is_found_is_as_probable_as_its_score_says(trained):
    copies_often(trained)
    limit = 3 * np.array([len(row) + 1 for row in trained.source.encode(SOURCES)]) + 10
    compared = 0
    for text, most, hypotheses in zip(SOURCES, limit, trained.search(SOURCES), strict=True):
        closed = [one for one in hypotheses if len(one.tokens) < most and trained.tokens([(text, one.text)])[1] == [one.tokens]]
        for one, likelihood in zip(closed, trained.score((text, one.text) for one in closed), strict=True):
            assert likelihood.log_prob == pytest.approx(one.log_prob, abs=1e-3)
            compared += bool(one.tokens)
    assert compared >= 2


def test_the_score_is_the_training_loss_on_stored_copies(trained, tmp_path):
    """Two ways through the code: log p of all words from the search's side, the chunked loss from the store's."""
    for name, lines in ("a", SOURCES), ("b", TARGETS):
        (tmp_path / name).write_text("\n".join(lines))
    pairs = Pairs(source=tmp_path / "a", target=tmp_path / "b")
    store = prepare(tmp_path / "s", pairs, trained.fields, max_length=50, bad_rows=BadRows("stop"), copying=True)
    plan = BatchPlan(store.lengths("source"), store.lengths("target"), 1000, 1)
    batch = on_device(StoreFeed(store, plan, "target").batch(plan.batch(0), 0), torch.device("cpu"))
    loss = Objective(trained.model, 0.0).eval()(batch).total
    scores = trained.score(PAIRS)
    assert -sum(one.log_prob for one in scores) == pytest.approx(loss.item(), rel=1e-5)
    assert all(np.isfinite(one.log_prob) for one in scores)


def test_alignments_of_copied_words(trained):
    for (source, target), found in zip(PAIRS, trained.align(PAIRS), strict=True):
        assert (found.source, found.target) == (source.split(), target.split())
        assert found.weights.shape == (len(target.split()), len(source.split()))


def test_texts_without_words(trained):
    assert trained.generate(["", "Ford", ""])[::2] == ["", ""]
    assert all(np.isfinite(one.log_prob) for one in trained.score([("", ""), ("a", ""), ("", "x")]))
