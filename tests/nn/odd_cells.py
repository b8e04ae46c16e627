"""Cells that a user may write and that no table has: right on every path that takes them, or refused."""

import torch

from regard.nn.recurrent.cells import GatedCell, Hidden


class HiddenAndReset(GatedCell):
    """One sum with both products."""

    terms = ("xh", "xhm")

    def update(self, pre, state):
        return Hidden(torch.tanh(pre[1]) * torch.sigmoid(pre[0]))


class TwoResets(GatedCell):
    terms = ("xh", "xm", "xm")

    def update(self, pre, state):
        return Hidden(torch.tanh(pre[1]) * torch.sigmoid(pre[2]))


class OnlySquashed(GatedCell):
    terms = ("xt",)

    def update(self, pre, state):
        return Hidden(torch.tanh(pre[0]))


class SquashedFirst(GatedCell):
    terms = ("xt", "xh")

    def update(self, pre, state):
        return Hidden(torch.tanh(pre[0]) * torch.sigmoid(pre[1]))


class ResetFirst(GatedCell):
    terms = ("xm", "xh")

    def reset(self, pre, state):
        return torch.tanh(state.hidden)

    def update(self, pre, state):
        return Hidden(torch.tanh(pre[0]) * torch.sigmoid(pre[1]))


class ResetOfItself(GatedCell):
    """The reset sees a sum that still lacks its m."""

    terms = ("xh", "xm")

    def reset(self, pre, state):
        return torch.sigmoid(pre[1]) * state.hidden

    def update(self, pre, state):
        return Hidden(torch.tanh(pre[1]) * torch.sigmoid(pre[0]))


class SquashedInput(GatedCell):
    """tanh keeps its result for the way back, and a scan overwrites it."""

    terms = ("xh",)

    def enter(self, projected):
        return torch.tanh(projected)

    def update(self, pre, state):
        return Hidden(torch.tanh(pre[0]))


class Learned(GatedCell):
    """A parameter that `vectors` does not name."""

    terms = ("xh",)

    def build(self):
        super().build()
        self.scale = torch.nn.Parameter(torch.tensor(0.5))

    def update(self, pre, state):
        return Hidden(torch.tanh(pre[0]) * self.scale)


class Divided(GatedCell):
    terms = ("xh",)

    def update(self, pre, state):
        return Hidden(torch.tanh(pre[0]) / 2)


class ByMethod(GatedCell):
    terms = ("xh",)

    def update(self, pre, state):
        return Hidden(pre[0].tanh())


class WithSine(GatedCell):
    """Nobody knows the derivative."""

    terms = ("xh",)

    def update(self, pre, state):
        return Hidden(torch.sin(pre[0]) + 0.5 * state.hidden)


class LateReset(GatedCell):
    """Its reset needs the second sum, and the kernels begin it when the first is there."""

    terms = ("xh", "xh", "xm")

    def reset(self, pre, state):
        return torch.sigmoid(pre[1]) * state.hidden

    def update(self, pre, state):
        return Hidden(torch.tanh(pre[2]) * torch.sigmoid(pre[0]))


class Leaky(GatedCell):
    """Its equation depends on the instance."""

    terms = ("xh",)
    leak = 0.5

    def update(self, pre, state):
        return Hidden(self.leak * state.hidden + torch.tanh(pre[0]))


NOT_CARRIED = (
    HiddenAndReset,
    TwoResets,
    OnlySquashed,
    SquashedFirst,
    ResetFirst,
    LateReset,
)  # elementwise, but no kernel has room
NOT_TRACED = (ResetOfItself, Learned, ByMethod, WithSine)  # left to the loop
ODD = (*NOT_CARRIED, *NOT_TRACED, SquashedInput, Leaky, Divided)
