"""Where models looked, on a web page: one file that fetches nothing. What is drawn by its script is there as text too."""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.insight.heatmap import END_MARK, GOLD_TOLD, Heatmap, Sheet, printable
from regard.insight.maps import ATTENTION_MAPS, AttentionMap

if TYPE_CHECKING:
    from regard.insight.look import Candidate, Chance

STYLE, SCRIPT = ((files("regard.insight") / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
FINE = 4_000_000  # weights of one figure: up to so many have 65,536 steps, more of them have 256
MOST = 3  # words that a line of text names
FAINT = 0.005  # weights below it are named nowhere


class PageFigure(NamedTuple):
    """One text: the picture that is shown first, and what else can be chosen."""

    heatmap: Heatmap
    maps: Sequence[AttentionMap] = ()
    chances: Sequence["Chance"] = ()
    candidates: Sequence["Candidate"] = ()


def html(picture: Heatmap | Sheet | Sequence[Heatmap | PageFigure], path: Path) -> None:
    """One page for one or many sentences; those of a sheet stand beside each other."""
    if isinstance(picture, Sheet):
        return write_page([[PageFigure(one) for one in picture.heatmaps]], path)
    shown = [picture] if isinstance(picture, Heatmap) else picture
    write_page([[one if isinstance(one, PageFigure) else PageFigure(one)] for one in shown], path)


def write_page(groups: Sequence[Sequence[PageFigure]], path: Path) -> None:
    """Figures of one group are beside each other."""
    path.write_text(draw_page(groups), encoding="utf-8")


def draw_page(groups: Sequence[Sequence[PageFigure]]) -> str:
    data = json.dumps([figure_data(one) for group in groups for one in group], ensure_ascii=False).replace("<", "\\u003c")
    drawn = "\n".join(map(draw_group, groups))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width">\n<title>Where the model looked</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>Where the model looked</h1>\n"
        '<p class="note">Point at a word or a cell, or choose the matrix and press arrow keys; a click stays until Escape. '
        f"The stronger a cell, the larger its weight. {escape(END_MARK)} is the end of the text.</p>\n"
        f"<main>\n{drawn}\n</main>\n"
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def draw_group(figures: Sequence[PageFigure]) -> str:
    drawn = "\n".join(map(draw_figure, figures))
    return f'<section class="beside">\n{drawn}\n</section>' if len(figures) > 1 else drawn


def policy() -> str:
    """The browser may run our script and nothing else, and fetch nothing at all."""
    fingerprint = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{fingerprint}'"


def figure_data(figure: PageFigure) -> dict[str, Any]:
    """What the script draws. Names of rows and columns stand once, whichever views share them."""
    whole, sides = figure.heatmap.whole, list[list[str]]()
    views = [AttentionMap("reading", None, None, whole), *figure.maps]
    count = sum(one.heatmap.weights.size for one in views)
    model, _, shown = printable(whole.title).partition(": ")
    told = {name: kind.told for name, kind in ATTENTION_MAPS.items()} | {"reading": shown or "alignment"}
    return {
        "views": [view_data(one, sides, 16 if count <= FINE else 8) for one in views],
        "sides": sides,
        "told": told,
        "model": model,
        "headed": [name for name, kind in ATTENTION_MAPS.items() if kind.headed],
        "peak": max(one.heatmap.peak for one in views),
        "gold": [[row, column, (column, row) in whole.gold] for column, row in sorted(whole.gold | whole.possible)],
        "chances": [{"word": one.word, "probability": one.probability, "others": others_of(one)} for one in figure.chances],
    }


def others_of(chance: "Chance") -> list[tuple[str, float]]:
    """The most probable tokens beside the one that was written."""
    others = [(printable(token), round(share, 4)) for token, share in chance.alternatives if token != chance.token]
    return others[: MOST - 1]


def view_data(one: AttentionMap, sides: list[list[str]], bits: int) -> dict[str, Any]:
    places = list[int]()
    for names in (one.heatmap.target, one.heatmap.source):
        side = [printable(name) for name in names]
        if side not in sides:
            sides.append(side)
        places.append(sides.index(side))
    written = one.kind == "reading" or ATTENTION_MAPS[one.kind].rows == "written"
    peak = one.heatmap.peak
    return {
        "kind": one.kind, "layer": one.layer, "head": one.head, "rollout": one.rollout, "rows": places[0], "columns": places[1],
        "written": len(one.heatmap.target) * written, "bits": bits, "peak": peak,
        "weights": packed(one.heatmap.shades, bits),
    }  # fmt: skip


def packed(shades: Float[np.ndarray, "rows columns"], bits: int) -> str:
    """In so many steps from 0 to 1, as bytes, the lower first."""
    kind = np.dtype("<u2") if bits == 16 else np.dtype("u1")
    return base64.b64encode(np.rint(shades * (2**bits - 1)).astype(kind).tobytes()).decode()


def draw_figure(figure: PageFigure) -> str:
    heatmap = figure.heatmap.whole
    title = escape(printable(heatmap.title))
    assert heatmap.weights.shape == (len(heatmap.target), len(heatmap.source)), heatmap.weights.shape
    keys = "arrow keys move; Escape ends"
    legend = f'<span class="legend">{GOLD_TOLD}</span>' if heatmap.gold | heatmap.possible else ""
    return (
        f"<figure>\n<figcaption>{title}</figcaption>\n"
        f'<div class="controls"><span class="scale">0<i></i>{heatmap.peak:g}</span>{legend}</div>\n'
        f'<div class="strip"><div class="row" tabindex="0" role="group" aria-label="what was looked at; {keys}"></div>'
        '<svg aria-hidden="true"></svg>'
        f'<div class="row" tabindex="0" role="group" aria-label="what looked; {keys}"></div></div>\n'
        f'<p class="status" role="status" aria-live="polite"></p>\n'
        f'<div class="matrix" tabindex="0" role="group" aria-label="weights of {title}; {keys}"><div>'
        '<canvas aria-hidden="true"></canvas></div></div>\n'
        f"{as_text(heatmap)}\n{draw_chances(figure)}</figure>"
    )


def as_text(heatmap: Heatmap) -> str:
    """What each word looked at most, for readers of text."""
    rows = [
        f'<tr><th scope="row">{mark(word)}</th><td>{looked(heatmap, row)}</td></tr>' for row, word in enumerate(heatmap.target)
    ]
    return f'<details class="told"><summary>As text</summary>\n<table>\n{"".join(rows)}\n</table></details>'


def looked(heatmap: Heatmap, row: int) -> str:
    weights = np.nan_to_num(heatmap.weights[row])
    best = [place for place in np.argsort(-weights, kind="stable")[:MOST] if weights[place] >= FAINT]
    return ", ".join(f"{mark(heatmap.source[place])} {weights[place]:.3f}" for place in best)


def draw_chances(figure: PageFigure) -> str:
    """Each token's probability beside the most probable ones, and the outputs of the beam."""
    if not figure.chances:
        return ""
    rows = [
        f'<tr><th scope="row">{mark(one.token)}</th>'
        f"<td>{one.probability:.3f}</td><td>"
        f"{', '.join(f'{mark(other)} {chance:.3f}' for other, chance in one.alternatives)}</td></tr>"
        for one in figure.chances
    ]
    found = "".join(f'<li>{mark(one.text)} <span class="note">{one.log_prob:.3f}</span></li>' for one in figure.candidates)
    return (
        f"<details><summary>Probabilities</summary>\n<table>\n{''.join(rows)}\n</table>\n"
        f"{f'<p>The beam, with log p:</p><ol>{found}</ol>' if found else ''}</details>\n"
    )


def mark(word: str) -> str:
    return f"<bdi>{escape(printable(word))}</bdi>"
