"""Heatmaps on a web page: one file that fetches nothing, and can be read without its script."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np
from jaxtyping import Float

from regard.insight.heatmap import END_MARK, STRONG, Heatmap, digits, labels, printable, tell

STYLE = """
:root { color-scheme: light dark; --ink: 8 81 156; --on-ink: #fff; --line: #dde4ec; --quiet: #5b6673; }
@media (prefers-color-scheme: dark) {
  :root { --ink: 120 190 255; --on-ink: #06121f; --line: #2c3540; --quiet: #9aa6b3; }
}
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } .note { color: var(--quiet); font-size: .85rem; }
figure { margin: 0 0 2rem; padding: 1rem 0 0; border-top: 1px solid var(--line); overflow-x: auto; }
figcaption { font-weight: 600; }
.scale i { display: inline-block; width: 1.1em; height: .8em; border: 1px solid var(--line);
  background: rgb(var(--ink) / var(--w, 0)); }
dl { margin: .25rem 0 .75rem; display: grid; grid-template-columns: auto 1fr; column-gap: .75rem; }
dt { color: var(--quiet); } dd { margin: 0; }
dd bdi { padding: .05em .2em; border-radius: .2em; }
.source bdi { background: rgb(var(--ink) / calc(var(--w, 0) * .75)); } .target bdi { cursor: default; }
table { border-collapse: collapse; font-size: .85rem; }
thead th { height: 1em; padding: 0 0 .35rem; vertical-align: bottom; }
thead bdi { display: inline-block; writing-mode: vertical-rl; text-orientation: sideways; white-space: nowrap;
  transform: rotate(180deg); }
th { font-weight: 400; text-align: right; white-space: nowrap; padding-right: .5rem; }
thead th { text-align: center; padding-right: 0; }
td { box-sizing: border-box; width: 1.9rem; min-width: 1.9rem; height: 1.9rem; padding: 0;
  border: 1px solid var(--line); text-align: center; font-size: .7rem; background: rgb(var(--ink) / var(--w, 0)); }
td.strong { color: var(--on-ink); }
tbody tr:hover th, tbody tr.on th, .target .on { font-weight: 600; box-shadow: inset 0 -2px rgb(var(--ink)); }
tbody tr:hover td, tbody tr.on td { border-block-color: rgb(var(--ink)); }
"""

SCRIPT = """
for (const figure of document.querySelectorAll("figure")) {
  const sources = figure.querySelectorAll(".source bdi"), targets = figure.querySelectorAll(".target bdi");
  const rows = figure.querySelectorAll("tbody tr");
  const show = (chosen) => {
    rows.forEach((row, i) => row.classList.toggle("on", i === chosen));
    targets.forEach((word, i) => word.classList.toggle("on", i === chosen));
    sources.forEach((word, i) => word.style.setProperty(
      "--w", chosen < 0 ? 0 : rows[chosen].cells[i + 1].style.getPropertyValue("--w") || 0));
  };
  for (const words of [targets, rows]) words.forEach((word, i) => {
    for (const name of ["pointerenter", "focus"]) word.addEventListener(name, () => show(i));
    for (const name of ["pointerleave", "blur"]) word.addEventListener(name, () => show(-1));
  });
}
"""


def html(heatmaps: Heatmap | Sequence[Heatmap], path: Path) -> None:
    """One page for one or many sentences; hovering over a target word shades the source words it looked at."""
    shown = [heatmaps] if isinstance(heatmaps, Heatmap) else heatmaps
    path.write_text(draw_page(one.whole for one in shown), encoding="utf-8")


def draw_page(heatmaps: Iterable[Heatmap]) -> str:
    figures = "\n".join(map(draw_sentence, heatmaps))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width">\n<title>Where the model looked</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>Where the model looked</h1>\n"
        '<p class="note">Point at a target word to see the source words it looked at. '
        f"The stronger a cell, the larger its weight: {draw_scale()} {END_MARK} is the end of the source.</p>\n"
        f"{figures}\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def draw_scale() -> str:
    """0 to 1 in every picture, whatever its largest weight is."""
    steps = "".join(f'<i style="--w:{step / 8}"></i>' for step in range(9))
    return f'0 <span class="scale">{steps}</span> 1.'


def policy() -> str:
    """The browser may run our script and nothing else, and fetch nothing at all."""
    fingerprint = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{fingerprint}'"


def draw_sentence(heatmap: Heatmap) -> str:
    title = f"<figcaption>{escape(printable(heatmap.title))}</figcaption>\n" if heatmap.title else ""
    return (
        f'<figure>\n{title}<dl><dt>source</dt><dd class="source" dir="auto">{draw_words(heatmap.source)}</dd>\n'
        f'<dt>target</dt><dd class="target" dir="auto">{draw_words(heatmap.target, " tabindex=0")}</dd></dl>\n'
        f"{draw_table(heatmap)}\n</figure>"
    )


def draw_words(words: Iterable[str], attributes: str = "") -> str:
    return " ".join(f"<bdi{attributes}>{escape(printable(word))}</bdi>" for word in words)


def draw_table(heatmap: Heatmap) -> str:
    source, target = labels(heatmap.source), labels(heatmap.target)
    names = "".join(f'<th scope="col"><bdi>{escape(word)}</bdi></th>' for word in source)
    rows = [
        f'<tr><th scope="row"><bdi>{escape(word)}</bdi></th>{draw_row(source, word, weights, shades)}</tr>'
        for word, weights, shades in zip(target, heatmap.weights, heatmap.shades, strict=True)
    ]
    body = "\n".join(rows)
    return f"<table>\n<thead><tr><th></th>{names}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def draw_row(
    source: Sequence[str],
    target: str,
    weights: Float[np.ndarray, " source"],
    shades: Float[np.ndarray, " source"],
) -> str:
    cells = []
    for word, weight, shade in zip(source, weights.tolist(), shades.tolist(), strict=True):
        strong = ' class="strong"' if shade > STRONG else ""
        told = escape(tell(word, target, weight))
        cells.append(f'<td{strong} style="--w:{shade:.3f}" title="{told}">{digits(weight)}</td>')
    return "".join(cells)
