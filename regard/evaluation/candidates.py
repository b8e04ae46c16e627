"""What a model in training proposes for a batch, and how good it is beside the references."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.data.batching import Batch, pad_lists
from regard.data.tokenizers import END, PAD, Tokenizer
from regard.decoding.generator import TrainedGenerator
from regard.decoding.greedy import cut
from regard.decoding.hypothesis import Found
from regard.decoding.sampling import Sampling
from regard.evaluation.metrics import rewards as known_rewards
from regard.models.device import to_device
from regard.models.generator import shifted
from regard.recipe import Risk, choose
from regard.tables import TABLES
from regard.training.expected import RISKS, Candidates, Propose

NOBODY = "\N{REPLACEMENT CHARACTER}"  # spells a reference's unknown words, which no output can write

# Where candidates come from: a seed -> how they are drawn, or None for a beam
SEARCHES: dict[str, Callable[[int], Sampling | None]] = {"sample": lambda seed: Sampling(seed=seed), "beam": lambda seed: None}
TABLES["search"] = lambda: SEARCHES


def proposer(trained: TrainedGenerator, risk: Risk) -> Propose:
    """Candidates by samples or by beam search; a minimum of risk is sought over distinct ones."""
    distinct = not choose(RISKS, risk.objective, "objective").samples

    def propose(batch: Batch, seed: int) -> Candidates:
        source = batch["source"]
        rows = source.values.tolist(), source.lengths.tolist()
        sources = [row[: length - 1] for row, length in zip(*rows, strict=True)]  # END is put there again
        sampling = choose(SEARCHES, risk.search, "search")(seed)
        settings = trained.settings(beam=risk.candidates, length_penalty=0.0, cache="dynamic")  # samples too
        found = trained.search_batch(sources, settings, batch.get("copies"), sampling)
        lists = [unique(one) if distinct else one for one in found]
        limits = trained.limits(source.lengths, settings).tolist()
        return collected(lists, risk, limits, batch["target"].values, trained.target)

    return propose


def unique(found: Sequence[Found]) -> list[Found]:
    return list({tuple(one.tokens): one for one in found}.values())


def collected(
    lists: Sequence[Sequence[Found]], risk: Risk, limits: Sequence[int], references: Tensor, target: Tokenizer
) -> Candidates:
    device = references.device
    filled = [[*found, *[Found([], 0.0)] * (risk.candidates - len(found))] for found in lists]
    tokens = [one.tokens for found in filled for one in found]
    output, _ = pad_lists(tokens)
    for row, words in enumerate(tokens):
        if len(words) == limits[row // risk.candidates]:
            output[row, len(words)] = PAD  # cut off: it never said that it ends
    real = torch.tensor([[at < len(found) for at in range(risk.candidates)] for found in lists])
    values = torch.tensor(rewards(filled, references, risk.reward, target))
    there = to_device(output, device)
    return Candidates(shifted(there), there, values.to(device), real.to(device))


def rewards(lists: Sequence[Sequence[Found]], references: Tensor, name: str, target: Tokenizer) -> list[list[float]]:
    """Of text, not of tokens: what counts must not depend on how words are cut, and every metric judges text. Words that were
    copied though nobody knows them are spelled by their number, in outputs and references alike."""
    reward = choose(known_rewards(), name, "reward")
    return [
        [reward(spell(one.tokens, target), truth) for one in found]
        for found, truth in zip(lists, (reference(row, target) for row in references.tolist()), strict=True)
    ]


def reference(row: list[int], target: Tokenizer) -> str:
    return spell(cut(row, END), target).replace(target.unknown.strip(), NOBODY)


def spell(tokens: Sequence[int], target: Tokenizer) -> str:
    past = max(tokens, default=0) + 1 - len(target)
    blank = target.blank if target.spaced else ""
    return target.decode(tokens, [f"{blank}#{number}".encode() for number in range(past)])
