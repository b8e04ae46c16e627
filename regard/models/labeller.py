"""Models that label: one distribution for each position (tagging), or one for the whole (classification)."""

from typing import Annotated, ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batching import Batch
from regard.data.fields import Shape
from regard.errors import UserError
from regard.models.encoders import ENCODERS
from regard.models.interface import PLAIN, Encoder, Loss, LossOptions, Memory, Model
from regard.models.limits import Limits, under
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear
from regard.nn.pooling import POOLINGS
from regard.nn.transformer.experts import Experts
from regard.recipe import Rate, Section, name_of, one_of

IGNORE = -1  # labels are counted from 1 in a batch, where 0 is padding, and from 0 here


class LabellerConfig(Section):
    encoder: one_of(ENCODERS) = ENCODERS["recurrent"].Config()  # type: ignore[valid-type]
    dropout: Rate = 0.0  # under the output layer
    copies_words: ClassVar[bool] = False
    shares_words: ClassVar[bool] = False


class TaggerConfig(LabellerConfig):
    columns: ClassVar[dict[str, str]] = {"source": "text", "tags": "tags"}
    kind: Literal["tagger"] = "tagger"


class ClassifierConfig(LabellerConfig):
    columns: ClassVar[dict[str, str]] = {"source": "text", "label": "label"}
    kind: Literal["classifier"] = "classifier"
    pooling: Annotated[str, name_of(POOLINGS, "pooling")] = "mean"  # of the states of a sequence into one vector


class Labeller(Model):
    """p(label) = softmax(W h + b), h what the encoder says of a position or of the whole."""

    validate_by = "accuracy"

    def __init__(self, config: LabellerConfig, source: Shape, labels: Shape) -> None:
        super().__init__()
        self.encoder: Encoder = ENCODERS[config.encoder.kind](config.encoder, source)
        self.dropout = Dropout(config.dropout)
        self.output = Linear(self.encoder.memory_size, labels.sizes[0])

    @property
    def limits(self) -> Limits:
        return Limits(source=under("model.encoder", self.encoder.limit))

    def encode(self, batch: Batch) -> Memory:
        source = batch["source"]
        memory: Memory = self.encoder(source.values, source.lengths)
        return memory

    def states(self, memory: Memory) -> Float[Tensor, "batch positions size"]:
        """What is labelled."""
        raise NotImplementedError

    def predict(self, batch: Batch) -> Float[Tensor, "batch positions labels"]:
        """One distribution for each position; a row that is labelled as a whole has one."""
        logits: Tensor = self.output(self.states(self.encode(batch)))
        return logits.float().softmax(dim=-1)

    def part_names(self, options: LossOptions) -> tuple[str, ...]:
        if options.penalties or options.scheduled_sampling:
            raise UserError(
                "training.penalties and training.scheduled_sampling are for models that write a sequence: leave them out"
            )
        mixes = any(isinstance(module, Experts) for module in self.modules())
        return ("loss", "experts") if mixes else ("loss",)

    def loss(self, batch: Batch, options: LossOptions = PLAIN) -> Loss:
        """Σ -log p(label), padding aside."""
        memory, truth = self.encode(batch), self.truth(batch)
        states = self.dropout(self.states(memory)[:, : truth.shape[1]])
        loss = linear_cross_entropy(states, self.output, truth, IGNORE, options.label_smoothing)
        number = (truth != IGNORE).sum()
        experts = loss.new_zeros(()) if memory.cost is None else memory.cost * number
        told = {"loss": loss.detach(), "experts": experts.detach()}
        return Loss(loss + experts, {name: told[name] for name in self.part_names(options)}, number)

    def truth(self, batch: Batch) -> Int[Tensor, "batch positions"]:
        values: Tensor = batch[self.writes].values
        return values.view(len(values), -1) - 1


class Tagger(Labeller):
    """Each token of the source has a tag."""

    Config = TaggerConfig
    writes = "tags"
    pipeline_tag = "token-classification"

    def states(self, memory: Memory) -> Float[Tensor, "batch positions size"]:
        return memory.states


class Classifier(Labeller):
    """The source as a whole has a label."""

    Config = ClassifierConfig
    writes = "label"
    pipeline_tag = "text-classification"

    def __init__(self, config: ClassifierConfig, source: Shape, labels: Shape) -> None:
        super().__init__(config, source, labels)
        self.pool = POOLINGS[config.pooling]

    def states(self, memory: Memory) -> Float[Tensor, "batch 1 size"]:
        return self.pool(memory.states, memory.visible)[:, None]
