"""The target network of ByteNet: dilated convolutions over the past, on top of the source's states place by place."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.models.decoders.words import WordDecoder
from regard.models.encoders.bytenet import ByteNetConfig
from regard.models.encoders.recurrent import spread_words
from regard.models.interface import Memory, Step, StepFunction, Steps
from regard.nn.convolution import Convolution, start_histories
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear

Outputs = Float[Tensor, "rows time _"]


class ByteNetDecoderConfig(ByteNetConfig):
    kind: Literal["bytenet"] = "bytenet"
    tied: bool = False  # the output layer is the embedding, transposed


class ByteNetState(NamedTuple):
    places: Int[Tensor, "rows 1"]  # how many steps came before
    histories: tuple[Float[Tensor, "rows _ _"], ...]  # what each block's convolution will read again


class ByteNetDecoder(WordDecoder):
    """Step t reads W [y_{t-1}; s_t] + b; there is no attention, and beyond the last state of the source s_t is 0."""

    Config = ByteNetDecoderConfig
    has_attention = False

    def __init__(self, config: ByteNetDecoderConfig, vocabulary: int, memory_size: int, summary_size: int) -> None:
        super().__init__()
        embedding, outside = config.embedding_size, 2 * config.hidden_size
        self.embed = spread_words(vocabulary, config.embedding_size)
        self.enter = Convolution(embedding, outside, variance=float(embedding))
        self.stack = Linear(memory_size, outside, bias=False)  # the other half of W
        self.blocks = config.build_blocks()
        self.norm = nn.LayerNorm(outside)
        self.join = Linear(outside, embedding if config.tied else outside)
        self.dropout = Dropout(config.dropout)
        self.output = Linear(self.join.out_features, vocabulary)
        if config.tied:
            self.output.weight = self.embed.weight

    def prepare(self, memory: Memory) -> Memory:
        """The source's share in what each step reads, and one place more, with nothing, for all that come after."""
        shares = self.stack(memory.states.masked_fill(~memory.visible[..., None], 0.0))
        return memory._replace(keys=functional.pad(shares, (0, 0, 0, 1)))

    def start(self, memory: Memory) -> ByteNetState:
        places = torch.zeros(memory.states.shape[0], 1, dtype=torch.long, device=memory.states.device)
        return ByteNetState(places, start_histories(self.blocks, memory.states[:, 0]))

    def beneath(self, places: Int[Tensor, "rows time"], memory: Memory) -> Outputs:
        """The source's share at these places, for rows of hypotheses or for all steps of a target."""
        batch, width, size = memory.keys.shape
        index = places.clamp(max=width - 1).reshape(batch, -1, 1).expand(-1, -1, size)
        return memory.keys.gather(1, index).view(*places.shape, size)  # type: ignore[no-any-return]

    def run(self, tokens: Int[Tensor, "rows time"], memory: Memory, state: ByteNetState) -> tuple[Outputs, ByteNetState]:
        """So many steps more."""
        places = state.places + torch.arange(tokens.shape[1], device=tokens.device)
        states, histories = self.enter(self.dropout(self.embed(tokens))) + self.beneath(places, memory), []
        for block, history in zip(self.blocks, state.histories, strict=True):
            states, history = block.after(states, history)  # type: ignore[operator]
            histories.append(history)
        outputs = functional.relu(self.join(functional.relu(self.norm(states))))
        return outputs, ByteNetState(state.places + tokens.shape[1], tuple(histories))

    def stepper(self, memory: Memory) -> StepFunction:
        def step(tokens: Int[Tensor, "rows"], state: ByteNetState) -> Step:
            outputs, state = self.run(tokens[:, None], memory, state)
            return Step(self.output(outputs[:, 0]), None, state)

        return step

    def forward(self, tokens: Int[Tensor, "batch target"], memory: Memory, return_weights: bool = False) -> Steps:
        return Steps(self.run(tokens, memory, self.start(memory))[0])

    def finished(self, outputs: Float[Tensor, "batch target size"]) -> Float[Tensor, "batch target size"]:
        dropped: Tensor = self.dropout(outputs)
        return dropped
