"""All outputs of a tiny model, so that what is expected can be summed up."""

import itertools

import torch
from tiny import END, START

from regard.data.batching import reading

PAD = 0


def every_output(vocabulary, limit):
    """All that can be written in up to `limit` tokens: those that end, and those that are cut off at the limit."""
    for size in range(1, limit + 1):
        for words in itertools.product(range(vocabulary), repeat=size):
            if END not in words[:-1] and (words[-1] == END or size == limit):
                yield words


def log_probs_of(model, source, outputs, temperature=1.0):
    """log p of each output, with gradients, word by word from the model's logits."""
    rows = len(outputs)
    words = torch.nn.utils.rnn.pad_sequence([torch.tensor(output) for output in outputs], batch_first=True, padding_value=-1)
    read = torch.cat([torch.full((rows, 1), START), words[:, :-1].clamp(min=0)], dim=1)
    logits = model(reading(torch.tensor([source] * rows), torch.tensor([len(source)] * rows)), read).double() / temperature
    each = logits - logits.exp().sum(-1, keepdim=True).log()
    return (each.gather(2, words.clamp(min=0)[..., None]).squeeze(2) * (words >= 0)).sum(1)


def spoken(words):
    """Without the end mark."""
    return tuple(word for word in words if word != END)
