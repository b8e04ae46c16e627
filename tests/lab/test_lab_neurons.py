"""`regard lab neurons`: states are those of the cells, correlations NumPy's, and what is found is judged on other texts."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from calling import refused, regard

from regard.corpora import CORPORA, generate
from regard.data.tokenizers import START
from regard.decoding.load import load
from regard.insight.coloured import BLUE, RED, WHITE, Coloured, html, placed, terminal
from regard.lab.neurons import TRACKED, Unit, Watched, correlations, search, watch

SMALL = ["data.corpus.size=40", "training.updates=2", "training.validate_every=2", "training.save_every=2"]
SMALL += ["model.decoder.hidden_size=6", "model.decoder.embedding_size=4", "model.decoder.layers=2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("neurons") / "quotes"
    assert regard("train", "quotes", *SMALL, "-r", folder, "--quiet").code == 0
    return folder


def test_states_are_those_of_the_cells(run):
    """A loop over the cells of each layer, written out; dropout is off."""
    trained = load(run, "cpu")
    text = generate(CORPORA["quotes"], 1, 1)["test"][0].source
    watched = watch(trained, [text, "now"])
    decoder, tokens = trained.model.decoder, trained.target.encode([text])[0]
    states, found = [cell.zero_state(torch.zeros(1, 1)) for cell in decoder.cells], []
    with torch.no_grad():
        for token in [START, *tokens]:
            read = decoder.embed(torch.tensor([token]))
            for layer, cell in enumerate(decoder.cells):
                states[layer] = cell(read, states[layer])
                read = states[layer].hidden
            found.append(torch.cat([part[0] for state in states for part in state]).numpy())
    np.testing.assert_allclose(watched.states[0], np.stack(found[1:]), atol=1e-6)
    assert watched.tokens == [text.split(), ["now"]]
    assert watched.units[:7] == [*(Unit(1, "hidden", place) for place in range(6)), Unit(1, "memory", 0)]
    assert len(watched.units) == watched.states[0].shape[1] == 2 * 2 * 6


def test_correlations_are_numpys():
    chance = np.random.default_rng(1)
    states, values = chance.normal(size=(50, 4)), chance.normal(size=50)
    states[:, 2] = 0.3  # never changes
    expected = [np.corrcoef(states[:, place], values)[0, 1] if place != 2 else 0 for place in range(4)]
    np.testing.assert_allclose(correlations(states, values), expected)


def test_what_is_found_is_judged_elsewhere():
    """Unit 1 follows the property everywhere, unit 3 by chance where it is searched, and better there."""
    chance = np.random.default_rng(2)
    units = [Unit(1, "hidden", place) for place in range(4)]
    wanted, there = (chance.integers(2, size=200).astype(float) for _ in range(2))
    both = [chance.normal(size=(200, 4)) for _ in range(2)]
    for states, values in zip(both, (wanted, there), strict=True):
        states[:, 1] = values + 0.2 * chance.normal(size=200)
    watched = [Watched(units, [], [states]) for states in both]
    (found,) = search(*watched, {"x": wanted}, {"x": there})
    assert found.unit == units[1]
    assert found.held_out == pytest.approx(np.corrcoef(both[1][:, 1], there)[0, 1])
    both[0][:, 3] = -wanted
    (found,) = search(*watched, {"x": wanted}, {"x": there})
    assert (found.unit, found.searched) == (units[3], pytest.approx(-1))
    assert abs(found.held_out) < 0.3


def test_what_is_tracked_is_what_it_is_called():
    assert TRACKED["quotes"](["he", '"', "a", '"', "b"]) == [0, 1, 1, 0, 0]
    assert TRACKED["depth"](list("f(a[1]){")) == [0, 1, 1, 2, 2, 1, 0, 1]
    assert TRACKED["indentation"](list("  a b\n c")) == [1, 2, 2, 2, 2, 0, 1, 1]
    assert TRACKED["line length"](["a", "b", "\n", "c"]) == [1, 2, 0, 1]


def test_depth_is_that_of_the_corpus():
    """The corpus tags a closing brace with the block that it closes."""
    for pair in generate(CORPORA["code"], 1, 1)["test"]:
        tokens = pair.source.split()
        tags = [int(tag) - (token == "}") for token, tag in zip(tokens, pair.target.split(), strict=True)]
        assert TRACKED["depth"](tokens) == tags


class Spans(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag == "span":
            self.found.append((float(dict(attributes)["title"]), dict(attributes)["style"]))


def test_colours_are_those_of_the_numbers():
    text = Coloured("<title>", [[("a<b", -2.0), ("c", 0.0)], [("d", 1.0)]])
    assert [text.colour(value) for value in (-2.0, 0.0, 2.0)] == [BLUE, WHITE, RED]
    page, spans = html(text), Spans()
    spans.feed(page)
    assert [value for value, _ in spans.found] == [-2, 0, 1]
    assert f"background:rgb{BLUE}" in spans.found[0][1]
    assert "a&lt;b" in page
    assert "&lt;title&gt;" in page
    assert "http" not in page
    assert terminal(text).plain.splitlines()[1:] == ["a<b c ", "d "]


def test_long_lines_are_wrapped():
    found = list(placed(Coloured("", [[("abc", 0.0)] * 4, [("x", 0.0)]]), width=8))
    assert [(one.row, one.column) for one in found] == [(0, 0), (0, 4), (1, 2), (2, 2), (3, 0)]


def test_from_the_command_line(run, tmp_path):
    code, out, _ = regard("lab", "neurons", run, "--out", tmp_path / "out", "--number", 2)
    assert code == 0
    assert "r on quotes, test" in out
    assert {path.suffix for path in (tmp_path / "out").glob("neuron.*")} == {".html", ".png", ".svg"}
    rows = json.loads(regard("lab", "neurons", run, "--json").out)["rows"]
    assert {row["what"] for row in rows} == {"tags", "quotes", "line length"}  # there are neither brackets nor indentations
    own = tmp_path / "own.txt"
    own.write_text('she says " yes "\nhe says " no " now\n')
    words = ["lab", "neurons", run, "--text", own, "--held-out", own]
    rows = json.loads(regard(*words, "--track", "quotes", "--json").out)["rows"]
    assert [(row["what"], row["searched"]) for row in rows] == [("quotes", pytest.approx(rows[0]["held_out"]))]
    assert "layer 2 memory 5" in regard(*words, "--cell", "2.memory.5").out


def test_errors(run, tmp_path):
    assert "go together" in refused("lab", "neurons", run, "--text", tmp_path / "a")
    assert "places from 0 to 5" in refused("lab", "neurons", run, "--cell", "1.memory.99")
    assert "write LAYER.PART.PLACE" in refused("lab", "neurons", run, "--cell", "17")
    assert "did you mean 'quotes'" in refused("lab", "neurons", run, "--track", "quote")
    assert "neither a run nor a model directory" in refused("lab", "neurons", tmp_path)
