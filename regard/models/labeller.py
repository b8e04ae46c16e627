"""Models that label: one distribution for each position (tagging), or one for the whole (classification)."""

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor
from torch.nn import functional

from regard.data.batching import Batch
from regard.data.fields import FIELDS, Field, Shape
from regard.data.labels import Label
from regard.errors import UserError
from regard.models.attention import PoolingAttentionConfig
from regard.models.encoders import ENCODERS
from regard.models.interface import PLAIN, AttentionWeights, Encoder, Loss, LossOptions, Memory, Model
from regard.models.limits import Limits, limit, smallest, under
from regard.models.looking import pooling_weights
from regard.nn.chain import LinearChain
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.dropout import Dropout
from regard.nn.lengths import length_mask
from regard.nn.linear import Linear
from regard.nn.pooling import POOLINGS, AttentionPooling
from regard.nn.transformer.experts import Experts
from regard.recipe import Rate, Section, choose, name_of, one_of

IGNORE = -1  # labels are counted from 1 in a batch, where 0 is padding, and from 0 here


def balanced(counts: Float[Tensor, "labels"]) -> Float[Tensor, "labels"]:
    """N / (C n_c): all labels together count as often as rows, each as much as every other."""
    return counts.sum() / (len(counts) * counts)


# How much a row counts by its label, of which training has so many
CLASS_WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {"none": torch.ones_like, "balanced": balanced}


class LabellerConfig(Section):
    encoder: one_of(ENCODERS) = ENCODERS["recurrent"].Config()  # type: ignore[valid-type]
    dropout: Rate = 0.0  # under the output layer
    class_weights: Annotated[str, name_of(CLASS_WEIGHTS, "way to weigh labels")] = "none"
    copies_words: ClassVar[bool] = False
    shares_words: ClassVar[bool] = False


class TaggerConfig(LabellerConfig):
    columns: ClassVar[dict[str, str]] = {"source": "text", "tags": "tags"}
    kind: Literal["tagger"] = "tagger"
    crf: bool = False  # tags of neighbours are chosen together

    @model_validator(mode="after")
    def one_by_one(self) -> "TaggerConfig":
        if self.crf and self.class_weights != "none":
            raise ValueError("class_weights are for tags that are chosen one by one, and crf chooses them together")
        return self


class ClassifierConfig(LabellerConfig):
    columns: ClassVar[dict[str, str]] = {"source": "text", "label": "label"}
    kind: Literal["classifier"] = "classifier"
    pooling: Annotated[str, name_of(POOLINGS, "pooling")] = "mean"  # of the states of a sequence into one vector
    attention: PoolingAttentionConfig | None = None  # of the pooling `attention`

    @model_validator(mode="after")
    def attention_has_a_use(self) -> "ClassifierConfig":
        if self.attention is not None and not issubclass(choose(POOLINGS, self.pooling, "pooling"), AttentionPooling):
            raise ValueError(f"attention is for pooling=attention, and this is pooling={self.pooling}")
        return self


class Labelling(NamedTuple):
    """Probabilities of all labels at each position, the likeliest labels together, and how probable those are."""

    chances: Float[Tensor, "batch positions labels"]
    best: Int[Tensor, "batch positions"]
    log_prob: Float[Tensor, "batch"]


class Labeller(Model):
    """p(label) = softmax(W h + b), h what the encoder says of a position or of the whole."""

    validate_by = "accuracy"
    output: Linear
    class_weights: Tensor | None

    def __init__(self, config: LabellerConfig, source: Shape, labels: Shape) -> None:
        super().__init__()
        self.encoder: Encoder = ENCODERS[config.encoder.kind](config.encoder, source)
        self.dropout = Dropout(config.dropout)
        self.weigh = CLASS_WEIGHTS[config.class_weights]
        self.register_buffer("class_weights", None if config.class_weights == "none" else torch.ones(labels.sizes[0]))

    def learn_from(self, fields: Mapping[str, Field]) -> None:
        if self.class_weights is not None:
            field = fields[self.writes]
            assert isinstance(field, Label)
            self.class_weights.copy_(self.weigh(torch.tensor(field.known_counts, dtype=torch.float32)))

    @property
    def limits(self) -> Limits:
        return Limits(source=under("model.encoder", self.encoder.limit))

    def encode(self, batch: Batch) -> Memory:
        source = batch["source"]
        memory: Memory = self.encoder(source.values, source.lengths)
        return memory

    def attention_weights(self, batch: Batch) -> list[AttentionWeights]:
        return self.encoder.attention_weights(batch["source"].values)

    def states(self, memory: Memory) -> Float[Tensor, "batch positions size"]:
        """What is labelled."""
        raise NotImplementedError

    def has_label(self, batch: Batch, positions: int) -> Bool[Tensor, "batch positions"]:
        """Of the states, those that are no padding and no end mark."""
        raise NotImplementedError

    def predict(self, batch: Batch) -> Float[Tensor, "batch positions labels"]:
        """One distribution for each position; a row that is labelled as a whole has one."""
        return self.label(batch).chances

    def logits(self, batch: Batch) -> Float[Tensor, "batch positions labels"]:
        found: Tensor = self.output(self.states(self.encode(batch)))
        return found.float()

    def label(self, batch: Batch) -> Labelling:
        logits = self.logits(batch)
        best = logits.log_softmax(dim=-1).max(dim=-1)
        there = self.has_label(batch, logits.shape[1])
        return Labelling(logits.softmax(dim=-1), best.indices, best.values.masked_fill(~there, 0.0).sum(dim=1))

    def log_probs(self, batch: Batch) -> Float[Tensor, "batch"]:
        """log p(labels) of each row, all its labels together."""
        truth = self.truth(batch)
        chances = self.logits(batch)[:, : truth.shape[1]].log_softmax(dim=-1)
        each = chances.gather(2, truth.clamp(min=0)[..., None])[..., 0]
        return each.masked_fill(truth == IGNORE, 0.0).sum(dim=1)

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
        loss = self.cross_entropy(states, truth, options.label_smoothing)
        number = (truth != IGNORE).sum()
        experts = loss.new_zeros(()) if memory.cost is None else memory.cost * number
        told = {"loss": loss.detach(), "experts": experts.detach()}
        return Loss(loss + experts, {name: told[name] for name in self.part_names(options)}, number)

    def cross_entropy(
        self, states: Float[Tensor, "batch positions size"], truth: Int[Tensor, "batch positions"], smoothing: float
    ) -> Float[Tensor, ""]:
        """Σ -w[label] log p(label)"""
        if self.class_weights is None:
            return linear_cross_entropy(states, self.output, truth, IGNORE, smoothing)
        logits = self.output(states).float().flatten(0, 1)
        each = functional.cross_entropy(
            logits, truth.flatten(), ignore_index=IGNORE, reduction="none", label_smoothing=smoothing
        )
        return (each * self.class_weights[truth.flatten().clamp(min=0)]).sum()

    def truth(self, batch: Batch) -> Int[Tensor, "batch positions"]:
        values: Tensor = batch[self.writes].values
        return values.view(len(values), -1) - 1


