"""Small trained models, shared by the tests of decoding."""

import pytest

from regard.data.tokenizers import CharacterTokenizer


@pytest.fixture
def trained_letters():
    from tiny import END, FEW, tiny

    from regard.data.fields import texts
    from regard.decoding.generator import TrainedGenerator
    from regard.models.directory import Bundle
    from regard.recipe import Decoding

    model = tiny(FEW["gru-additive-into_cell"], vocabulary=6, scale=2.0)
    model.decoder.output.bias.data[END] += 2
    source, target = CharacterTokenizer([" ", "b"]), CharacterTokenizer(["a", "b"])
    return TrainedGenerator(Bundle(model, texts(source, target), Decoding(beam=3, length_penalty=0.5)))
