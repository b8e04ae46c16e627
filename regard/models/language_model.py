"""A decoder without a source: p(text) = Π p(word | words before it)."""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor
from torch.nn import functional

from regard.bounds import Size
from regard.data.batching import Batch
from regard.data.fields import Shape
from regard.data.tokenizers import END, PAD, START
from regard.errors import UserError
from regard.models.decoder_alone import AloneDecoder, DecoderAloneConfig
from regard.models.decoders.recurrent import RecurrentDecoder, RecurrentDecoderConfig
from regard.models.decoders.words import WordDecoder
from regard.models.generator import Generator, Words
from regard.models.interface import AttentionWeights, LossOptions, Memory, Steps
from regard.models.limits import Limit, Limits, under
from regard.models.transformer import stack_limit
from regard.nn.dropout import Dropout, LockedDropout
from regard.recipe import Rate, Section, one_of


class RecurrentTextConfig(RecurrentDecoderConfig):
    """A recurrent decoder that has nothing to look at and nothing to start from."""

    attention: None = None
    context: Literal["none"] = "none"
    start_from: Literal["zero"] = "zero"
    copy_words: None = None
    locked: bool = False  # one dropout mask for all steps of a sequence (Gal & Ghahramani 2016)
    input_dropout: Rate | None = None  # of what the lowest layer reads; null: as `dropout`
    output_dropout: Rate | None = None  # of what the output layer reads; null: as `dropout`
    word_dropout: Rate = 0.0  # chance that a word of the vocabulary is read as 0 wherever a batch has it
    weight_drop: Rate = 0.0  # share of the recurrent weights that are 0 for a batch (Merity et al. 2018)


