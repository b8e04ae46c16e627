"""One recurrent language model for both sides: it reads the source, a start mark and the target; the loss is on the target."""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.batching import Batch
from regard.data.fields import Shape
from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.models.generator import Generator, Words
from regard.models.interface import AttentionWeights, Memory, Steps
from regard.models.language_model import RecurrentText, RecurrentTextConfig
from regard.nn.lengths import length_mask
from regard.nn.state import repeat_rows


class RecurrentAloneConfig(RecurrentTextConfig):
    columns: ClassVar[dict[str, str]] = {"source": "text", "target": "text"}
    kind: Literal["recurrent_alone"] = "recurrent_alone"  # type: ignore[assignment]
    start_from: Literal["encoder"] = "encoder"  # type: ignore[assignment]  # it goes on where the source has left it
    copies_words: ClassVar[bool] = False
    shares_words: ClassVar[bool] = True


class RecurrentAlone(Generator):
    """The same table of words and the same cells read the source and write the target; the start mark stands between them."""

    Config: ClassVar[Any] = RecurrentAloneConfig
    decoder: RecurrentText

    def __init__(self, config: RecurrentAloneConfig, source: Shape, target: Shape) -> None:
        super().__init__()
        if source != target:
            raise UserError(
                "model.kind=recurrent_alone reads source and target by one table of words, and they are "
                f"{source.told} and {target.told}: set data.tokenizer.shared=true"
            )
        self.decoder = RecurrentText(config, target.sizes[0])

    def encode(self, batch: Batch) -> Memory:
        """The states of the top layer, and the states that the layers end with."""
        source, decoder = batch["source"], self.decoder
        visible = length_mask(source.lengths, source.values.shape[1])
        words = decoder.words(source.values)
        start = tuple(cell.zero_state(words) for cell in decoder.cells)
        present = None if decoder.between is None else source.values != PAD
        scanned = decoder.scan_layers(words, start, present=present, lengths=source.lengths)
        memory = Memory(scanned.states[-1], visible, cost=decoder.cost(scanned.use), last=[[state] for state in scanned.last])
        return decoder.prepare(memory)

    def teacher_forced(self, batch: Batch, words: Words, return_weights: bool = False) -> Steps:
        memory = self.encode(batch)
        steps: Steps = self.decoder(words, memory)
        costs = [cost for cost in (memory.cost, steps.cost) if cost is not None]
        return steps._replace(visible=memory.visible, cost=torch.stack(costs).sum() if costs else None)

    def attention_weights(self, batch: Batch) -> list[AttentionWeights]:
        """Of the steps that write the target."""
        return self.decoder.attention_weights(self.read_words(batch), self.encode(batch))

    def teacher_forced_each(self, batch: Batch, words: Int[Tensor, "rows target"], count: int) -> Steps:
        steps: Steps = self.decoder(words, repeat_rows(self.encode(batch)._replace(cost=None), count))
        return steps
