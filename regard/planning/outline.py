"""A model without numbers: tensors that have a shape and a kind, and what is computed with them, counted.

A forward pass runs as it would on a CPU, but what is made of floating-point numbers has none: it costs no memory and hardly any
time. Whole numbers (words, lengths, what is visible) are real, so that whatever depends on them is decided.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from regard.nn.outline import Outline
from regard.nn.transformer.experts import Between, Experts

aten = torch.ops.aten
ATTENTION = "attention"  # whose products have no weight


def storage_of(tensor: Tensor) -> torch.UntypedStorage:
    return (tensor.shape_only if isinstance(tensor, Outline) else tensor).untyped_storage()


def address(tensor: Tensor) -> int:
    return int(storage_of(tensor)._cdata)


# Where the left factor stands among the arguments: a product of [.. n] and [n, m] is 2 n operations a number of the result
PRODUCTS: dict[Any, int] = {
    aten.mm.default: 0, aten.bmm.default: 0, aten.mv.default: 0, aten.dot.default: 0, aten.addmm.default: 1,
    aten.addmm_.default: 1, aten.baddbmm.default: 1, aten.addmv.default: 1,
}  # fmt: skip
if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
    PRODUCTS[torch.ops.mkldnn._linear_pointwise.default] = 0
LOOKS = (aten._scaled_dot_product_flash_attention_for_cpu.default,)  # of queries, keys and values: scores and their mixing


def operations(func: Any, args: Any, result: Any) -> int:
    """Of one call: a multiplication and its addition are two; what is no product is not counted."""
    if func in LOOKS:
        query, keys, values = args[:3]
        return 2 * int(query.shape[:-1].numel() * keys.shape[-2] * (keys.shape[-1] + values.shape[-1]))
    return 2 * int(result.numel()) * int(args[PRODUCTS[func]].shape[-1]) if func in PRODUCTS else 0


class Drawing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes with outlines of a device, and counts the operations of products by the part that owns their weight.

    A weight that is cast, turned, normalised or put beside others belongs to the part that it came from; a table of embeddings
    that is multiplied by is a tied output's. A product of two results is attention's (inside of experts theirs), of the side
    (`encoder.`, `decoder.`) that is at work.
    """

    def __init__(self, planned: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.planned = planned
        self.operations: Counter[str] = Counter()
        self.side, self.unowned = "", ATTENTION
        self.owners: dict[int, tuple[str, torch.UntypedStorage]] = {}  # kept, so that no other storage takes its address

    def own(self, tensor: Tensor, part: str) -> None:
        self.owners[address(tensor)] = part, storage_of(tensor)

    def owner(self, tensor: Tensor) -> str | None:
        found = self.owners.get(address(tensor))
        return None if found is None else found[0]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not any(isinstance(one, Outline) for one in tensors):
            return func(*args, **kwargs) if tensors or not makes_numbers(func, args, kwargs) else self.drawn(func, args, kwargs)
        if func is aten._local_scalar_dense.default:
            return 0  # a number that is asked for: nothing is too large
        in_place = func._schema.name.endswith("_")  # which changes numbers, and there are none
        result = args[0] if in_place else self.drawn(func, whole_numbers(func, args), kwargs)
        self.follow(func, tensors, args, result)
        return result

    def follow(self, func: Any, tensors: list[Tensor], args: Any, result: Any) -> None:
        owners = [self.owner(one) for one in tensors]
        if all(owners) and func not in PRODUCTS:
            for leaf in tree_leaves(result):
                if isinstance(leaf, Tensor):
                    self.own(leaf, str(owners[0]))
        elif count := operations(func, args, result):
            weight = next((owner for owner in reversed(owners) if owner is not None), self.side + self.unowned)
            self.operations["output" if weight == "embeddings" else weight] += count

    def drawn(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The call on the device `meta`; where it changes a tensor, that tensor is its result."""
        known = {id(leaf.shape_only): leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Outline)}
        kwargs = {**kwargs, "device": torch.device("meta")} if kwargs.get("device") is not None else kwargs
        args, kwargs = tree_map(on_meta, (args, kwargs))

        def outlined(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            return known[id(leaf)] if id(leaf) in known else Outline(leaf, self.planned)

        return tree_map(outlined, func(*args, **kwargs))


def makes_numbers(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether this makes a tensor of floating-point numbers out of nothing."""
    if "device" not in kwargs:
        return False
    made = func(*args, **{**kwargs, "device": "meta"})
    return isinstance(made, Tensor) and made.is_floating_point()


def on_meta(leaf: Any) -> Any:
    if isinstance(leaf, Outline):
        return leaf.shape_only
    return leaf.to("meta") if isinstance(leaf, Tensor) else leaf


def whole_numbers(func: Any, args: Any) -> Any:
    """What is picked by yes and no is picked by the places of yes: on `meta` nobody could tell how many there are."""
    if func is not aten.index.Tensor:
        return args
    places = [one if one is None or one.dtype != torch.bool else one.nonzero().unbind(1) for one in args[1]]
    spread = [part for one in places for part in (one if isinstance(one, tuple) else (one,))]
    return args[0], spread, *args[2:]


@contextmanager
def kept(apart: Iterable[Tensor]) -> Iterator[Callable[[], int]]:
    """A function that tells how many bytes autograd keeps of what is computed here, tensors `apart` aside; what lies in one
    place counts once."""
    known = {address(tensor) for tensor in apart}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        if address(tensor) not in known:
            storages[address(tensor)] = storage_of(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield lambda: sum(storage.nbytes() for storage in storages.values())


def watch(drawing: Drawing, model: nn.Module) -> None:
    """Lets the drawing know when an encoder or experts are at work."""

    def tell(**facts: str) -> Callable[..., None]:
        return lambda *_: vars(drawing).update(facts)

    drawing.side = "decoder."
    if isinstance(encoder := getattr(model, "encoder", None), nn.Module):
        encoder.register_forward_pre_hook(tell(side="encoder."))
        encoder.register_forward_hook(tell(side="decoder."))
    for part in model.modules():
        if isinstance(part, Between | Experts):
            part.register_forward_pre_hook(tell(unowned="experts"))
            part.register_forward_hook(tell(unowned=ATTENTION))