class Tagger(Labeller):
    """Each token of the source has a tag."""

    Config = TaggerConfig
    writes = "tags"
    pipeline_tag = "token-classification"

    def __init__(self, config: TaggerConfig, source: Shape, labels: Shape) -> None:
        super().__init__(config, source, labels)
        self.marks = FIELDS[source.kind].marks
        self.output = Linear(self.encoder.memory_size, labels.sizes[0])
        self.chain = LinearChain(labels.sizes[0]) if config.crf else None

    def states(self, memory: Memory) -> Float[Tensor, "batch positions size"]:
        return memory.states

    def has_label(self, batch: Batch, positions: int) -> Bool[Tensor, "batch positions"]:
        values, lengths, *_ = batch["source"]
        if lengths is None:
            return torch.ones(len(values), positions, dtype=torch.bool, device=values.device)
        return length_mask(lengths - self.marks, positions)

    def label(self, batch: Batch) -> Labelling:
        if self.chain is None:
            return super().label(batch)
        logits = self.logits(batch)
        there = self.has_label(batch, logits.shape[1])
        best = self.chain.best(logits, there)
        log_prob = best.scores - self.chain.log_partition(logits, there)
        return Labelling(self.chain.marginals(logits, there), best.labels, log_prob)

    def log_probs(self, batch: Batch) -> Float[Tensor, "batch"]:
        if self.chain is None:
            return super().log_probs(batch)
        truth = self.truth(batch)
        return self.chain_log_probs(self.chain, self.logits(batch)[:, : truth.shape[1]], truth)

    def chain_log_probs(
        self, chain: LinearChain, logits: Float[Tensor, "batch positions labels"], truth: Int[Tensor, "batch positions"]
    ) -> Float[Tensor, "batch"]:
        there = truth != IGNORE
        return chain.score(logits, truth, there) - chain.log_partition(logits, there)

    def part_names(self, options: LossOptions) -> tuple[str, ...]:
        if self.chain is not None and options.label_smoothing:
            raise UserError(
                "training.label_smoothing is for tags that are chosen one by one, and model.crf chooses them together: "
                "set training.label_smoothing=0"
            )
        return super().part_names(options)

    def cross_entropy(
        self, states: Float[Tensor, "batch positions size"], truth: Int[Tensor, "batch positions"], smoothing: float
    ) -> Float[Tensor, ""]:
        if self.chain is None:
            return super().cross_entropy(states, truth, smoothing)
        return -self.chain_log_probs(self.chain, self.output(states).float(), truth).sum()


class Classifier(Labeller):
    """The source as a whole has a label."""

    Config = ClassifierConfig
    writes = "label"
    pipeline_tag = "text-classification"

    def __init__(self, config: ClassifierConfig, source: Shape, labels: Shape) -> None:
        super().__init__(config, source, labels)
        attention = config.attention or PoolingAttentionConfig()
        self.pool = choose(POOLINGS, config.pooling, "pooling")(self.encoder.memory_size, attention.build)
        self.output = Linear(self.pool.output_size, labels.sizes[0])

    @property
    def limits(self) -> Limits:
        places = limit(self.pool.known_places, "model.attention.longest")
        return Limits(source=smallest(super().limits.source, places))

    def attention_weights(self, batch: Batch) -> list[AttentionWeights]:
        states, visible, *_ = self.encode(batch)
        return [*pooling_weights(self.pool, states, visible), *super().attention_weights(batch)]

    def states(self, memory: Memory) -> Float[Tensor, "batch 1 size"]:
        whole: Tensor = self.pool(memory.states, memory.visible)
        return whole[:, None]

    def has_label(self, batch: Batch, positions: int) -> Bool[Tensor, "batch positions"]:
        values = batch["source"].values
        return torch.ones(len(values), positions, dtype=torch.bool, device=values.device)
