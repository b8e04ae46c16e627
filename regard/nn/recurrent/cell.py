"""What a recurrent cell is: pre-activations, each a sum of named terms, and one elementwise update."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.errors import UserError
from regard.nn.linear import AnyLinear, Linear, bind_linear


class Hidden(NamedTuple):
    hidden: Float[Tensor, "*rows hidden"]


class HiddenMemory(NamedTuple):
    hidden: Float[Tensor, "*rows hidden"]
    memory: Float[Tensor, "*rows hidden"]


CellState = Any  # a NamedTuple whose first field is `hidden`
Blocks = Sequence[Any]  # pre-activations: tensors, or the symbols of a tracer (kernels/equation.py)
Step = Callable[[Tensor, CellState], CellState]
Elementwise = Callable[[Mapping[str, Tensor], CellState], Any]


class Cell(nn.Module):
    """One step of a recurrence. Every state has `.hidden`, the cell's output.

    `project` maps x_t to the input's share and needs no state, so a scan computes it for all steps at once.
    """

    State: ClassVar[type[Any]] = Hidden
    starts: ClassVar[int] = 1  # vectors that a first state is made of
    ends: ClassVar[int] = 1  # vectors that `end` gives
    input_size: int
    hidden_size: int
    width: int  # of what `project` gives

    def __init__(self, input_size: int, hidden_size: int, layer_norm: bool = False) -> None:
        if input_size < 1 or hidden_size < 1:
            raise UserError(f"a cell has an input and a hidden size of at least 1 (given: {input_size} and {hidden_size})")
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size

    def begin(self) -> None:
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(self.hidden_size**-0.5), self.hidden_size**-0.5)  # as torch.nn.RNNBase

    def zero_state(self, like: Float[Tensor, "batch *rest"]) -> CellState:
        return self.start(*(like.new_zeros(like.shape[0], self.hidden_size) for _ in range(self.starts)))

    def start(self, *vectors: Float[Tensor, "batch hidden"]) -> CellState:
        """The state before the first step, made of `starts` vectors."""
        return self.State(*vectors)

    def end(self, state: CellState) -> tuple[Float[Tensor, "batch hidden"], ...]:
        """What a state says of all that was read."""
        return tuple(state)

    def bind_project(self) -> Callable[[Float[Tensor, "*rows input"]], Float[Tensor, "*rows width"]]:
        """`project` as a function for one pass."""
        raise NotImplementedError

    def bind(self, mask: Float[Tensor, "batch hidden"] | None = None) -> Step:
        """The step as a function for one pass: (the input's share, state) -> state. `mask` multiplies what the past
        gives (h, m, or what was read of a tape) where it enters a product: recurrent dropout."""
        raise NotImplementedError

    def run(
        self, projected: Float[Tensor, "batch time width"], state: CellState, active: Bool[Tensor, "batch time 1"] | None
    ) -> tuple[Float[Tensor, "batch time hidden"], CellState] | None:
        """All steps without a mask, the outputs and the last state; None where a cell has no way of its own to them."""
        return None

    def freeze(self, active: Bool[Tensor, "batch 1"], new: CellState, old: CellState) -> CellState:
        """A row that has ended keeps its state."""
        return self.State(*(torch.where(active, after, before) for after, before in zip(new, old, strict=True)))

    def project(self, inputs: Float[Tensor, "*rows input"]) -> Float[Tensor, "*rows width"]:
        return self.bind_project()(inputs)

    def forward(self, inputs: Float[Tensor, "batch input"], state: CellState) -> CellState:
        return self.bind()(self.project(inputs), state)


class Twin(NamedTuple):
    """A library's scan of the same equations: cuDNN on a GPU, oneDNN or ATen on a CPU."""

    scan: Callable[..., Any]
    cudnn_mode: int


RECURRENT = {"h": "from_hidden", "t": "from_squashed", "m": "from_reset"}
SQUASH: dict[str, Callable[[Tensor], Tensor]] = {"h": lambda hidden: hidden, "t": torch.tanh}


class GatedCell(Cell):
    """p_j = Σ of its terms, state = update(p_1 .. p_n, state).

    `terms` has a word for each p_j: x stands for W_j x + b_j, h for U_j h, t for U_j tanh(h), m for V_j m where m is what
    `reset` makes of the p_j that need no m. The blocks of h, of t and of m each lie side by side, in this order.
    """

    terms: ClassVar[tuple[str, ...]] = ()
    twin: ClassVar[Twin | None] = None  # such cells have a second bias, as torch.nn's have
    normed: bool

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for letter in RECURRENT:
            place = cls.place(letter)
            if place and place != list(range(place[0], place[-1] + 1)):
                raise UserError(f"{cls.__name__}: the blocks with {letter!r} lie side by side in `terms`; given: {cls.terms}")

    def __init__(self, input_size: int, hidden_size: int, layer_norm: bool = False) -> None:
        super().__init__(input_size, hidden_size, layer_norm)
        self.normed = layer_norm
        self.width = self.count("x") * hidden_size
        self.build()
        self.begin()
        letters = self.letters if layer_norm else []
        self.norms = nn.ModuleDict({letter: nn.LayerNorm(self.count(letter) * hidden_size) for letter in letters})
        self.norm_memory = nn.LayerNorm(hidden_size) if layer_norm and self.starts > 1 else nn.Identity()

    def build(self) -> None:
        """The matrices of each term."""
        self.from_input = Linear(self.input_size, self.width)
        for letter, name in RECURRENT.items():
            size = self.count(letter) * self.hidden_size
            setattr(self, name, Linear(self.hidden_size, size, bias=self.twin is not None) if size else None)

    @classmethod
    def count(cls, letter: str) -> int:
        return sum(letter in word for word in cls.terms)

    @property
    def letters(self) -> list[str]:
        return [letter for letter in "xhtm" if self.count(letter)]

    @classmethod
    def place(cls, letter: str) -> list[int]:
        """The numbers of the pre-activations that have this term."""
        return [number for number, word in enumerate(cls.terms) if letter in word]

    @property
    def vectors(self) -> Sequence[Float[Tensor, "hidden"]]:
        """Parameters of `update`, one element per unit (peepholes)."""
        return ()

    def update(self, pre: Blocks, state: CellState, *vectors: Any) -> CellState:
        """Elementwise, and made of nothing but its arguments: only then the fast scans take it (`elementwise` looks)."""
        raise NotImplementedError

    def reset(self, pre: Blocks, state: CellState) -> Any:
        """m = σ(p_1) ∗ h, what the second product of a step multiplies."""
        return torch.sigmoid(pre[0]) * state.hidden

    def enter(self, projected: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """What happens to the input's share once all of it is added up."""
        return projected

    def bind_project(self) -> Callable[[Tensor], Tensor]:
        return self.bind_map("x", self.from_input)

    def bind_map(self, letter: str, linear: AnyLinear) -> Callable[[Tensor], Tensor]:
        """The product of one term for one pass, normalised if the cell is (Ba et al. 2016, section 3.1)."""
        product = bind_linear(linear)
        return (lambda inputs: self.norm(letter, product(inputs))) if self.normed else product

    def norm(self, letter: str, share: Tensor) -> Tensor:
        return self.norms[letter](share) if self.normed else share

    def recurrent(self, letter: str) -> AnyLinear | None:
        linear: AnyLinear | None = getattr(self, RECURRENT[letter])
        return linear

    def bind(self, mask: Float[Tensor, "batch hidden"] | None = None) -> Step:
        maps = {letter: self.bind_map(letter, linear) for letter in RECURRENT if (linear := self.recurrent(letter)) is not None}
        again = maps.pop("m", None)
        keep: Callable[[Tensor], Tensor] = (lambda vector: vector) if mask is None else (lambda vector: vector * mask)
        update, reset = self.bind_elementwise()

        def step(projected: Tensor, state: CellState) -> CellState:
            shares = {"x": self.enter(projected)}
            for letter, product in maps.items():
                shares[letter] = product(keep(SQUASH[letter](state.hidden)))
            if again is not None:
                shares["m"] = again(keep(reset(shares, state)))
            return update(shares, state)

        return step

    def bind_elementwise(self) -> tuple[Elementwise, Elementwise]:
        """`update` and `reset` of the shares of all terms and a state, for one pass: on a GPU one launch each."""
        from regard.nn.kernels.recurrent import gates  # which reads cells

        if gates.applies(self, self.from_input.weight):
            return gates.bind_update(self), gates.bind_reset(self)
        return (
            lambda shares, state: self.update(self.add(shares), state, *self.vectors),
            lambda shares, state: self.reset(self.add(shares), state),
        )

    def add(self, shares: Mapping[str, Tensor]) -> Sequence[Tensor]:
        """The pre-activations, as far as their terms are there; a sum that still lacks its m comes without it."""
        if all(word == "xh" for word in self.terms):
            return (shares["x"] + shares["h"]).chunk(len(self.terms), dim=-1)
        blocks: dict[str, Iterator[Tensor]] = {
            letter: iter(torch.split(share, self.hidden_size, dim=-1)) for letter, share in shares.items()
        }
        return [
            functools.reduce(torch.add, [next(blocks[letter]) for letter in word if letter in blocks]) for word in self.terms
        ]

    @property
    def weights(self) -> list[Tensor]:
        """In the order of torch.nn's recurrent layers, which their scans take."""
        recurrent = self.recurrent("h")
        assert recurrent is not None
        assert recurrent.bias is not None
        return [self.from_input.weight, recurrent.weight, self.from_input.bias, recurrent.bias]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "GatedCell":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.twin is not None and self.from_input.weight.is_cuda:
            self.flatten(self.twin.cudnn_mode)
        return self

    def flatten(self, mode: int) -> None:
        """Lay the weights in one block, which cuDNN asks for (it copies them at every call otherwise)."""
        with torch.no_grad():
            torch._cudnn_rnn_flatten_weight(self.weights, 4, self.input_size, mode, self.hidden_size, 0, 1, True, False)


def in_one_block(weights: Sequence[Tensor]) -> list[Tensor]:
    """The same weights one after the other in memory and of one dtype, that of the first: cuDNN asks for both."""
    block = torch.cat([one.flatten().to(weights[0].dtype) for one in weights])
    parts = torch.split(block, [one.numel() for one in weights])
    return [part.view_as(one) for part, one in zip(parts, weights, strict=True)]


class CellList(nn.ModuleList):
    """Cells that know they are cells."""

    def __iter__(self) -> Iterator[Cell]:
        return super().__iter__()  # type: ignore[return-value]

    def __getitem__(self, index: int) -> Cell:  # type: ignore[override]
        return super().__getitem__(index)  # type: ignore[return-value]
