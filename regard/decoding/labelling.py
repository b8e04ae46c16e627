"""A trained model that labels: predict, score."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from regard.data.fields import Label
from regard.data.matching import check_values
from regard.decoding.forcing import Likelihood
from regard.decoding.inputs import Pair, Pairs, Texts, pairs_of, texts_of
from regard.decoding.trained import Answers, Trained, batches


class Prediction(NamedTuple):
    """The likeliest label of each position, or of the whole, and how probable each is."""

    labels: list[str]
    probabilities: list[float]

    def __str__(self) -> str:
        return " ".join(self.labels)

    def __repr__(self) -> str:
        each = zip(self.labels, self.probabilities, strict=True)
        return f"Prediction({', '.join(f'{label} {chance:.3f}' for label, chance in each)})"


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
        def read(chances: Tensor, row: int) -> Prediction:
            best = chances.max(dim=-1)
            return Prediction([self.labels.names[at] for at in best.indices.tolist()], best.values.tolist())

        return self.each(texts, read)

    def distributions(self, texts: Iterable[str]) -> list[Tensor]:
        """[positions, labels] of each text: the probability of every label, in the order of `labels.names`."""
        return self.each(texts_of(texts, "distributions")[0], lambda chances, row: chances).all("texts")

    @overload
    def score(self, rows: Pair) -> Likelihood: ...
    @overload
    def score(self, rows: Iterable[Pair]) -> list[Likelihood]: ...
    def score(self, rows: Pairs) -> Any:
        """log p(labels | text) of each row, a text and its labels; of one row, one."""
        both, alone = pairs_of(rows, "score", "rows")
        texts, labels = [text for text, _ in both], [names for _, names in both]
        wanted, _ = self.labels.encode(labels)
        _, problems = check_values(self.fields, {"source": texts, self.model.writes: labels})
        wrong = problems["source"] | problems[self.model.writes]

        def read(chances: Tensor, row: int) -> Likelihood | None:
            if row in wrong:
                return None
            truth = torch.tensor(wanted[row], device=chances.device) - 1
            return Likelihood(float(chances.log().gather(1, truth[:, None]).double().sum()), len(truth))

        found = self.each(texts, read)
        scored = Answers(found.results, dict(sorted((found.problems | wrong).items()))).all("rows")
        return scored[0] if alone else scored

    @torch.inference_mode()
    def each(self, texts: Sequence[str], read: Callable[[Tensor, int], Any]) -> Answers[Any]:
        """What `read` makes of the distributions of each text."""
        tokens, problems = self.encoded("source", texts)
        problems |= self.problems(tokens)
        results: list[Any] = [None] * len(texts)
        lengths = [len(row) for row in tokens]
        for rows in batches(lengths, self.decoding.batch_tokens, [row for row in range(len(texts)) if row not in problems]):
            chances = self.model.predict(self.inputs([tokens[row] for row in rows]))
            for place, row in enumerate(rows):
                positions = lengths[row] if chances.shape[1] > 1 or self.labels.like else 1
                results[row] = read(chances[place, :positions], row)
        return Answers(results, problems)
