"""All experiments that are called in one way, `regard lab NAME`. Their modules need torch and are imported when they run."""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from regard.lab.experiment import Experiment


class Entry(NamedTuple):
    module: str  # whose EXPERIMENT it is
    about: str
    lecture: str  # whose figures or claims it makes again

    @property
    def experiment(self) -> "Experiment":
        found: Experiment = import_module(self.module).EXPERIMENT
        return found


EXPERIMENTS: dict[str, Entry] = {
    "bottleneck": Entry(
        "regard.lab.bottleneck",
        "Quality by the length of the source, with attention and without it, with as many parameters",
        "001 Motivation; 002 The Bottleneck Problem; 003 Shortcoming; 004 Issue with Recurrent Models",
    ),
    "gradients": Entry(
        "regard.lab.gradients",
        "|dL/dh_t| through time for each cell, read from the last state or by attention",
        "000 Revenge of the vanishing gradients; 004 Vanishing Gradients",
    ),
    "complexity": Entry(
        "regard.lab.complexity",
        "Measured time and memory against lengths, with fitted exponents",
        "003 Summary (l1 + l2, l1 l2); 001 Why transformers? (n²)",
    ),
    "positions": Entry(
        "regard.lab.positions",
        "Pictures of positional encodings: how alike two places look",
        "001 Positional encoding",
    ),
    "order": Entry(
        "regard.lab.order",
        "A bag of embeddings against a recurrent network, where order matters and where it does not",
        "000 Variable-sized inputs: no ordering information",
    ),
    "copying": Entry(
        "regard.lab.copying",
        "Names never seen, written by copying, by PosUnk, or not at all",
        "000 Copying; 001 Deep-Att + PosUnk",
    ),
    "captions": Entry(
        "regard.lab.captions",
        "Captions of generated pictures with soft attention, hard attention and none; where they looked",
        "001 Caption Generation with Attention; 000 Hard attention",
    ),
    "alignment": Entry(
        "regard.lab.alignment",
        "The alignment error rate of every score, scope and selection, on generated Latin or on given gold data",
        "002 Attention is Great: alignment for free; 001 A Family of Attention Mechanisms",
    ),
    "translation": Entry(
        "regard.lab.translation",
        "The systems of the lecture's table of translation under one budget, beside its columns",
        "001 Why transformers? (BLEU and training cost)",
    ),
    "summarisation": Entry(
        "regard.lab.summarisation",
        "An RNN with attention, T-ED, T-D, T-DMCA and experts on generated long documents",
        "001 Text summarization",
    ),
}
