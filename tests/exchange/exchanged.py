"""Small models with random weights on disk, of any `model` section, for what is exported."""

import random

import torch
from kinds import small

from regard.data.fields import texts
from regard.data.tokenizers import CharacterTokenizer
from regard.models import configure
from regard.models.directory import Bundle, save_model
from regard.recipe import Decoding, Recipe

LETTERS = "abcdefghij"
TOKENIZER = CharacterTokenizer(LETTERS)


def bundle(section, tokenizer=TOKENIZER, **decoding):
    """Weights so large that outputs differ from source to source."""
    model = small(section, len(tokenizer))
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) * 0.5 + (0.0 if parameter.dim() > 1 else parameter)
    config = configure(section).model_dump(mode="json")
    return Bundle(model, texts(tokenizer, tokenizer), Decoding(max_ratio=1000.0, **decoding), config=config)


def save(given, directory):
    recipe = Recipe(model=dict(given.config), decoding=given.decoding)
    save_model(
        directory,
        {name: tensor.clone() for name, tensor in given.model.state_dict().items()},
        recipe,
        given.fields,
        "a model for tests",
    )
    return directory


def sources(count, longest, seed=0):
    chance = random.Random(seed)
    return ["".join(chance.choices(LETTERS, k=chance.randint(1, longest))) for _ in range(count)]
