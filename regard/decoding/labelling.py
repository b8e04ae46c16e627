"""A trained model that labels: predict, score."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batching import Batch, column_of
from regard.data.fields import Label, Problems, Text
from regard.data.matching import check_values
from regard.decoding.forcing import Likelihood, in_one
from regard.decoding.inputs import Pair, Pairs, Texts, pairs_of, texts_of
from regard.decoding.looking import ALTERNATIVES, NOTHING, labels_of, maps_of, sides_of
from regard.decoding.trained import Answers, Trained, batches, check_look
from regard.errors import UserError
from regard.insight.look import Chance, Look
from regard.insight.maps import View, view
from regard.models.device import on_device


class Prediction(NamedTuple):
    """The likeliest labels of all positions together, or of the whole, and how probable each of them is."""

    labels: list[str]
    probabilities: list[float]
    log_prob: float  # of all of them together

    def __str__(self) -> str:
        return " ".join(self.labels)

    def __repr__(self) -> str:
        each = zip(self.labels, self.probabilities, strict=True)
        return f"Prediction({', '.join(f'{label} {chance:.3f}' for label, chance in each)})"


class Labelled(NamedTuple):
    """What the model says of one text."""

    chances: Float[Tensor, "positions labels"]
    best: Int[Tensor, "positions"]
    log_prob: float


class TrainedLabeller(Trained):
    """Texts in, labels out: one for each token, or one for each text."""

    does = "gives labels"
    usage = "regard predict MODEL < texts > labels"
    gives = ("likelihood", "labels")

    @property
    def labels(self) -> Label:
        field = self.fields[self.model.writes]
        assert isinstance(field, Label)
        return field

    @overload
    def predict(self, texts: str) -> Prediction: ...  # type: ignore[overload-overlap]
    @overload
    def predict(self, texts: Iterable[str]) -> list[Prediction]: ...
    def predict(self, texts: Texts) -> Any:
        """In the order given; of one text, one. Texts that the model cannot read raise an InputError once the others are
        labelled."""
        lines, alone = texts_of(texts, "predict")
        found = self.predictions(lines).all("texts")
        return found[0] if alone else found

    def predictions(self, texts: Sequence[str]) -> Answers[Prediction]:
        return self.labelled(texts).map(self.prediction)

    def prediction(self, found: Labelled) -> Prediction:
        chances = found.chances.gather(1, found.best[:, None])[:, 0].tolist()
        return Prediction([self.labels.names[at] for at in found.best.tolist()], chances, found.log_prob)

    def distributions(self, texts: Iterable[str]) -> list[Tensor]:
        """[positions, labels] of each text: the probability of every label, in the order of `labels.names`."""
        return self.labelled(texts_of(texts, "distributions")[0]).map(lambda found: found.chances).all("texts")

    @overload
    def score(self, rows: Pair) -> Likelihood: ...
    @overload
    def score(self, rows: Iterable[Pair]) -> list[Likelihood]: ...
    def score(self, rows: Pairs) -> Any:
        """log p(labels | text) of each row, a text and its labels; of one row, one."""
        both, alone = pairs_of(rows, "score", "rows")
        columns = {"source": [text for text, _ in both], self.model.writes: [names for _, names in both]}
        problems = check_values(self.fields, columns)[1]
        wrong = {**problems["source"], **problems[self.model.writes]}
        (sources, _), (wanted, _) = (self.encoded(name, values) for name, values in columns.items())
        wrong = {**self.unread(sources), **wrong}
        found: list[Likelihood | None] = [None if row in wrong else Likelihood(0.0, 0) for row in range(len(both))]
        for some in self.batches(sources, wrong):
            log_probs = self.log_probs([sources[row] for row in some], [wanted[row] for row in some])
            for row, log_prob in zip(some, log_probs, strict=True):
                found[row] = Likelihood(log_prob, len(wanted[row]))
        scored = Answers(found, dict(sorted(wrong.items()))).all("rows")
        return scored[0] if alone else scored

    @torch.inference_mode()
    def look(self, text: str, output: str | None = None, tokens: bool | None = None, maps: bool = True, **changes: Any) -> Look:
        """What is weighed for the label of a text, or where its words looked at each other; and how probable each label is."""
        check_look(text, output)
        if output is not None or changes:
            raise UserError("a model that labels is looked at by its own labels: it takes a text alone")
        label, read = self.predict(text), self.fields["source"]
        ((source,), _), (distribution,) = self.encoded("source", [text]), self.distributions([text])
        truth = on_device(
            Batch({self.model.writes: column_of(self.labels, [self.labels.encode([str(label)])[0][0]])}), self.device
        )
        batch = Batch({**self.inputs([source]).columns, **truth.columns})
        spelled = isinstance(read, Text) and in_one(read.tokenizer, text) if tokens is None else tokens
        every = maps_of(self, batch, sides_of(labels_of(read, text, source, spelled), NOTHING, read.marks, str(label)))
        return Look(text, str(label), view(every, View()).heatmap, every, self.chances(label, distribution))

    def chances(self, label: Prediction, distribution: Float[Tensor, "positions labels"]) -> list[Chance]:
        """Each label, beside the most probable ones."""
        best = distribution.topk(min(ALTERNATIVES, distribution.shape[1]), dim=1)
        each = zip(label.labels, label.probabilities, best.indices.tolist(), best.values.tolist(), strict=True)
        return [
            Chance(name, place, chance, [(self.labels.names[at], value) for at, value in zip(names, values, strict=True)])
            for place, (name, chance, names, values) in enumerate(each)
        ]

    @torch.inference_mode()
    def log_probs(self, sources: Sequence[Any], labels: Sequence[Any]) -> list[float]:
        truth = on_device(Batch({self.model.writes: column_of(self.labels, labels)}), self.device)
        batch = Batch({**self.inputs(sources).columns, **truth.columns})
        found: list[float] = self.model.log_probs(batch).double().tolist()
        return found

    @torch.inference_mode()
    def labelled(self, texts: Sequence[str]) -> Answers[Labelled]:
        """What the model says of each text."""
        tokens, problems = self.encoded("source", texts)
        problems = dict(sorted({**self.unread(tokens), **problems}.items()))
        nothing = Labelled(torch.zeros(0, len(self.labels.names)), torch.zeros(0, dtype=torch.long), 0.0)
        results: list[Labelled | None] = [None if row in problems else nothing for row in range(len(texts))]
        for rows in self.batches(tokens, problems):
            found = self.model.label(self.inputs([tokens[row] for row in rows]))
            for place, row in enumerate(rows):
                positions = len(tokens[row]) if self.labels.like else 1
                results[row] = Labelled(
                    found.chances[place, :positions], found.best[place, :positions], float(found.log_prob[place])
                )
        return Answers(results, problems)

    def unread(self, tokens: Sequence[Any]) -> Problems:
        """Texts that are too long; and, where a text has one label and no end mark, those without a word."""
        nothing = {row: "there is no word in it" for row, each in enumerate(tokens) if self.is_empty(each)}
        return self.problems(tokens) | ({} if self.labels.like else nothing)

    def is_empty(self, tokens: Any) -> bool:
        """Whether there is nothing at all to read, not even an end mark."""
        return len(tokens) + self.fields["source"].marks == 0

    def batches(self, tokens: Sequence[Any], problems: Problems) -> Iterator[list[int]]:
        read = [row for row, each in enumerate(tokens) if row not in problems and not self.is_empty(each)]
        return batches([len(row) for row in tokens], self.decoding.batch_tokens, read)
