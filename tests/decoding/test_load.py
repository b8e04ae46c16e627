"""What a model is in use depends on its shape, by one table."""

import pytest
import torch
from tiny import FEW, tiny

from regard.data.fields import texts
from regard.data.tokenizers import train_tokenizer
from regard.decoding import load as loading
from regard.decoding.generator import TrainedGenerator
from regard.decoding.load import IN_USE, in_use, load, load_generator
from regard.decoding.trained import Trained
from regard.errors import UserError
from regard.models import MODELS, SequenceToSequence
from regard.models.directory import Bundle
from regard.recipe import Decoding, Tokenizer


class Counting(SequenceToSequence):
    """A shape of its own: how many words, not which."""


class TrainedCounter(Trained):
    def predict(self, texts):
        return [len(row) for row in self.source.encode(texts)]


def bundle(shape):
    tokenizer = train_tokenizer(Tokenizer(kind="word"), ["a b c"])
    model = tiny(FEW["gru-additive-into_cell"], vocabulary=len(tokenizer))
    model.__class__ = shape
    return Bundle(model, texts(tokenizer, tokenizer), Decoding())


def test_every_shape_of_model_has_a_use():
    assert all(any(shape in IN_USE for shape in model.__mro__) for model in MODELS.values())
    assert type(in_use(bundle(SequenceToSequence))) is TrainedGenerator


def test_a_new_shape_is_a_line_of_the_table(monkeypatch):
    monkeypatch.setitem(IN_USE, Counting, TrainedCounter)
    monkeypatch.setattr(
        loading, "load_model", lambda path, rounded: bundle(Counting if path.name == "counter" else SequenceToSequence)
    )
    assert load("counter", "cpu").predict(["a b", ""]) == [2, 0]
    assert len(load("other", "cpu").generate(["a b"])) == 1
    assert load_generator("other", "cpu").device == torch.device("cpu")
    with pytest.raises(
        UserError, match=r"counter: this model .* does something of its own, and one that writes outputs is needed"
    ):
        load_generator("counter", "cpu")