class RecurrentText(RecurrentDecoder):
    Config: ClassVar[Any] = RecurrentTextConfig

    def __init__(self, config: RecurrentTextConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary, memory_size=1, summary_size=1)
        kind = LockedDropout if config.locked else Dropout
        rates = (config.dropout if rate is None else rate for rate in (config.input_dropout, config.output_dropout))
        self.dropout, self.input_dropout, self.output_dropout = map(kind, (config.dropout, *rates))
        self.word_dropout, self.weight_drop = config.word_dropout, config.weight_drop

    def nothing(self, rows: int) -> Memory:
        """The memory of no source."""
        weight = self.output.weight
        return self.prepare(Memory(weight.new_zeros(rows, 1, 1), weight.new_ones(rows, 1, dtype=torch.bool)))

    def words(self, tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows size"]:
        found = WordDecoder.words(self, tokens)
        if self.training and self.word_dropout:
            kept = functional.dropout(found.new_ones(self.embed.num_embeddings, 1), self.word_dropout)
            found = found * kept[tokens]
        dropped: Tensor = self.input_dropout(found)
        return dropped

    def finished(self, outputs: Float[Tensor, "batch target size"]) -> Float[Tensor, "batch target size"]:
        dropped: Tensor = self.output_dropout(outputs)
        return dropped

    @property
    def state_size(self) -> int | None:
        """Numbers of the state of all layers; None where it grows with what was read."""
        fixed = all(len(cell.State._fields) == cell.starts for cell in self.cells)
        return sum(cell.starts * cell.hidden_size for cell in self.cells) if fixed else None

    def read_on(self, tokens: Words, state: Float[Tensor, "batch state"]) -> tuple[Steps, Float[Tensor, "batch state"]]:
        """All steps from a state on, and the state after the last."""
        parts = iter(torch.split(state, self.first.hidden_size, dim=-1))
        start = tuple(cell.start(*(next(parts) for _ in range(cell.starts))) for cell in self.cells)
        scanned = self.scan_layers(self.words(tokens), start, present=None if self.between is None else tokens != PAD)
        steps = Steps(torch.tanh(self.join(scanned.top)), cost=self.cost(scanned.use))
        return steps, torch.cat([part for cell in scanned.last for part in cell], dim=-1).to(state.dtype)


class TransformerTextConfig(DecoderAloneConfig):
    kind: Literal["transformer"] = "transformer"  # type: ignore[assignment]

    @model_validator(mode="after")
    def one_way(self) -> "TransformerTextConfig":
        if self.two_way_source:
            raise ValueError("`two_way_source` is for a source, and a language model has none")
        return self


class TransformerText(AloneDecoder):
    """An end mark stands before the text, in the place of a source: what came before has ended."""

    Config = TransformerTextConfig
    state_size: int | None = None  # it sees what stands in its window, and nothing before

    @property
    def limit(self) -> Limit | None:
        found = stack_limit(self.stack)
        return None if found is None else Limit(found.places - 1, found.key)

    def before(self, rows: int) -> tuple[Int[Tensor, "batch 1"], Int[Tensor, "batch"]]:
        ends = torch.full((rows, 1), END, device=self.output.weight.device)
        return ends, torch.ones_like(ends[:, 0])

    def nothing(self, rows: int) -> Memory:
        return self.read(*self.before(rows))

    def forward(self, tokens: Words, memory: Memory, return_weights: bool = False) -> Steps:
        return self.whole(*self.before(len(tokens)), tokens, return_weights)

    def attention_weights(self, tokens: Words, memory: Memory) -> list[AttentionWeights]:
        return self.sequence_weights(self.before(1)[0], tokens)


BODIES: dict[str, type[RecurrentText] | type[TransformerText]] = {"recurrent": RecurrentText, "transformer": TransformerText}


class LanguageModelConfig(Section):
    columns: ClassVar[dict[str, str]] = {"target": "text"}
    kind: Literal["language_model"] = "language_model"
    decoder: one_of(BODIES) = RecurrentTextConfig()  # type: ignore[valid-type]
    # tokens of a window: all rows are one long text, and a recurrent state goes on from window to window; null: a row is a text
    window: Size | None = None
    copies_words: ClassVar[bool] = False
    shares_words: ClassVar[bool] = False


class LanguageModel(Generator):
    """The column `target` is all that there is. A batch of windows has `lanes` too: [rows, 3], the number of each row's lane,
    the token that stands before its window, and whether the state with which its last window ended is to go on."""

    Config = LanguageModelConfig
    pipeline_tag = "text-generation"
    validate_by = "loss"
    decoder: RecurrentText | TransformerText

    def __init__(self, config: LanguageModelConfig, target: Shape) -> None:
        super().__init__()
        self.decoder, self.window = BODIES[config.decoder.kind](config.decoder, target.sizes[0]), config.window
        limit = self.decoder.limit
        if self.window is not None and limit is not None and self.window > limit.places:
            raise UserError(f"model.window={self.window}, and there are places for {limit.places} (model.decoder.{limit.key})")
        if self.window is not None and isinstance(self.decoder, RecurrentText) and self.decoder.state_size is None:
            raise UserError(
                f"model.window carries a state from window to window, and that of model.decoder.cell={config.decoder.cell} "
                "grows with every token; take another cell, or window: null"
            )

    @property
    def has_attention(self) -> bool:  # type: ignore[override]
        return False  # to a source

    @property
    def limits(self) -> Limits:
        """Where rows are one long text, each may have any length."""
        return Limits() if self.window is not None else Limits(target=under("model.decoder", self.decoder.limit))

    @property
    def room(self) -> int | None:
        """Tokens of a text that it can have in view, the start mark included; None: any number."""
        if isinstance(self.decoder, TransformerText) and self.window is not None:
            return self.window
        return None if self.decoder.limit is None else self.decoder.limit.places

    def encode(self, batch: Batch) -> Memory:
        return self.nothing(len(batch["target"].values))

    def nothing(self, rows: int) -> Memory:
        """What so many texts are written from."""
        return self.decoder.nothing(rows)

    def attention_weights(self, batch: Batch) -> list[AttentionWeights]:
        """Of a text that stands alone."""
        return self.decoder.attention_weights(self.read_words(batch), self.nothing(1))

    def open_lanes(self, lanes: int) -> None:
        if self.decoder.state_size is not None:  # lane 0 is that of rows which only fill up a batch
            self.carried = self.decoder.output.weight.new_zeros(lanes + 1, self.decoder.state_size)

    def part_names(self, options: LossOptions) -> tuple[str, ...]:
        if self.window is not None and options.scheduled_sampling:
            raise UserError(
                "training.scheduled_sampling reads a batch twice, and with model.window its state goes on: leave it out"
            )
        return super().part_names(options)

    def read_words(self, batch: Batch) -> Words:
        lanes = batch.get("lanes")
        return super().read_words(batch) if lanes is None else following(lanes.values[:, 1], batch["target"].values)

    def teacher_forced(self, batch: Batch, words: Words, return_weights: bool = False) -> Steps:
        lanes = batch.get("lanes")
        if lanes is None or self.carried is None:
            return self.decoder(words, self.nothing(len(words)), return_weights)  # type: ignore[no-any-return]
        number, _, going = lanes.values.unbind(dim=1)
        steps, state = self.read_on(words, self.carried[number] * going[:, None])
        self.carried.index_copy_(0, number, state.detach().nan_to_num(0.0, 0.0, 0.0))  # gradients end here
        return steps

    def read_on(self, words: Words, state: Float[Tensor, "batch state"]) -> tuple[Steps, Float[Tensor, "batch state"]]:
        """All steps from a state on, and the state after the last; a Transformer has none."""
        if isinstance(self.decoder, RecurrentText):
            return self.decoder.read_on(words, state)
        return self.decoder(words, self.nothing(len(words))), state

    def teacher_forced_each(self, batch: Batch, words: Int[Tensor, "rows target"], count: int) -> Steps:
        return self.teacher_forced(batch, words)


def following(before: Int[Tensor, "batch"], output: Words) -> Words:
    """What is read where a text goes on with `output`. As in a row that stands alone, START is read where a row begins; END is
    never read."""
    earlier = torch.cat([before[:, None], output[:, :-1]], dim=1)
    return torch.where(earlier == END, START, earlier)
