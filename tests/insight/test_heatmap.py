import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from rich.cells import cell_len

from regard.errors import UserError
from regard.insight import coloured, fonts
from regard.insight import page as page_module
from regard.insight import panels as panels_module
from regard.insight.coloured import Coloured
from regard.insight.drawing import svg
from regard.insight.figure import FORMATS, boxes, draw_figure, png
from regard.insight.heatmap import Heatmap, abbreviate, digits, graphemes, printable
from regard.insight.look import Candidate, Chance
from regard.insight.maps import AttentionMap, View, rollout, view
from regard.insight.page import PageFigure, html
from regard.insight.panels import Panels
from regard.insight.terminal import terminal

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
LATIN = ["puella", "parva", "in", "horto", "rosas", "videt"]
ENGLISH = ["the", "small", "girl", "sees", "roses", "in", "the", "garden"]
ODD = ["<script>alert(1)</script>", "$x$", "$", "\\frac", "שלום", "مرحبا", "e\u0301te\u0301", "👩\u200d👩\u200d👧"]
ODD += ["日本語", "a\nb", " ", "", "\x1b[31m", "\ud800", "\uffff", "\u202eabc", '"&amp;"', "x" * 500]
ODD += ["🇩🇪🇫🇷", "👍🏽", "☕\ufe0f", "ก็", "हिन्दी", "Z" + "\u0351" * 40, "\u200bzw", "a\u200cb", "\ufeff", "ﷺ"]


def heat(source, target, title="", seed=1):
    weights = np.random.default_rng(seed).dirichlet(np.full(max(len(source), 1), 0.3), size=len(target))
    return Heatmap(source, target, weights[:, : len(source)], title)


SENTENCE = heat(LATIN, ENGLISH, "one sentence")
POSITIONS = [(1, 1), (1, 2), (2, 1), (2, 2)]  # layers and heads
HEATMAPS = {
    "sentence": SENTENCE,
    "odd": heat(ODD, ODD, '<b>"odd"</b> $x$ \x00'),
    "long": heat([f"word{i}" for i in range(100)], [f"wort{i}" for i in range(100)]),
    "single": Heatmap(["a"], ["b"], np.ones((1, 1), dtype=np.float32)),
    "no target": heat(LATIN, []),
    "no source": heat([], ENGLISH),
    "nothing": heat([], []),
    "no weight": Heatmap(["a", "b"], ["c"], np.zeros((1, 2))),
    "strange weights": Heatmap(["a", "b", "c"], ["d"], np.array([[np.nan, -1.0, 7.0]])),
}


@pytest.fixture(autouse=True)
def terminal_with_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")


