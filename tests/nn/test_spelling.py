"""Characters of a word as one vector, beside plain sums and PyTorch's LSTM."""

import pytest
import torch

from regard.errors import UserError
from regard.nn.spelling import SPELLINGS, ConvolutionalSpelling, RecurrentSpelling

ALPHABET, CHARACTER, SIZE = 7, 3, 4
WORDS = torch.tensor([[1, 2, 3, 4, 5], [6, 2, 0, 0, 0], [5, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
LENGTHS = [5, 2, 1, 0]


def convolved(model, letters, width):
    """Zeros stand beyond both ends; a width that is even sees one character more to the right."""
    before = (width - 1) // 2
    vectors = [model.embed.weight[letter] for letter in letters]
    blank = torch.zeros(CHARACTER)
    padded = [blank] * before + vectors + [blank] * (width - 1 - before)
    seen = [torch.cat(padded[at : at + width]) for at in range(len(letters))]
    sums = [model.convolution.weight @ one + model.convolution.bias for one in seen]
    return torch.stack([one.clamp(min=0) for one in sums]).max(0).values if sums else torch.zeros(SIZE)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_convolution_reads_the_characters_of_each_word(width):
    model = ConvolutionalSpelling(ALPHABET, CHARACTER, SIZE, width)
    model.convolution.bias.data.normal_()
    found = model(WORDS)
    for word, letters, length in zip(found, WORDS, LENGTHS, strict=True):
        torch.testing.assert_close(word, convolved(model, letters[:length], width))


def test_an_lstm_reads_them_from_both_sides():
    model, oracle = RecurrentSpelling(ALPHABET, CHARACTER, SIZE, 3), torch.nn.LSTM(CHARACTER, 2, 1, True, True, 0, True)
    weights = [weight for cell in model.layer.cells for weight in cell.weights]
    for parameter, weight in zip(oracle.parameters(), weights, strict=True):
        parameter.data = weight.data
    for word, letters, length in list(zip(model(WORDS), WORDS, LENGTHS, strict=True))[:3]:
        _, (hidden, _) = oracle(model.embed(letters[None, :length]))
        torch.testing.assert_close(word, hidden.flatten())
    with pytest.raises(UserError, match="two directions cannot share 3 elements"):
        RecurrentSpelling(ALPHABET, CHARACTER, 3, 3)


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_parameter_learns_and_padding_reaches_nothing(name):
    model = SPELLINGS[name](ALPHABET, CHARACTER, SIZE, 3)
    model(WORDS).square().sum().backward()
    assert not [name for name, one in model.named_parameters() if one.grad is None or one.grad.eq(0).all()]
    wide = torch.nn.functional.pad(WORDS, (0, 3))
    torch.testing.assert_close(model(wide), model(WORDS))
