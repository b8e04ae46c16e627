"""Recurrent networks for inference: the same modules, each of whose products is laid out once. Cells and attentions in FUSED
make their steps in one call of layers.c."""

import copy
import ctypes

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.engine import native
from regard.engine.native import NativeProduct, place_of
from regard.engine.products import Pack, projection
from regard.nn.attention import Attention, AttentionState, PreparedMemory
from regard.nn.attention.additive import exponential, too_large
from regard.nn.attention.attention import Select, Selection
from regard.nn.attention.pairs import Network
from regard.nn.attention.selections import Soft
from regard.nn.linear import Linear, LinearForInference
from regard.nn.recurrent.cell import CellState, HiddenMemory, Step
from regard.nn.recurrent.cells import LSTMCell

Made = dict[int, nn.Module]


class Sequence(ctypes.Structure):
    """`Sequence` of layers.c."""

    _fields_ = (
        ("projected", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("rows", "times", "row_stride", "time_stride")),
        *((name, ctypes.c_void_p) for name in ("active", "hidden", "memory", "new_hidden", "new_memory", "outputs")),
    )


class FusedLSTMCell(LSTMCell):
    """Its second product and its gates in one call, for one step or for all."""

    def bind(self, mask: Float[Tensor, "batch hidden"] | None = None) -> Step:
        if mask is not None or not self.is_fused:
            return super().bind(mask)
        return lambda projected, state: self.call(projected[:, None], state, None, None)

    def run(
        self, projected: Float[Tensor, "batch time width"], state: CellState, active: Bool[Tensor, "batch time 1"] | None
    ) -> tuple[Float[Tensor, "batch time hidden"], CellState] | None:
        if not self.is_fused:
            return None
        outputs = projected.new_empty(*projected.shape[:2], self.hidden_size)
        return outputs, self.call(projected, state, active, outputs)

    @property
    def is_fused(self) -> bool:
        return not self.normed and isinstance(getattr(self.from_hidden, "product", None), NativeProduct)

    def call(
        self, projected: Float[Tensor, "batch time width"], state: CellState, active: Tensor | None, outputs: Tensor | None
    ) -> HiddenMemory:
        library, again = native.library(), getattr(self.from_hidden, "product", None)
        assert library is not None
        assert isinstance(again, NativeProduct)
        projected = projected if projected.stride(2) == 1 else projected.contiguous()
        hidden, memory = state.hidden.contiguous(), state.memory.contiguous()
        assert projected.dtype == hidden.dtype == memory.dtype == torch.float32
        found = HiddenMemory(torch.empty_like(hidden), torch.empty_like(memory))
        active = None if active is None else active.contiguous()
        places = map(place_of, (active, hidden, memory, *found, outputs))
        rows, times, _ = projected.shape
        assert hidden.shape == memory.shape == (rows, self.hidden_size)
        sequence = Sequence(projected.data_ptr(), rows, times, projected.stride(0), projected.stride(1), *places)
        if not library.lstm_scan(again.place, ctypes.byref(sequence)):
            raise MemoryError(f"no memory for a step of {rows} rows")
        return found


class FusedAttention(Attention):
    """Scores v · tanh(q + k), their softmax and the context in one call."""

    def one_launch(self, keys: Float[Tensor, "batch heads source size"], values: Tensor) -> bool:
        pair = self.score.pair
        plain = type(self.selection) is Soft and not self.scope.bounded and native.library() is not None
        return plain and isinstance(pair, Network) and pair.activation == "tanh" and not too_large(keys)

    def bind_kernel(self, prepared: PreparedMemory) -> Select:
        library, pair, whole = native.library(), self.score.pair, prepared.values.expand(-1, self.heads, -1, -1)
        assert library is not None
        assert isinstance(pair, Network)
        pairs = torch.cat([exponential(prepared.keys.float()), whole.float()], dim=-1)
        visible = None if bool(prepared.counts.all()) else prepared.counts.contiguous()
        network = (2 * pair.score_vector.detach().float() / self.selection.temperature).contiguous()

        def select(queries: Tensor, asked: Tensor, state: AttentionState) -> Selection:
            each = exponential(queries.transpose(1, 2)).flatten(2)
            sizes = network.shape[1], pairs.shape[2]
            found = native.attend(library, each.flatten(0, 1), pairs, *sizes, None, visible, each.shape[1], network)
            context, weights = (one.view(*each.shape[:2], self.heads, -1).transpose(1, 2) for one in found)
            return context, weights, None

        return select


FUSED: dict[type[nn.Module], type[nn.Module]] = {LSTMCell: FusedLSTMCell, Attention: FusedAttention}


def with_products(module: nn.Module, pack: Pack, made: Made | None = None) -> nn.Module:
    """The same module with every Linear inside rewritten. Weights are shared, `module` stays as it is."""
    made = {} if made is None else made
    if id(module) not in made:
        made[id(module)] = rewritten(module, pack, made)
    return made[id(module)]


def rewritten(module: nn.Module, pack: Pack, made: Made) -> nn.Module:
    if isinstance(module, Linear):
        return LinearForInference(module, pack(*projection(module)))
    found = copy.copy(module)
    found.__class__ = FUSED.get(type(module), type(module))
    vars(found)["_modules"] = {
        name: None if child is None else with_products(child, pack, made) for name, child in module._modules.items()
    }
    return found
