"""How a query and a key that have been projected are compared: by a dot product, or by a small network."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.nn.attention.additive import additive, bind_additive

Queries = Float[Tensor, "batch heads target size"]
Keys = Float[Tensor, "batch heads source size"]
Scores = Float[Tensor, "batch heads target source"]
Scoring = Callable[[Queries], Scores]


@dataclass(frozen=True)
class Dot:
    """e_ij = s q_i · k_j;  with coverage c:  s q_i · k_j + c_ij Σ_d w_d."""

    scale: float = 1.0

    def bind(self, keys: Keys) -> Scoring:
        """The scores against these keys as a function for one pass over a target."""
        columns = keys.contiguous().mT  # otherwise the keys of several heads are copied, and kept, at every step
        return lambda query: self.scaled(query) @ columns

    def scaled(self, query: Queries) -> Queries:
        return query if self.scale == 1 else query * self.scale

    def covered(self, query: Queries, keys: Keys, coverage: Scores, weight: Float[Tensor, "heads size"]) -> Scores:
        """Scores that know how much of each key has had weight already (Tu et al. 2016; See et al. 2017)."""
        return self.scaled(query) @ keys.mT + coverage * weight.sum(-1)[:, None, None]


@dataclass(frozen=True)
class Network:
    """e_ij = v · φ(q_i + k_j);  with coverage c:  v · φ(q_i + k_j + w c_ij)."""

    score_vector: Float[Tensor, "heads size"]
    activation: str = "tanh"

    def bind(self, keys: Keys) -> Scoring:
        return bind_additive(keys, self.score_vector.to(keys.dtype), self.activation)

    def covered(self, query: Queries, keys: Keys, coverage: Scores, weight: Float[Tensor, "heads size"]) -> Scores:
        def score(query: Tensor, keys: Tensor, coverage: Tensor, weight: Tensor, score_vector: Tensor) -> Tensor:
            return additive(query, keys, score_vector, self.activation, coverage[..., None] * weight[:, None, None])

        inputs = query, keys, coverage, weight, self.score_vector.to(keys.dtype)
        return checkpoint(score, *inputs, use_reentrant=False, preserve_rng_state=False)  # type: ignore[no-any-return]


Pair = Dot | Network