class Page(HTMLParser):
    """What a browser would see: the tags with their attributes, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)

    def named(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", HEATMAPS)
def test_every_format_draws_every_heatmap(kind, name, tmp_path):
    path = tmp_path / f"picture.{kind}"
    FORMATS[kind](HEATMAPS[name], path)
    assert path.stat().st_size > 100


@pytest.mark.parametrize("kind", FORMATS)
def test_weights_must_fit_the_words(kind, tmp_path):
    with pytest.raises(AssertionError):
        FORMATS[kind](Heatmap(["a", "b"], ["c"], np.ones((2, 1))), tmp_path / "picture")


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("width", [24, 40, 80, 200])
@pytest.mark.parametrize("name", HEATMAPS)
def test_terminal_stays_within_the_width(name, width, color):
    lines = terminal(HEATMAPS[name], width, color).split("\n")
    assert max(cell_len(ESCAPE.sub("", line)) for line in lines) <= width
    assert all(character.isprintable() or character in "\u200c\u200d" for line in lines for character in ESCAPE.sub("", line))


def test_terminal_names_all_words_and_the_strongest():
    lines = terminal(SENTENCE, 80, color=False).splitlines()
    rows = [line for line in lines if " -> " in line]
    best = [LATIN[column] for column in SENTENCE.weights.argmax(axis=1)]
    assert [(row.split()[0], row.split(" -> ")[1]) for row in rows] == list(zip(ENGLISH, best, strict=True))
    header = lines[2 : lines.index(rows[0])]
    label = max(map(len, ENGLISH)) + 1
    written = ["".join(line[label + 3 * i : label + 3 * i + 1] for line in header) for i in range(len(LATIN))]
    assert [word.strip() for word in written] == LATIN
    assert lines[0] == "one sentence"


def test_terminal_shades_follow_the_weights():
    weights = np.array([[0.0, 0.25, 0.5], [0.75, 1.0, 0.0]])
    lines = terminal(Heatmap(["a", "b", "c"], ["x", "y"], weights), 80, color=False).splitlines()
    assert lines[1:3] == ["x    ░░░▒▒▒ 0.50 -> c", "y ▓▓▓███    1.00 -> b"]
    assert lines[-1] == "0   ░░▒▒▓▓██ 1"


def test_long_sentences_continue_in_panels_with_every_row_summed_up_once():
    heatmap = heat([f"s{i}" for i in range(50)], [f"t{i}" for i in range(4)])
    text = terminal(heatmap, 40, color=False)
    panels = text.split("\n\n")[:-1]
    assert len(panels) > 2
    assert all([line[:2] for line in panel.splitlines()[-4:]] == ["t0", "t1", "t2", "t3"] for panel in panels)
    assert text.count(" -> ") == 4


@pytest.mark.parametrize(
    ("variable", "code"), [("truecolor", "48;2;150;215;255"), ("24bit", "48;2;150;215;255"), ("", "48;5;255")]
)
def test_terminal_speaks_the_colours_the_terminal_knows(variable, code, monkeypatch):
    monkeypatch.setenv("COLORTERM", variable)
    assert f"b \x1b[{code}m   \x1b[0m 1.00 -> a" in terminal(HEATMAPS["single"], 40)


def test_no_color_is_heeded(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal(SENTENCE, 80) == terminal(SENTENCE, 80, color=False)
    assert "\x1b" not in terminal(SENTENCE, 80)


def test_terminal_takes_the_width_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    assert terminal(SENTENCE) == terminal(SENTENCE, 30)


def test_png_is_darkest_where_the_weight_is_largest(tmp_path):
    path = tmp_path / "picture.png"
    weights = np.array([[0.2, 0.2], [0.4, 0.3], [0.1, 0.45]])
    png(Heatmap(["", ""], ["", "", ""], weights), path)
    image = np.asarray(Image.open(path).convert("L"))
    margin, cell = round(0.15 * 150), 0.34 * 150  # inches at 150 dots
    edges = [[image[round(margin + (r + 0.1) * cell), round(margin + (c + 0.5) * cell)] for c in (0, 1)] for r in (0, 1, 2)]
    assert image.shape[1] == pytest.approx(2 * margin + 2 * cell, abs=20)
    assert np.argsort(np.asarray(edges), axis=None, kind="stable").tolist() == [5, 2, 3, 0, 1, 4]
    assert np.min(edges) > 128  # 0.45 is not certain, although it is the largest weight here


def test_png_writes_words_and_weights_as_they_are():
    axes, bar = draw_figure(Heatmap(["$x$", "b"], ["c_1"], np.array([[0.91, 0.0]]), "$t$")).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["$x$", "b"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["c_1"]
    assert [text.get_text() for text in axes.texts] == [".91"]
    assert [label.get_text() for label in bar.get_xticklabels()] == ["0", "1"]
    assert not any(text.get_parse_math() for text in [*axes.get_xticklabels(), *axes.get_yticklabels(), axes.title])


def test_matplotlib_keeps_its_state_and_is_imported_late(tmp_path):
    code = (
        "import sys, numpy as np; from pathlib import Path; from regard.insight.figure import Heatmap, png\n"
        "assert not {'matplotlib', 'torch'} & sys.modules.keys()\n"
        f"png(Heatmap(['a'], ['b'], np.ones((1, 1))), Path({str(tmp_path / 'picture.png')!r}))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", HEATMAPS)
def test_svg_is_xml_with_a_cell_for_each_weight(name, tmp_path):
    heatmap, path = HEATMAPS[name], tmp_path / "picture.svg"
    svg(heatmap, path)
    root, space = ElementTree.parse(path).getroot(), "{http://www.w3.org/2000/svg}"
    cells = [rect for rect in root.iter(f"{space}rect") if rect.get("class") == "cell"]
    assert len(cells) == heatmap.weights.size
    opacity = np.array([float(cell.get("fill-opacity")) for cell in cells]).reshape(heatmap.weights.shape)
    np.testing.assert_allclose(opacity, heatmap.shades, atol=6e-4)
    texts = [text.text or "" for text in root.iter(f"{space}text")]
    assert len(texts) == 1 + len(heatmap.source) + len(heatmap.target) + len(["0", "1"])
    assert not list(root.iter(f"{space}script"))


def test_svg_tells_weights_and_stays_inside_its_frame(tmp_path):
    svg(SENTENCE, tmp_path / "picture.svg")
    root = ElementTree.parse(tmp_path / "picture.svg").getroot()
    told = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert told[:2] == ["one sentence", f"the → puella: {SENTENCE.weights[0, 0]:.3f}"]
    cells = [rect for rect in root.iter() if rect.get("class") == "cell"]
    assert max(float(cell.get("x")) + float(cell.get("width")) for cell in cells) <= float(root.get("width"))
    assert max(float(cell.get("y")) + float(cell.get("height")) for cell in cells) <= float(root.get("height"))


def data_of(page):
    """What the script of a page draws."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def unpacked(figure, seen):
    kind = np.dtype("<u2") if seen["bits"] == 16 else np.dtype("u1")
    steps = np.frombuffer(base64.b64decode(seen["weights"]), kind).astype(float)
    shape = len(figure["sides"][seen["rows"]]), len(figure["sides"][seen["columns"]])
    return steps.reshape(shape) / (2 ** seen["bits"] - 1) * seen["peak"]


