"""What goes from one recurrent layer to the next. One class a way; CONNECTIONS names them."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.attention import Attention, Cache, QueryPositions, SelfAttention, StepPosition
from regard.nn.lengths import length_mask
from regard.nn.linear import Linear, bind_linear, bind_projection
from regard.nn.recurrent.cell import Cell
from regard.nn.recurrent.scan import reverse_within

Outputs = Float[Tensor, "batch time size"]
Connect = Callable[[Tensor, Tensor, Tensor | None], Tensor]
ConnectStep = Callable[[Tensor, Tensor, Tensor | None, Any], tuple[Tensor, Any]]
Attend = Callable[[int, bool], Attention]  # the size of states, whether each sees only those before it -> their attention


class Connection(nn.Module):
    """What goes from one layer to the next: h_k  (Schmidhuber 1992, El Hihi & Bengio 1996)."""

    carried = 0  # elements of each cell's W x that it takes along
    attends: ClassVar[bool] = False  # whether it is made with an attention

    def __init__(
        self, input_size: int, output_size: int, width: int = 0, directions: int = 1, top: bool = False,
        attention: Attend | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size = output_size  # of what it gives

    def bind(self) -> Connect:
        """(a layer's input, its output, W x of its cells if carried) -> the next layer's input, as a function for one pass."""
        return lambda inputs, outputs, share: outputs

    def start(self, rows: Float[Tensor, "rows *rest"]) -> Any:
        """What it remembers of earlier steps, before the first: nothing."""
        return None

    def bind_step(self) -> ConnectStep:
        """As `bind`, for steps that are taken one by one: with what it remembers, before and after."""
        connect = self.bind()
        return lambda inputs, outputs, share, state: (connect(inputs, outputs, share), state)

    def share(self, cells: Iterable[Cell], inputs: Float[Tensor, "*rows input"]) -> Float[Tensor, "*rows carried"] | None:
        """Of a layer that was scanned, which keeps no W x."""
        return torch.cat([feed_forward(cell, inputs, self.carried) for cell in cells], dim=-1) if self.carried else None

    def forward(
        self,
        inputs: Float[Tensor, "*rows input"],
        outputs: Float[Tensor, "*rows output"],
        share: Float[Tensor, "*rows carried"] | None = None,
        lengths: Int[Tensor, "rows"] | None = None,
    ) -> Float[Tensor, "*rows size"]:
        """Of all steps; `lengths` says where sequences end."""
        return self.bind()(inputs, outputs, share)


class Residual(Connection):
    """h_k + x_k, where they have one size  (Wu et al. 2016, section 3.1)."""

    def bind(self) -> Connect:
        return lambda inputs, outputs, share: outputs + inputs if inputs.shape == outputs.shape else outputs


class FastForward(Connection):
    """f_{k+1} = V [h_k; f_k]: a way from the words to the top that is linear, with a matrix of its own."""

    def __init__(
        self, input_size: int, output_size: int, width: int = 0, directions: int = 1, top: bool = False,
        attention: Attend | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, output_size)
        self.join = Linear(input_size + output_size, output_size)

    def bind(self) -> Connect:
        join = bind_linear(self.join)
        return lambda inputs, outputs, share: join(beside(outputs, inputs))


class FastForwardHalf(Connection):
    """f_{k+1} = W_{k+1} [h_k; half of f_k], where f_k is what a cell's sums get from below: the linear way runs through the
    cells' own matrices. The top gives [h_k; all of f_k]  (Zhou et al. 2016, sections 3.1 and 3.2)."""

    def __init__(
        self, input_size: int, output_size: int, width: int = 0, directions: int = 1, top: bool = False,
        attention: Attend | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, output_size)
        self.carried = width if top else width // 2
        self.size = output_size + abs(directions) * self.carried

    def bind(self) -> Connect:
        def connect(inputs: Tensor, outputs: Tensor, share: Tensor | None) -> Tensor:
            assert share is not None
            return beside(outputs, share[..., : self.size - outputs.shape[-1]])

        return connect


class Below(NamedTuple):
    """The states below so far, as an attention reads them."""

    cache: Cache
    read: Bool[Tensor, "rows time"]


class SelfAttending(Connection):
    """[h_t; c_t], c_t = Σ_j α_tj h_j: the next layer also reads what an attention finds among the states below (lecture 000).

    α_tj = softmax_j e(h_t, h_j) over all states of a layer that reads both ways; over those up to t of one that reads one way.
    """

    attends = True

    def __init__(
        self, input_size: int, output_size: int, width: int = 0, directions: int = 1, top: bool = False,
        attention: Attend | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, output_size)
        assert attention is not None
        self.attention, self.turned = SelfAttention(attention(output_size, directions != 2)), directions == -1
        self.output_size, self.size = output_size, output_size + self.attention.attention.context_size

    def forward(
        self, inputs: Tensor, outputs: Outputs, share: Tensor | None = None, lengths: Int[Tensor, "batch"] | None = None
    ) -> Float[Tensor, "batch time joined"]:
        visible = None if lengths is None else length_mask(lengths, outputs.shape[1])
        read = self.turn(outputs, lengths)
        return beside(outputs, self.turn(self.attention(read, visible).context, lengths))

    def weights(self, outputs: Outputs) -> Float[Tensor, "batch heads time time"]:
        """α of whole rows."""
        found: Tensor = self.attention(self.turn(outputs, None), None, return_weights=True).weights
        return found.flip(2, 3) if self.turned else found

    def turn(self, states: Outputs, lengths: Int[Tensor, "batch"] | None) -> Outputs:
        """From the end where the layer reads so."""
        if not self.turned:
            return states
        return states.flip(1) if lengths is None else reverse_within(states, lengths)

    def start(self, rows: Float[Tensor, "rows *rest"]) -> Below:
        nothing = rows.new_zeros(rows.shape[0], 0, self.output_size)
        return Below(self.attention.open(nothing), nothing[..., 0].bool())

    def bind_step(self) -> ConnectStep:
        def connect(inputs: Tensor, outputs: Tensor, share: Tensor | None, below: Below) -> tuple[Tensor, Below]:
            time = below.read.shape[1]
            here = torch.full((outputs.shape[0], 1), time, device=outputs.device)
            found, cache = self.attention.step(outputs[:, None], below.cache, StepPosition(QueryPositions(here), time + 1))
            return beside(outputs, found.context[:, 0]), Below(cache, functional.pad(below.read, (0, 1), value=True))

        return connect


def beside(outputs: Float[Tensor, "*rows size"], more: Float[Tensor, "*rows more"]) -> Float[Tensor, "*rows both"]:
    return torch.cat([outputs, more.to(outputs.dtype)], dim=-1)


CONNECTIONS: dict[str, type[Connection]] = {
    "plain": Connection,
    "residual": Residual,
    "fast_forward": FastForward,
    "fast_forward_half": FastForwardHalf,
    "self_attention": SelfAttending,
}


def connection_over(layer: int, layers: int, kind: type[Connection], first: int = 1, top: bool = False) -> type[Connection]:
    """Layers are counted from 1: `kind` from layer `first` on, and over the top one only if told so."""
    return kind if layer >= first and (layer < layers or top) else Connection


def feed_forward(cell: Cell, inputs: Float[Tensor, "*rows input"], count: int) -> Float[Tensor, "*rows count"]:
    """The first `count` elements of what a cell's sums get from its input: W x + b, where it is no more than that."""
    linear: nn.Linear = cell.from_input  # type: ignore[assignment]
    if getattr(cell, "normed", False) or linear.out_features != cell.width:
        return cell.project(inputs)[..., :count]
    return bind_projection(linear.weight[:count], linear.bias[:count])(inputs)
