"""Vanishing gradients: |dL/dh_t| of every step t, for each cell, with attention to all steps and without."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.insight.curves import Lines, Picture, Series
from regard.lab.experiment import Asked, Experiment, Report, Row, Setting, of, smoke
from regard.lab.grids import spread
from regard.nn.attention import Attention
from regard.nn.recurrent.cell import Cell
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.gradient_flow import gradient_flow
from regard.nn.recurrent.scan import scan

READINGS = {"last state": False, "attention": True}


class Reader(nn.Module):
    """softmax(W h_T), or softmax(W [h_T; c]) with c = Σ_t α_t h_t, the query being h_T."""

    def __init__(self, size: int, attends: bool) -> None:
        super().__init__()
        self.attention = Attention(size, size, size=size) if attends else None
        self.output = nn.Linear(2 * size if attends else size, size)

    def forward(self, states: Float[Tensor, "batch time size"]) -> Float[Tensor, "batch size"]:
        last = states[:, -1]
        if self.attention is not None:
            context = self.attention(last[:, None], self.attention.prepare(states)).context
            last = torch.cat([last, context[:, 0]], dim=-1)
        logits: Tensor = self.output(last)
        return logits


def flow(cell: Cell, reader: Reader, inputs: Float[Tensor, "batch time input"], answers: Tensor) -> list[float]:
    """|dL/dh_t| from the first step to the last, the mean over rows; L is the mean of -log p(answer)."""
    with gradient_flow() as found:
        states, _ = scan(cell, inputs)
        torch.autograd.backward(functional.cross_entropy(reader(states), answers))
    norms: list[float] = found.norms().mean(dim=1).tolist()
    return norms


def trial(asked: Asked, name: str, seed: int, run: Path) -> Row:
    size, steps, batch = (asked.setting.values[key] for key in ("size", "steps", "batch"))
    row: Row = {}
    for reading, attends in READINGS.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # the same cell, inputs and answers for both readings
            cell, inputs, answers = CELLS[name](size, size), torch.randn(batch, steps, size), torch.randint(size, (batch,))
            row[reading] = flow(cell, Reader(size, attends), inputs, answers)
    return row | {f"{reading}, first / last": row[reading][0] / row[reading][-1] for reading in READINGS}


def reach(norms: Sequence[float], share: float = 0.01) -> int:
    """How many steps back a gradient of at least this share of the last one's is found."""
    return max(len(norms) - 1 - time for time, norm in enumerate(norms) if norm >= share * norms[-1])


def report(asked: Asked, rows: list[Row]) -> Report:
    grid = [["cell", *(f"{what}: {key}" for what in READINGS for key in ("|dL/dh_1| / |dL/dh_T|", "steps back to 1 %"))]]
    for name in asked.names:
        cells = []
        for reading in READINGS:
            ratio = mean(of(rows, name, f"{reading}, first / last"))
            cells += [f"{ratio:.1e}", spread([reach(norms) for norms in of(rows, name, reading)])]  # type: ignore[arg-type]
        grid.append([name, *cells])
    title = "Gradients through time, by cell, before training"
    panels = [panel(asked.names, rows, reading) for reading in READINGS]
    notes = ["random inputs and answers, new weights; L = -log p(answer), read from h_T, or from h_T and attention to all h_t"]
    return Report(
        title, grid, claims(rows), notes, {"gradients": Picture(title, panels, "; ".join(asked.budget), one_scale=True)}
    )


def panel(names: Sequence[str], rows: list[Row], reading: str) -> Lines:
    """The mean over seeds, each divided by that of the last step; a gradient that float32 calls 0 is not drawn."""
    series = []
    for name in names:
        each = [[norm / norms[-1] for norm in norms] for norms in of(rows, name, reading)]  # type: ignore[attr-defined, index]
        series.append(Series(name, range(1, len(each[0]) + 1), [mean(norms) or None for norms in zip(*each, strict=True)]))
    return Lines(f"read from: {reading}", "step t", "|dL/dh_t| / |dL/dh_T|", series, log_y=True)


def claims(rows: list[Row]) -> list[tuple[str, bool | None]]:
    names = list(dict.fromkeys(row["name"] for row in rows))
    ratio = {(name, what): mean(of(rows, name, f"{what}, first / last")) for name in names for what in READINGS}
    both = {"tanh", "lstm_b"} <= set(names)
    gated = ratio["lstm_b", "last state"] > ratio["tanh", "last state"] if both else None
    shortcut = all(ratio[name, "attention"] > ratio[name, "last state"] for name in names)
    return [
        ("vanishing gradients stop vanilla RNNs, gates mitigate them (004): LSTM with b_f = 1 against tanh", gated),
        ("attention helps with the vanishing gradient: a shortcut to faraway states (000, 002, 004): every cell", shortcut),
    ]


EXPERIMENT = Experiment(
    settings={
        "smoke": smoke(size=8, steps=12, batch=4),
        "quick": Setting("under a minute on two cores", seeds=3, values={"size": 64, "steps": 60, "batch": 16}),
        "full": Setting("longer and wider; not run yet", seeds=10, values={"size": 256, "steps": 400, "batch": 32}),
    },
    names=lambda: list(CELLS),
    trial=trial,
    report=report,
)