@pytest.mark.parametrize("name", HEATMAPS)
def test_page_holds_every_word_and_weight(name, tmp_path):
    heatmap, path = HEATMAPS[name], tmp_path / "page.html"
    html(heatmap, path)
    text = path.read_text(encoding="utf-8")
    page, (figure,) = Page(text), data_of(text)
    (seen,) = figure["views"]
    expected = np.nan_to_num(heatmap.weights).clip(min=0)
    np.testing.assert_allclose(unpacked(figure, seen), expected, atol=heatmap.peak / 2**16)
    assert figure["sides"][seen["rows"]] == [printable(word) for word in heatmap.target]
    assert figure["sides"][seen["columns"]] == [printable(word) for word in heatmap.source]
    assert all(printable(word) in page.text for word in heatmap.target if word)  # without its script too
    assert len(page.named("script")) == 2  # data and ours, whatever the words say


def test_page_holds_every_head_and_says_what_is_coarser(monkeypatch, tmp_path):
    maps = [
        AttentionMap("cross", layer, head, heat(LATIN, ENGLISH, seed=layer * 3 + head)) for layer in (1, 2) for head in (1, 2)
    ]
    figure = PageFigure(SENTENCE, maps, [Chance("</script>", 0, 0.5, [("<b>", 0.5)])], [Candidate("<i>", -1.0)])
    for fine, bits in ((10**6, 16), (0, 8)):
        monkeypatch.setattr(page_module, "FINE", fine)
        html([figure], tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text(encoding="utf-8")
        (found,) = data_of(text)
        assert [(seen["kind"], seen["layer"], seen["head"]) for seen in found["views"][1:]] == [
            ("cross", *at) for at in POSITIONS
        ]
        for seen, one in zip(found["views"][1:], maps, strict=True):
            assert seen["bits"] == bits
            np.testing.assert_allclose(unpacked(found, seen), one.heatmap.weights, atol=2.0**-bits)
        assert "&lt;/script&gt;" in text
        assert text.count("</script>") == 2
        assert len(found["sides"]) == 2


def test_page_fetches_nothing(tmp_path):
    html([*HEATMAPS.values()], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    assert not any({"src", "href", "action"} & attributes.keys() for _, attributes in page.tags)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|fetch\(", text)
    assert len(page.named("figure")) == len(HEATMAPS)


def test_page_lets_only_its_own_script_run(tmp_path):
    html(SENTENCE, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    fingerprint = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{fingerprint}'" in text


def test_a_shade_means_the_same_in_every_picture():
    """0.38 is not painted as certain, even where it is the largest weight."""
    weak = Heatmap(["a", "b"], ["c"], np.array([[0.38, 0.1]]))
    np.testing.assert_allclose(weak.shades, weak.weights)
    assert terminal(weak, 80, color=False).splitlines()[-1] == "0   ░░▒▒▓▓██ 1"
    heatmap = HEATMAPS["strange weights"]
    assert heatmap.peak == 7.0
    np.testing.assert_array_equal(heatmap.shades, [[0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(HEATMAPS["no weight"].shades, 0.0)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_end_mark_has_a_column(kind, tmp_path):
    heatmap = Heatmap(["a"], ["b"], np.array([[0.2]]), "runs/x: additive attention", np.array([0.8]))
    assert heatmap.whole.weights.tolist() == [[0.2, 0.8]]
    assert "-> </s>" in terminal(heatmap, 80, color=False)
    FORMATS[kind](heatmap, tmp_path / "picture")
    if kind in ("png", "pdf"):
        assert len(draw_figure(heatmap.whole).axes[0].get_xticklabels()) == 2
    else:
        text = (tmp_path / "picture").read_text(encoding="utf-8")
        assert all(told in text for told in ("&lt;/s&gt;", "0.800", "runs/x: additive attention"))


def test_characters_without_a_font_are_named_with_the_package_to_install(monkeypatch):
    monkeypatch.setattr(fonts, "installed", lambda: {"Letters": "letters.ttf", "Greek": "greek.ttf"})
    monkeypatch.setattr(fonts, "characters_of", {"letters.ttf": set(range(128)), "greek.ttf": {0x3B1}}.__getitem__)
    assert fonts.fonts_for(["abc"]) == (["Letters"], [])
    assert fonts.fonts_for(["aα", "我 ก"]) == (["Letters", "Greek"], ["ก", "我"])
    told = boxes(Heatmap(["我"], ["ก"], np.ones((1, 1))))
    assert "no installed font has ก 我" in told
    assert "apt install fonts-noto-core fonts-noto-cjk" in told
    assert boxes(SENTENCE) is None


def test_words_without_a_font_are_named_in_every_picture_and_drawn_without_noise(tmp_path):
    """pytest makes warnings errors."""
    word = "\U00012000"  # cuneiform
    panels = Panels(np.zeros((4, 4, 3), np.uint8), [word], np.ones((1, 2, 2)))
    text = Coloured("title", [[(word, 1.0)]])
    panels_module.saved(panels, "png")
    coloured.save(text, tmp_path / "text")
    assert all(f"no installed font has {word}:" in told for told in (panels_module.boxes(panels), coloured.boxes(text)))
    assert panels_module.boxes(panels._replace(words=["a"])) is None


def test_printable_shows_what_would_not_be_seen():
    assert printable("a\nb\t\x1b[0m") == "a↵b⇥␛[0m"
    assert printable(" ") == "␣"
    assert printable("a b") == "a b"
    assert printable("\ud800\x85\u2028\ufffe\u202e") == "\ufffd" * 5
    assert printable("日本 e\u0301 👩\u200d👧 שלום") == "日本 e\u0301 👩\u200d👧 שלום"


def test_graphemes_keep_together_what_is_read_together():
    assert graphemes("e\u0301a👩\u200d👩\u200d👧日") == ["e\u0301", "a", "👩\u200d👩\u200d👧", "日"]


def test_a_flag_is_one_letter_and_two_flags_are_two():
    assert graphemes("a🇩🇪🇫🇷👍🏽") == ["a", "🇩🇪", "🇫🇷", "👍🏽"]
    header = terminal(Heatmap(["🇩🇪🇫🇷"], ["x"], np.ones((1, 1))), 80, color=False).splitlines()[:2]
    assert [line.strip() for line in header] == ["🇩🇪", "🇫🇷"]


def test_letters_keep_few_marks_and_what_has_no_width_is_seen():
    assert printable("e\u0301" + "Z" + "\u0351" * 40) == "e\u0301" + "Z" + "\u0351" * 6 + "\ufffd"
    assert printable("\u200ba\u00adb\u200e") == "\ufffda\ufffdb\ufffd"
    assert printable("a\u200cb ☕\ufe0f") == "a\u200cb ☕\ufe0f"


def test_marks_without_a_font_are_named_on_a_letter_and_selectors_are_not(monkeypatch):
    monkeypatch.setattr(fonts, "installed", lambda: {"Letters": "letters.ttf"})
    monkeypatch.setattr(fonts, "characters_of", {"letters.ttf": set(range(128))}.__getitem__)
    assert fonts.fonts_for(["e\u0301\u200d\ufe0f"])[1] == ["\u0301"]
    assert "no installed font has ◌\u0301:" in fonts.advice(["\u0301"])


@pytest.mark.parametrize(("text", "expected"), [("horto", "horto"), ("hortos", "hort…"), ("日本語", "日本…"), ("", "")])
def test_abbreviate_counts_columns(text, expected):
    assert abbreviate(text, 5) == expected


def test_digits_are_short():
    weights = [0.0, 0.0499, 0.05, 0.934, 0.996, 1.0, 1.26, 12.3, float("nan")]
    assert [digits(weight) for weight in weights] == ["", "", ".05", ".93", "1.0", "1.0", "1.3", "12", ""]


def test_a_rollout_is_the_product_of_layers_with_what_goes_past_them():
    """Abnar & Zuidema 2020, in NumPy: Π (A + I) / 2, the highest layer leftmost."""
    layers = list(np.random.default_rng(2).dirichlet(np.ones(5), size=(3, 5)))
    half = [(one + np.eye(5)) / 2 for one in layers]
    np.testing.assert_allclose(rollout(layers), half[2] @ half[1] @ half[0])
    np.testing.assert_allclose(rollout(layers).sum(1), 1)


def test_views_are_heads_or_means_of_them():
    maps = [
        AttentionMap("cross", layer, head, heat(LATIN, ENGLISH, "run: x", layer * 3 + head))
        for layer in (1, 2)
        for head in (1, 2)
    ]
    maps.append(AttentionMap("encoder", 1, 1, heat(LATIN, LATIN, "run: e")))
    maps.append(AttentionMap("encoder", None, None, heat(LATIN, LATIN, "run: r"), rollout=True))
    weights = np.array([one.heatmap.weights for one in maps[:4]]).reshape(2, 2, len(ENGLISH), len(LATIN))
    np.testing.assert_array_equal(view(maps, View("cross", 2, 1)).heatmap.weights, weights[1, 0])
    np.testing.assert_allclose(view(maps, View("cross", 1)).heatmap.weights, weights[0].mean(0))
    np.testing.assert_allclose(view(maps, View()).heatmap.weights, weights.mean((0, 1)))
    assert view(maps, View("cross", 2, 1)).heatmap.title == "run: attention to the source, layer 2, head 1"
    titles = {
        View("cross", 2): "layer 2, mean of heads",
        View(head=2): "mean of layers, head 2",
        View("encoder"): "layer 1, head 1",
    }
    assert all(view(maps, wanted).heatmap.title.endswith(f", {told}") for wanted, told in titles.items())
    assert AttentionMap("encoder_experts", 2, 1, maps[0].heatmap).name == "experts of the encoder, layer 2"  # no heads
    assert view(maps, View("encoder", rollout=True)) is maps[-1]
    for wanted, told in (
        (View("cross", 3), "layers go from 1 to 2, heads from 1 to 2"),
        (View("copy"), "no map 'copy'; it has cross, encoder"),
        (View("cross", rollout=True), "a rollout is of the self-attention of a Transformer"),
    ):
        with pytest.raises(UserError, match=told):
            view(maps, wanted)
