"""Functions with a gradient of their own, called with the types of their forward."""

from typing import Any, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

Inputs = ParamSpec("Inputs")
Outputs = TypeVar("Outputs", covariant=True)


@runtime_checkable
class Differentiable(Protocol[Inputs, Outputs]):
    """A torch.autograd.Function."""

    @staticmethod
    def forward(ctx: Any, *inputs: Inputs.args, **named: Inputs.kwargs) -> Outputs: ...


def apply(function: type[Differentiable[Inputs, Outputs]], *inputs: Inputs.args, **named: Inputs.kwargs) -> Outputs:
    """`function.apply`, which torch leaves untyped."""
    return cast(Any, function).apply(*inputs)  # type: ignore[no-any-return]
