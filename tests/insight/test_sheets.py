"""Several heatmaps as one picture, and true links as outlines, in every format."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from regard.insight.drawing import draw_svg
from regard.insight.figure import FORMATS, draw_figure, pdf
from regard.insight.heatmap import Heatmap, Sheet
from regard.insight.look import Candidate, Chance, Look, SideBySide
from regard.insight.maps import AttentionMap
from regard.insight.terminal import probabilities, terminal

LATIN, ENGLISH = ["servus", "laborat", "."], ["the", "slave", "works", "."]
SPACE = "{http://www.w3.org/2000/svg}"


def heat(title="", seed=1, target=ENGLISH, **more):
    weights = np.random.default_rng(seed).dirichlet(np.full(len(LATIN), 0.3), size=len(target))
    return Heatmap(LATIN, target, weights, title, **more)


SHEETS = {
    "grid": Sheet([heat(f"layer {layer}, head {head}", 2 * layer + head) for layer in (1, 2) for head in (1, 2)], 2, "all"),
    "beside": Sheet([heat("one"), heat("other", 2, ENGLISH[:2])], 2),
    "ragged": Sheet([heat(str(number), number) for number in range(5)], 3),
    "empty": Sheet([Heatmap([], [], np.ones((0, 0))), heat("one")], 2),
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", SHEETS)
def test_every_format_draws_every_sheet(kind, name, tmp_path):
    path = tmp_path / "picture"
    FORMATS[kind](SHEETS[name], path)
    begins = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<svg", "html": b"<!DOCTYPE html>"}
    assert path.read_bytes().startswith(begins[kind])


def test_words_that_the_neighbour_names_are_not_named_again():
    *cells, _ = draw_figure(SHEETS["grid"]).axes
    named = [([one.get_text() for one in axes.get_xticklabels()], [one.get_text() for one in axes.get_yticklabels()])
             for axes in cells]  # fmt: skip
    assert named == [(LATIN, ENGLISH), (LATIN, []), ([], ENGLISH), ([], [])]
    *cells, _ = draw_figure(SHEETS["beside"]).axes
    assert [len(axes.get_yticklabels()) for axes in cells] == [4, 2]


@pytest.mark.parametrize("name", SHEETS)
def test_no_heatmap_of_a_sheet_covers_another(name):
    *cells, _ = draw_figure(SHEETS[name]).axes
    boxes = [axes.get_position() for axes in cells]
    for at, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[at + 1 :])


def test_heatmaps_of_a_column_stand_below_each_other():
    first, second, third, fourth, _ = draw_figure(SHEETS["grid"]).axes
    for one, other in ((first, third), (second, fourth)):
        assert one.get_position().x0 == pytest.approx(other.get_position().x0)


def test_an_svg_has_every_cell_within_its_frame_and_is_told_in_words():
    root = ElementTree.fromstring(draw_svg(SHEETS["grid"]))
    assert root.get("role") == "img"
    name, told = root.find(f"{SPACE}title"), root.find(f"{SPACE}desc")
    assert root.get("aria-labelledby").split() == [name.get("id"), told.get("id")]
    assert name.text == "all"
    for one in SHEETS["grid"].heatmaps:
        column = int(one.weights[1].argmax())
        assert f"slave → {LATIN[column]}: {one.weights[1, column]:.3f}" in told.text
    wide, high, count = float(root.get("width")), float(root.get("height")), 0
    for group in root.iter(f"{SPACE}g"):
        left, top = map(float, re.fullmatch(r"translate\((\d+) (\d+)\)", group.get("transform", "translate(0 0)")).groups())
        for cell in (one for one in group.iter(f"{SPACE}rect") if one.get("class") == "cell" and group.get("transform")):
            assert left + float(cell.get("x")) + float(cell.get("width")) <= wide
            assert top + float(cell.get("y")) + float(cell.get("height")) <= high
            count += 1
    assert count == 4 * len(LATIN) * len(ENGLISH)


GOLD = heat("x", gold=frozenset({(0, 1)}), possible=frozenset({(0, 0)}))


def test_true_links_are_outlined_in_pictures(tmp_path):
    lines = draw_figure(GOLD).axes[0].lines
    found = {(round(line.get_xdata().mean() + 0.16, 0), round(np.mean(line.get_ydata()) + 0.16, 0)): line.get_linestyle()
             for line in lines}  # fmt: skip
    assert found == {(0, 1): "-", (0, 0): "--"}
    boxes = ElementTree.fromstring(draw_svg(GOLD)).find(f".//{SPACE}g[@class='gold']")
    cells = [one for one in ElementTree.fromstring(draw_svg(GOLD)).iter(f"{SPACE}rect") if one.get("class") == "cell"]
    for box, cell in zip(boxes, (cells[0], cells[len(LATIN)]), strict=True):
        assert (float(box.get("x")) - 2, float(box.get("y")) - 2) == (float(cell.get("x")), float(cell.get("y")))
    assert [bool(box.get("stroke-dasharray")) for box in boxes] == [True, False]
    FORMATS["html"](GOLD, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    (data,) = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["gold"] == [[0, 0, False], [1, 0, True]]
    assert all("outlined: true links" in text for text in (page, draw_svg(GOLD), terminal(GOLD, 80)))
    assert "outlined" not in draw_svg(heat())


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("width", [80, 16])
def test_true_links_are_outlined_on_the_terminal(color, width):
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal(GOLD, width, color))
    rows = [line for line in plain.splitlines() if line.lstrip().startswith(("the ", "slave ", "sla… "))]
    assert len(rows) >= 2
    assert [sign in rows[0] for sign in "()[]"] == [True, True, False, False]
    assert [sign in rows[1] for sign in "()[]"] == [False, False, True, True]


def test_a_pdf_has_the_same_bytes_whenever_it_is_drawn(tmp_path):
    for name in "ab":
        pdf(GOLD, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def a_look(seed=1):
    maps = [AttentionMap("cross", layer, head, heat(f"run: {layer}{head}", 2 * layer + head + seed))
            for layer in (1, 2) for head in (1, 2)]  # fmt: skip
    maps.append(AttentionMap("encoder", 1, 1, heat("run: e", 9)))
    return Look("servus laborat .", "the slave works .", heat("run: mean", seed), maps)


def test_a_grid_has_a_row_for_each_layer():
    sheet = a_look().grid("cross")
    assert (sheet.across, sheet.title) == (2, "run: attention to the source, every head")
    assert [one.title for one in sheet.heatmaps] == [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)]
    np.testing.assert_array_equal(sheet.heatmaps[3].weights, a_look().view("cross", 2, 2).weights)


def test_gold_is_of_the_alignment_alone():
    look = a_look().against({(0, 1)}, {(0, 0), (0, 1)})
    assert (look.heatmap.gold, look.heatmap.possible) == ({(0, 1)}, {(0, 0)})
    assert [bool(one.heatmap.gold) for one in look.maps] == [True] * 4 + [False]


def test_looks_side_by_side_are_drawn_as_one(tmp_path):
    both = SideBySide([a_look(), a_look(3)])
    for kind in ("png", "pdf", "svg", "html"):
        getattr(both, kind)(tmp_path / f"both.{kind}")
    with Image.open(tmp_path / "both.png") as picture:
        assert picture.width > picture.height
    page = (tmp_path / "both.html").read_text("utf-8")
    assert (page.count('<section class="beside">'), page.count("<figure>")) == (1, 2)
    assert both._repr_html_() == (tmp_path / "both.svg").read_text("utf-8")
    assert repr(both).count("run: mean") == 2


def test_many_looks_are_drawn_in_rows_so_that_words_have_room():
    assert [SideBySide([a_look(seed) for seed in range(count)]).sheet.across for count in (2, 4, 14)] == [2, 4, 4]


def test_probabilities_are_told_beside_what_else_was_probable():
    told = probabilities([Chance("\x1b", 0, 0.75, [("\x1b", 0.75), ("b", 0.25)])], [Candidate("a c", -0.5)])
    assert told.splitlines()[1] == "␛ 0.750  ␛ 0.750, b 0.250"
    assert told.splitlines()[-1] == "  -0.500  a c"
    assert probabilities([], []) == ""
