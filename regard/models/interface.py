"""What encoders, decoders and searches agree on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from regard.data.batching import Batch
from regard.data.boxes import Regions
from regard.data.fields import Field
from regard.data.tokenizers import PAD
from regard.models.limits import Limit, Limits
from regard.nn.attention.selections import HardSample
from regard.nn.copying import Copying
from regard.nn.pooling import mean_over
from regard.nn.recurrent.cell import CellState

State = TypeVar("State")


class Memory(NamedTuple):
    """What an encoder hands to a decoder: once a sentence, however many hypotheses read it."""

    states: Float[Tensor, "batch source size"]  # of the source's words in their order; some encoders go on after the last
    visible: Bool[Tensor, "batch source"]
    pooled: Float[Tensor, "batch summary"] | None = None  # what the encoder itself says of the whole
    keys: Any = None  # the decoder's view of `states`, prepared once
    copies: "Copies | None" = None  # where the decoder may copy words
    cost: Float[Tensor, ""] | None = None  # of the encoder beside the loss, a target token (experts that are not used alike)
    last: Sequence[Sequence[CellState]] = ()  # with which each layer of a recurrent encoder ended, one state a direction

    @property
    def summary(self) -> Float[Tensor, "batch summary"]:
        """The whole as one vector: what the encoder pooled, or the mean."""
        return mean_over(self.states, self.visible) if self.pooled is None else self.pooled


class Copies(NamedTuple):
    """Source words numbered as the target's extended vocabulary does: ids of words that it does not know follow its own."""

    words: Int[Tensor, "batch source"]
    size: int  # of the extended vocabulary: all words that some row can write

    def over(self, places: int) -> "Copies":
        """For a memory that goes on after the last word: there is nothing to copy."""
        return self._replace(words=functional.pad(self.words, (0, places - self.words.shape[1]), value=PAD))


class Step(NamedTuple):
    """What one decoding step returns, for rows of hypotheses (several may belong to one sentence)."""

    logits: Float[Tensor, "rows vocabulary"]
    weights: Float[Tensor, "rows heads source"] | None
    state: Any  # an immutable tree of tensors whose first dimension is rows


class Steps(NamedTuple):
    """All steps of a known target at once: what the output layer reads, and where each step looked (if asked for)."""

    outputs: Float[Tensor, "batch target size"]
    weights: Float[Tensor, "batch heads target source"] | None = None
    copying: Copying | None = None  # how fit each source word is to be copied at each step
    choice: HardSample | None = None  # what hard attention drew
    cost: Float[Tensor, ""] | None = None  # beside the loss, a target token; a whole model adds its encoder's
    visible: Bool[Tensor, "batch source"] | None = None  # what there was to look at, as a whole model says with `weights`


class AttentionWeights(NamedTuple):
    """Of one attention in one sequence: how much of it each row has for each column, head by head."""

    kind: str  # which attention: an entry of ATTENTION_MAPS in `insight/maps.py`, which says what rows and columns are
    layer: int  # from 1, the lowest first
    weights: Float[Tensor, "heads rows columns"]


class Encoder(nn.Module):
    """A column of the source -> Memory. `embed` is its input: what turns values into vectors."""

    Config: ClassVar[Any]  # how a recipe describes it
    embed: nn.Module
    memory_size: int
    summary_size: int

    @property
    def limit(self) -> Limit | None:
        """Source tokens that it has places for, the end mark included; None: any number."""
        return None

    @property
    def regions(self) -> Regions | None:
        """What its states lie over, where it reads images."""
        grid, cell = (getattr(self.embed, name, None) for name in ("grid", "cell"))
        return None if grid is None or cell is None else Regions(*grid, *cell)

    def tokens_for(self, states: int) -> int:
        """The longest source whose memory has at most so many states."""
        return states

    def read(
        self, values: Shaped[Tensor, "batch *values"], lengths: Int[Tensor, "batch"] | None
    ) -> tuple[Float[Tensor, "batch source size"], Int[Tensor, "batch"]]:
        """Vectors, and how many of each row there are: all, where a row has no length."""
        vectors: Tensor = self.embed(values)
        return vectors, vectors.new_full((len(vectors),), vectors.shape[1], dtype=torch.long) if lengths is None else lengths

    def forward(self, values: Shaped[Tensor, "batch *values"], lengths: Int[Tensor, "batch"] | None = None) -> Memory:
        raise NotImplementedError

    def attention_weights(self, values: Shaped[Tensor, "1 *values"]) -> list[AttentionWeights]:
        """Where each position of one whole row looked while it was read, if this encoder attends to what it reads."""
        return []


