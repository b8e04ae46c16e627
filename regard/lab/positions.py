"""What models without recurrence know of places: how alike two places look, for each kind of positions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from regard.insight.curves import Lines, Map, Panel, Picture, Series
from regard.lab.experiment import Asked, Experiment, Report, Row, Setting, smoke
from regard.nn.positions import POSITIONS, Positions

Matrix = Float[np.ndarray, "places places"]
CLAIM = (
    "tokens with similar relative position have similar sin/cos encoding; just appending t has not (001, Positional encoding)"
)


def kind_of(name: str, asked: Asked, seed: int) -> Positions:
    values = asked.setting.values
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return POSITIONS[name](values["size"], 1, longest=values["places"], distance=values["places"] // 4)


@torch.no_grad()
def alike(kind: Positions, places: int) -> Matrix:
    """Cell (t, s): cos(p_t, p_s) of vectors that are part of what is read; the scaled dot product of a query of ones at place
    t and a key of ones at place s where these are turned; else what is added to their score."""
    there = torch.arange(places)[None]
    if kind.absolute:
        vectors = kind.encode(there)[0].double()
        norms = vectors.norm(dim=-1, keepdim=True).clamp(min=1e-9)
        both = vectors @ vectors.T if vectors.shape[-1] == 1 else (vectors / norms) @ (vectors / norms).T
        return both.numpy()
    ones = torch.ones(1, 1, places, kind.part, dtype=torch.float64)
    if kind.turns:
        turned = kind.turn(ones, there)[0, 0]
        return (turned @ turned.T / kind.part).numpy()
    bias = kind.bias(ones, there, places)
    return np.zeros((places, places)) if bias is None else bias[0, 0].double().numpy()


def shift(matrix: Matrix) -> float:
    """How much a pair of places changes when both move on by one: 0 where only their distance counts."""
    return float(np.abs(matrix[1:, 1:] - matrix[:-1, :-1]).max()) if len(matrix) > 1 else 0.0


def trial(asked: Asked, name: str, seed: int, run: Path) -> Row:
    kind = kind_of(name, asked, seed)
    known = kind.known_places
    parameters = sum(one.numel() for one in kind.parameters())
    return {"shift": shift(alike(kind, asked.setting.values["places"])), "known": known, "parameters": parameters}


def report(asked: Asked, rows: list[Row]) -> Report:
    grid = [["positions", "how", "change when both places move on by one", "places known", "parameters"]]
    found = {row["name"]: row for row in rows}
    for name in asked.names:
        row = found[name]
        known = "all" if row["known"] is None else f"{row['known']:,}"
        grid.append([name, how(POSITIONS[name]), f"{row['shift']:.1e}", known, f"{row['parameters']:,}"])
    holds = found["sinusoid"]["shift"] < 1e-5 < found["index"]["shift"] if {"sinusoid", "index"} <= found.keys() else None
    title = "Positions: how alike two places look"
    kinds = {name: kind_of(name, asked, 1) for name in asked.names}
    pictures = {"positions": Picture(title, alikeness(kinds, asked), "; ".join(asked.budget))}
    if vectors := encodings(kinds, asked.setting.values["places"]):
        pictures["encodings"] = Picture("Positions that are part of what is read", vectors, "; ".join(asked.budget))
    notes = [
        "learned ones as they begin, before training",
        "sinusoid, learned: cosines; index: t s / 100²; others: added scores",
    ]
    return Report(title, grid, [(CLAIM, holds)], notes, pictures)


def how(kind: type[Positions]) -> str:
    """Where it enters."""
    return "read" if kind.absolute else "turns q, k" if kind.turns else "added to scores" if kind.relative else "nothing"


def alikeness(kinds: dict[str, Positions], asked: Asked) -> Sequence[Panel]:
    places = asked.setting.values["places"]
    return [Map(name, "place s", "place t", alike(kind, places)) for name, kind in kinds.items()]


@torch.no_grad()
def encodings(kinds: dict[str, Positions], places: int) -> list[Panel]:
    """The vectors themselves, and four of the curves that sinusoids are made of."""
    there, panels = torch.arange(places)[None], list[Panel]()
    for name, kind in kinds.items():
        if kind.absolute:
            vectors = kind.encode(there)[0].double().numpy()
            panels.append(Map(name, "element", "place t", vectors))
    if "sinusoid" in kinds:
        waves = kinds["sinusoid"].encode(there)[0].double().numpy()
        chosen = sorted({0, waves.shape[1] // 8 * 2, waves.shape[1] // 4 * 2, waves.shape[1] - 2} - {-1, -2})
        series = [Series(f"element {one}", range(places), waves[:, one].tolist()) for one in chosen]
        panels.append(Lines("sinusoid, element by element", "place t", "p_t", series))
    return panels


EXPERIMENT = Experiment(
    settings={
        "smoke": smoke(size=8, places=12),
        "quick": Setting("seconds", values={"size": 64, "places": 64}),
        "full": Setting("seconds", values={"size": 512, "places": 256}),
    },
    names=lambda: list(POSITIONS),
    trial=trial,
    report=report,
)
