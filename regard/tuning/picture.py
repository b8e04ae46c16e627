"""A picture of a search: scores over time, and the score at the first rung against each entry."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import UserError
from regard.insight.drawing import INK
from regard.tuning.halving import Search
from regard.tuning.telling import told

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3  # panels side by side
FAINT, CHOSEN = "#9ecae1", "#d94801"


def draw(search: Search, shares: dict[str, float]) -> list[Path]:
    """Written as PNG and SVG; the names of both."""
    figure = figure_of(search, shares)
    paths = [search.directory / f"tune.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=130, facecolor="white")
    return paths


def figure_of(search: Search, shares: dict[str, float]) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("pictures need matplotlib: pip install 'regard[figures]'") from None

    rows = -(-len(search.space) // COLUMNS)
    figure = Figure(figsize=(4 * COLUMNS, 3.4 + 2.6 * rows), layout="constrained")
    places = figure.add_gridspec(1 + rows, COLUMNS, height_ratios=[1.3, *[1] * rows])
    over_time(figure.add_subplot(places[0, :]), search)
    order = sorted(search.space, key=lambda name: -shares.get(name, 0.0))
    for place, name in enumerate(order):
        share = f" ({shares[name]:.0%})" if name in shares else ""
        against(figure.add_subplot(places[1 + place // COLUMNS, place % COLUMNS]), search, name, name + share)
    return figure


def over_time(axes: Any, search: Search) -> None:
    """Each trial's rungs, joined by a line; the best so far above them all."""
    elapsed, paths, best = 0.0, dict[int, list[tuple[float, float]]](), list[tuple[float, float]]()
    for number, one in search.trials.history:
        elapsed += one.seconds
        if one.score is not None:
            paths.setdefault(number, []).append((elapsed / 60, one.score))
            scores = [score for _, score in best[-1:]] + [one.score]
            best.append((elapsed / 60, max(scores) if search.ranking.higher_is_better else min(scores)))
    for number, path in paths.items():
        style = {"color": CHOSEN, "label": "the chosen recipe", "zorder": 3} if number == 0 else {"color": FAINT}
        axes.plot(*zip(*path, strict=True), marker="o", markersize=4, linewidth=1, **style)
    axes.step(*zip(*best, strict=True), where="post", color=INK, linewidth=2, label="the best so far")
    axes.plot([], [], "o", color=INK, label="below: went on after rung 1")
    axes.plot([], [], "o", color=FAINT, label="other trials")
    axes.set(xlabel="minutes of training", ylabel=f"{search.metric} in validation", title="Trials, rung by rung")
    axes.legend(frameon=False)
    stretch(axes, search)


def stretch(axes: Any, search: Search) -> None:
    """Errors of what has learned nothing are many times those of the others: a logarithmic scale keeps both in sight."""
    from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

    lowest, highest = axes.get_ylim()
    if not search.ranking.higher_is_better and 0 < lowest < highest / 4:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(ScalarFormatter())


def against(axes: Any, search: Search, name: str, title: str) -> None:
    """All trials at the first rung, which is the same for all; darker where they came further."""
    values = search.space[name]
    for trial in search.ranking.at(1, search.trials.all):
        one = trial.at(1)
        if one is not None and one.score is not None:
            further = len(trial.reached) > 1
            color = CHOSEN if trial.number == 0 else INK if further else FAINT
            axes.plot(values.index(trial.values[name]), one.score, "o", color=color, zorder=3 if trial.number == 0 else 2)
    axes.set_xticks(range(len(values)), [told(name, value) for value in values], fontsize=8, rotation=30 * (len(values) > 5))
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(f"{search.metric}, rung 1", fontsize=8)
    stretch(axes, search)
