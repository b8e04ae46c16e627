"""Rules against outputs that say the same again and again."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decoding.rules.rule import DecodingRule, Request, SearchStep


class RemembersWords(DecodingRule):
    """Its State is what each hypothesis has read: the word before the output, and the output so far."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.nothing = torch.zeros(rows, 0, dtype=torch.long, device=device)

    def start(self) -> Int[Tensor, "batch 0"]:
        return self.nothing

    def apply(self, step: SearchStep, words: Int[Tensor, "rows"], state: Int[Tensor, "rows read"]) -> tuple[SearchStep, Any]:
        state = torch.cat([state, words[:, None]], dim=1)
        return self.judge(step, state[:, 1:]), state

    def judge(self, step: SearchStep, written: Int[Tensor, "rows written"]) -> SearchStep:
        raise NotImplementedError


class NoRepeatNgram(RemembersWords):
    """No n tokens in a row come twice (Paulus et al. 2018, section 2.5)."""

    def __init__(self, size: int, rows: int, device: torch.device) -> None:
        super().__init__(rows, device)
        self.size = size

    @classmethod
    def requested(cls, request: Request) -> "NoRepeatNgram | None":
        size, lengths = request.decoding.no_repeat_ngram, request.lengths
        return None if size is None else cls(size, len(lengths), lengths.device)

    def judge(self, step: SearchStep, written: Int[Tensor, "rows written"]) -> SearchStep:
        if written.shape[1] < self.size:
            return step
        ngrams = written.unfold(1, self.size, 1)  # rows, places, size
        now = written[:, written.shape[1] - self.size + 1 :]
        again = (ngrams[..., :-1] == now[:, None]).all(dim=-1)
        rows, places = again.nonzero(as_tuple=True)
        forbidden = torch.zeros_like(step.log_probs, dtype=torch.bool)
        forbidden[rows, ngrams[rows, places, -1]] = True
        return step.forbid(forbidden)


class RepetitionPenalty(RemembersWords):
    """θ log p for the words that the output has already (Keskar et al. 2019, section 4.1, on log-probabilities, where a
    constant that logits were moved by does not matter). It is the one rule that changes what outputs are worth: the
    `log_prob` and `score` of hypotheses are sums of what it makes of log p."""

    def __init__(self, penalty: float, rows: int, device: torch.device) -> None:
        super().__init__(rows, device)
        self.penalty = penalty

    @classmethod
    def requested(cls, request: Request) -> "RepetitionPenalty | None":
        penalty, lengths = request.decoding.repetition_penalty, request.lengths
        return None if penalty is None else cls(penalty, len(lengths), lengths.device)

    def judge(self, step: SearchStep, written: Int[Tensor, "rows written"]) -> SearchStep:
        penalised = step.log_probs.gather(1, written) * self.penalty
        return step._replace(log_probs=step.log_probs.scatter(1, written, penalised))