class Decoder(nn.Module):
    """`forward` (teacher forcing) and repeated `step` compute the same thing: the first law."""

    Config: ClassVar[Any]  # how a recipe describes it
    embed: nn.Embedding
    output: nn.Linear  # the layer under the logits -> logits
    has_attention: bool = True  # whether steps tell where they looked
    copies_words: bool = False  # whether memory must say what can be copied
    reward_baseline: Tensor | None  # of each word: log p where hard attention wrote it, as training has seen it lately

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("reward_baseline", None)

    @property
    def limit(self) -> Limit | None:
        """Target tokens that it has places for, the start mark included; None: any number."""
        return None

    @property
    def memory_limit(self) -> Limit | None:
        """States of a memory that it has places for."""
        return None

    def prepare(self, memory: Memory) -> Memory:
        """Add what is computed once a sentence."""
        return memory

    def start(self, memory: Memory) -> Any:
        """The State before the first step, one row a sentence."""
        raise NotImplementedError

    def stepper(self, memory: Memory) -> "StepFunction":
        """One step as a function that reads this memory: what can be computed once for all steps is."""
        raise NotImplementedError

    def start_within(self, memory: Memory, room: int) -> Any:
        """The same with room for so many steps: no tensor of it changes its shape. It is stepped from once, for steps may write
        into it. As it stands for States that do not grow."""
        return self.start(memory)

    def stepper_within(self, memory: Memory, room: int) -> "StepFunction":
        """Steps from such a State, which ask the device nothing: a GPU may replay them."""
        return self.stepper(memory)

    def step(self, tokens: Int[Tensor, "rows"], memory: Memory, state: Any) -> Step:
        return self.stepper(memory)(tokens, state)

    def forward(self, tokens: Int[Tensor, "batch target"], memory: Memory, return_weights: bool = False) -> Steps:
        """All steps of a known target; `return_weights` asks for their attention weights, which cost memory and time."""
        raise NotImplementedError

    def attention_weights(self, tokens: Int[Tensor, "1 target"], memory: Memory) -> list[AttentionWeights]:
        """Where each step of one known target looked: at the memory, at earlier steps, at what it may copy."""
        return []

    def loss(self, steps: Steps, target: Int[Tensor, "batch target"], label_smoothing: float = 0.0) -> Float[Tensor, ""]:
        """Σ -log p(target), padding aside; a share `label_smoothing` of the truth lies on all words alike."""
        raise NotImplementedError

    def logits(self, steps: Steps) -> Float[Tensor, "batch target vocabulary"]:
        """log p(word) but for a constant of each step; over the extended vocabulary where words are copied."""
        raise NotImplementedError

    @torch.no_grad()
    def log_probs(self, steps: Steps, target: Int[Tensor, "batch target"]) -> Float[Tensor, "batch target"]:
        """log p(target) of each word; 0 where there is padding. No gradient."""
        each = self.logits(steps).float().log_softmax(dim=-1).gather(2, target[..., None]).squeeze(-1)
        return each.masked_fill(target == PAD, 0.0)


StepFunction = Callable[[Tensor, Any], Step]


class LossOptions(NamedTuple):
    """What training may ask of a loss; a model whose loss has no use for one refuses it."""

    label_smoothing: float = 0.0  # the share of the truth that lies on all words alike
    scheduled_sampling: float = 0.0  # chance that a step reads the model's own last word instead of the true one
    penalties: Mapping[str, float] = {}  # on attention weights or on what layers give
    entropy: float = 0.01  # hard attention's reward for staying undecided, a nat


PLAIN = LossOptions()


class Loss(NamedTuple):
    """Sums over a batch: what is differentiated, and what it is made of by name, without gradients; and over how many."""

    total: Float[Tensor, ""]
    parts: dict[str, Float[Tensor, ""]]  # the first is `loss`, the cross-entropy
    number: Int[Tensor, ""]  # of tokens, tags or rows that were to be written


class Model(nn.Module):
    """What training and a model's directory ask of every shape of model."""

    Config: ClassVar[Any]  # how a recipe describes it; its `columns` are those of a batch, and the kind of each
    writes: ClassVar[str]  # the column that the loss is about
    validate_by: ClassVar[str] = "loss"  # the metric that decides on checkpoints, unless a recipe names another
    pipeline_tag: ClassVar[str]  # what a model card calls the task: a word of Hugging Face's hub
    has_attention: bool = False  # whether it can tell where it looked
    copies_words: bool = False  # whether a batch must say what can be copied
    carries_state: bool = False  # from batch to batch: then its steps cannot be replayed as a graph
    carried: Tensor | None  # a state that goes on from batch to batch in one place: a buffer, which checkpoints keep

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("carried", None, persistent=False)

    @property
    def limits(self) -> Limits:
        """Tokens that it has places for."""
        return Limits()

    @property
    def regions(self) -> Regions | None:
        """What is looked at, where images are read; None: positions of a sequence."""
        return None

    def learn_from(self, fields: Mapping[str, Field]) -> None:
        """Take what is not learned by gradients from the fields of the training rows; once, before the first update."""

    def open_lanes(self, lanes: int) -> None:
        """Make room for a state that so many rows of a batch hand on to the next one."""

    def attention_weights(self, batch: Batch) -> list[AttentionWeights]:
        """All its attentions while it computes what `loss` is about, of a batch of one whole row."""
        return []

    def part_names(self, options: LossOptions) -> tuple[str, ...]:
        """Of what `loss` is made of under these options; UserError for options that this model has no use for."""
        raise NotImplementedError

    def loss(self, batch: Batch, options: LossOptions = PLAIN) -> Loss:
        raise NotImplementedError
