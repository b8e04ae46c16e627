"""The paths that a device takes, for outlines: no kernel is launched, and what each keeps for the way back is kept."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regard.nn import dropout
from regard.nn.attention.attend import FASTEST
from regard.nn.kernels.attention import additive, flash, short
from regard.nn.kernels.attention.flash_launch import FlashRule, Saved
from regard.nn.kernels.layers import activation, grouped, norm, words
from regard.nn.recurrent import scan
from regard.nn.recurrent.gated_scan import Engine, ScanGradients, ScanPass


@contextmanager
def replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Other entries of a table, or other names of a module, for a while."""
    table = owner if isinstance(owner, dict) else vars(owner)
    before = {name: table[name] for name in values if name in table}
    table.update(values)
    try:
        yield
    finally:
        for name in values:
            table.pop(name)
        table.update(before)


def go_through(fixed: ScanPass, pre: Tensor, tracks: Sequence[Tensor]) -> None:
    """A scan multiplies every state but the last by U; all steps at once cost what they cost one by one."""
    for weight in fixed.weights.values():
        functional.linear(tracks[0][:, :-1].flatten(0, 1), weight)


def no_way_back(*_: Any) -> ScanGradients:
    raise AssertionError("an outline has no way back")


def one_product(rows: Tensor, weight: Tensor, bias: Tensor, groups: grouped.Groups) -> Tensor:
    """Each row meets the matrix of its own expert, whichever that is."""
    return functional.linear(rows, weight[0], bias[0])


def looked(query: Tensor, keys: Tensor, values: Tensor, *_: Any) -> None:
    """The products of an attention."""
    (query @ keys.mT) @ values


def looked_within(query: Tensor, keys: Tensor, values: Tensor, centre: Tensor | None, rule: FlashRule) -> tuple[Tensor, Saved]:
    """As many keys a query as its window has in the mean: what lies outside is not computed."""
    width = keys.shape[2]
    if rule.first is not None and rule.last is not None:
        seen = (rule.last.clamp(max=width - 1) - rule.first.clamp(min=0) + 1).clamp(min=0)
        width = round(float(seen.double().mean()))
    looked(query, keys[:, :, :width], values[:, :, :width])
    log_sum = query.new_empty(query.shape[:3], dtype=torch.float32)
    context = query.new_empty(*query.shape[:3], values.shape[3])
    return context, Saved(query, keys, values, centre, context, log_sum, None, None, None)


def compared(
    query: Tensor, keys: Tensor, score_vector: Tensor, values: Tensor, *limits: Tensor | None
) -> tuple[Tensor, Tensor]:
    """v · tanh(q + k) multiplies as often as q · k does."""
    found: tuple[Tensor, Tensor] = _Compared.apply(query, keys, score_vector, values, *limits)  # type: ignore[no-untyped-call]
    return found


class _Compared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, score_vector: Tensor, values: Tensor, *limits: Tensor | None) -> Any:
        looked(query, keys, values)
        context = values.new_empty(*query.shape[:3], values.shape[3], dtype=torch.float32)
        log_sum = context.new_empty(context.shape[:3])
        ctx.save_for_backward(query, keys, score_vector, values, context, log_sum, *limits)
        return context.to(values.dtype), log_sum


def drop(layer: dropout.Dropout, input: Tensor) -> Tensor:
    """A GPU keeps a byte a number."""
    return torch.native_dropout(input, layer.p, True)[0] if layer.training and layer.p > 0 else input


def nothing(*_: Any) -> None:
    pass


def everywhere(stack: ExitStack) -> None:
    """Steps of scans and groups of experts depend on numbers, which outlines do not have."""
    stack.enter_context(replaced(scan.PATHS, outline=scan.gated(Engine(go_through, no_way_back))))
    stack.enter_context(replaced(scan.APPLIES, outline=scan.plain_gated))
    stack.enter_context(replaced(scan.FASTEST, cpu=("outline",)))
    stack.enter_context(replaced(grouped.PATHS, loop=one_product))


def on_gpu(stack: ExitStack) -> None:
    """As if its kernels were interpreted: those that are made for a GPU say that they apply, and what would launch them does
    not."""
    stack.enter_context(replaced(FASTEST, cpu=FASTEST["cuda"]))
    stack.enter_context(replaced(short, launch_forward=looked))
    stack.enter_context(replaced(flash, launch_forward=looked_within))
    stack.enter_context(replaced(additive, additive_attention=compared))
    stack.enter_context(replaced(norm, joined=nothing))
    stack.enter_context(replaced(activation, activated=nothing))
    stack.enter_context(replaced(words, brought_in=lambda states, *_: torch.empty_like(states)))
    for kernels in (short, flash, additive, norm, activation):
        stack.enter_context(replaced(kernels, interpreted=lambda: True, available=lambda: True))
    before = dropout.Dropout.forward
    stack.callback(setattr, dropout.Dropout, "forward", before)
    dropout.Dropout.forward = drop  # type: ignore[method-assign, assignment]


DEVICES: dict[str, Callable[[ExitStack], None]] = {"cpu": lambda stack: None, "cuda": on_gpu}


@contextmanager
def paths_of(device: str) -> Iterator[None]:
    with ExitStack() as stack:
        everywhere(stack)
        DEVICES[device](stack)
        yield
