"""What stands before an encoder, beside plainly written sums; and what does not fit is said."""

import pytest
import torch
from citizens import BODIES

from regard.data.fields import FIELDS, Shape
from regard.errors import RecipeError, UserError
from regard.models import build, configure
from regard.models.encoders import ENCODERS
from regard.models.inputs import INPUTS
from regard.nn.spelling import SPELLINGS

VECTORS, IMAGE = Shape("vectors", (3,)), Shape("image", (4, 6, 2))


def encoder(kind, shape, /, **input):
    """An encoder of this column, in use; with `input`, by that way."""
    config = ENCODERS[kind].Config(**{**BODIES[kind], **({"input": input} if input else {})})
    return ENCODERS[kind](config, shape).eval()


def test_every_kind_that_can_be_read_has_a_way():
    read = {kind for one in INPUTS.values() for kind in one.fields}
    assert read == set(FIELDS) - {"label", "tags"}


@pytest.mark.parametrize("kind", ENCODERS)
def test_vectors_are_projected(kind):
    """x W^T + b, each by itself; then the body as it reads words of these vectors."""
    model, values, lengths = encoder(kind, VECTORS), torch.randn(2, 5, 3), torch.tensor([5, 2])
    weight, bias = model.embed.project.weight, model.embed.project.bias
    expected = torch.stack([torch.stack([weight @ one + bias for one in row]) for row in values])
    torch.testing.assert_close(model.embed(values), expected)
    found = model(values, lengths)
    words = encoder(kind, Shape("text", (10,)))  # a table that holds just these vectors
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("embed.")}
    table = expected.flatten(0, 1).detach()
    scale = words.embed(torch.tensor([3]))[0] / words.embed.weight[3]  # Transformers read words times the root of their size
    words.load_state_dict(state | {"embed.weight": table / scale.mean()})
    theirs = words(torch.arange(10).view(2, 5), lengths)
    torch.testing.assert_close(found.states, theirs.states)
    torch.testing.assert_close(found.summary, theirs.summary)


@pytest.mark.parametrize("kind", ENCODERS)
def test_padding_of_vectors_reaches_nothing(kind):
    model, values, lengths = encoder(kind, VECTORS), torch.randn(2, 5, 3), torch.tensor([5, 2])
    found = model(values, lengths)
    noisy = values.clone()
    noisy[1, 2:] = 7.0
    alone = model(values[1:, :2], lengths[1:])
    seen = int(alone.visible.sum())
    assert found.visible[1].sum() == seen
    torch.testing.assert_close(found.states[1, :seen], alone.states[0, :seen])
    torch.testing.assert_close(model(noisy, lengths).states[1, :seen], alone.states[0, :seen])


SPELLED = torch.tensor([[[4, 4, 5, 6], [5, 5, 0, 0]], [[1, 6, 6, 0], [0, 0, 0, 0]]])  # words, and their characters


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("kind", ENCODERS)
def test_words_stand_beside_their_characters(kind, spelling):
    model = encoder(kind, Shape("spelled", (9, 7, 3)), kind="characters", size=2, character_size=4, spelling=spelling)
    found = model.embed(SPELLED)
    for row, place in ((0, 0), (0, 1), (1, 0)):
        word, *letters = SPELLED[row, place].tolist()
        own = model.embed.words(torch.tensor([word]))[0]
        read = model.embed.spelling(torch.tensor([letters]))[0]
        torch.testing.assert_close(found[row, place], torch.cat([own, read]))
    lengths = torch.tensor([2, 1])
    memory, alone = model(SPELLED, lengths), model(SPELLED[1:, :1], lengths[1:])
    seen = int(alone.visible.sum())
    torch.testing.assert_close(memory.states[1, :seen], alone.states[0, :seen])
    changed = SPELLED.clone()
    changed[0, 0, 1] = 6  # a letter
    assert not torch.allclose(model(changed, lengths).states[0, 0], memory.states[0, 0])


def test_characters_leave_room_for_the_word():
    with pytest.raises(RecipeError, match=r"model\.encoder\.input\.size=5 of 5 elements leaves none to the word itself"):
        encoder("recurrent", Shape("spelled", (9, 7, 3)), kind="characters", size=5)


@pytest.mark.parametrize("side", [1, 2])
def test_an_image_is_cut_into_squares_line_by_line(side):
    """Each square's pixels, channel by channel and line by line, times W, and the vector of its place (ViT, eq. 1)."""
    model, image = encoder("transformer", IMAGE, kind="patches", side=side), torch.randint(0, 256, (2, 4, 6, 2)).byte()
    weight, bias, places = model.embed.project.weight, model.embed.project.bias, model.embed.places
    assert places.shape == (24 // side**2, 8)
    found = model.embed(image)
    place = 0
    for top in range(0, 4, side):
        for left in range(0, 6, side):
            for row in range(2):
                square = image[row, top : top + side, left : left + side].float() / 255
                pixels = [square[y, x, channel] for channel in range(2) for y in range(side) for x in range(side)]
                torch.testing.assert_close(found[row, place], weight @ torch.stack(pixels) + bias + places[place])
            place += 1
    assert place == found.shape[1]


@pytest.mark.parametrize("kind", ENCODERS)
def test_every_encoder_reads_images_whole(kind):
    """A row has no length: every square is seen, and each is a state that its pixels change."""
    model, image = encoder(kind, IMAGE, kind="patches", side=2), torch.randint(0, 256, (2, 4, 6, 2)).byte()
    memory = model(image)
    assert memory.visible[:, :6].all()
    assert memory.states.shape[1] >= 6
    torch.testing.assert_close(model(image[1:]).states[0], memory.states[1])
    changed = image.clone()
    changed[0, 2:, 4:] = 255 - changed[0, 2:, 4:]  # the last square
    assert not torch.allclose(model(changed).states[0, 5], memory.states[0, 5])
    torch.testing.assert_close(model(changed).states[1], memory.states[1])


def test_what_does_not_fit_is_said():
    with pytest.raises(RecipeError, match=r"model\.encoder\.input\.side=4 does not divide images of 4 x 6"):
        encoder("recurrent", IMAGE)
    with pytest.raises(RecipeError, match="input `words` reads text, and the column is of kind `image`; take patches"):
        encoder("recurrent", IMAGE, kind="words")
    with pytest.raises(RecipeError, match="kind `label`; no input reads it"):
        encoder("recurrent", Shape("label", (4,)))
    section = {"encoder": BODIES["recurrent"], "decoder": {"kind": "recurrent", "embedding_size": 5}, "share_embeddings": True}
    with pytest.raises(UserError, match=r"model\.share_embeddings needs words on both sides"):
        build(configure(section), VECTORS, Shape("text", (9,)))
    with pytest.raises(UserError, match=r"decoder_alone .* kind `vectors` needs an encoder"):
        build(configure({"kind": "decoder_alone", "hidden_size": 8, "attention": {"heads": 2}}), VECTORS, Shape("text", (9,)))
