"""What does a cell state track (lecture 004)? The units of a recurrent language model, each token after the other, beside what
can be counted in the text; the unit that follows it best on some texts is judged on others."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from regard.corpora import CORPORA, generate
from regard.data.lines import read_lines
from regard.data.tokenizers import END, START
from regard.decoding.language import TrainedLanguageModel
from regard.errors import DataError, UserError
from regard.insight.coloured import Coloured
from regard.lab.experiment import Report
from regard.models.decoders.recurrent import RecurrentDecoder
from regard.recipe import Recipe, choose, read

Numbers = Float[np.ndarray, "tokens"]
Tokens = Sequence[str]


def quotes(tokens: Tokens) -> list[float]:
    """1 inside a quotation: after an odd number of quotation marks."""
    counts = np.cumsum([token.count('"') for token in tokens])
    return [float(count % 2) for count in counts]


def depth(tokens: Tokens) -> list[float]:
    """Brackets that are open."""
    opened = [sum(letter in "([{" for letter in token) - sum(letter in ")]}" for letter in token) for token in tokens]
    return [float(number) for number in np.cumsum(opened)]


def indentation(tokens: Tokens) -> list[float]:
    """Spaces at the beginning of the line, so far."""
    found, spaces, begun = list[float](), 0, False
    for token in tokens:
        for letter in token:
            spaces, begun = (0, False) if letter == "\n" else (spaces + (not begun and letter == " "), begun or letter != " ")
        found.append(float(spaces))
    return found


def line_length(tokens: Tokens) -> list[float]:
    """Tokens since the line began."""
    found = list[float]()
    for token in tokens:
        found.append(0.0 if "\n" in token else (found[-1] if found else 0.0) + 1)
    return found


TRACKED: dict[str, Callable[[Tokens], list[float]]] = {
    "quotes": quotes,
    "depth": depth,
    "indentation": indentation,
    "line length": line_length,
}


class Unit(NamedTuple):
    """One number of the state: layer (from 1, the lowest), part (hidden, memory), place (from 0)."""

    layer: int
    part: str
    place: int

    def __str__(self) -> str:
        return f"layer {self.layer} {self.part} {self.place}"


class Texts(NamedTuple):
    """Texts, and what their tokens are tagged with, where that is known."""

    name: str
    texts: Sequence[str]
    tags: Sequence[str] = ()


class Watched(NamedTuple):
    """A model's states over texts: what each token is, and the states after it was read, all parts side by side."""

    units: list[Unit]
    tokens: list[list[str]]
    states: list[Float[np.ndarray, "tokens units"]]

    @property
    def all_states(self) -> Float[np.ndarray, "tokens units"]:
        return np.concatenate(self.states)


class Found(NamedTuple):
    """The unit whose correlation with a property is the strongest where it was searched, and what is left of it elsewhere."""

    what: str
    unit: Unit
    searched: float
    held_out: float


@torch.inference_mode()
def watch(trained: TrainedLanguageModel, texts: Sequence[str]) -> Watched:
    """Step by step, as the model writes. Of a model of one long text the state goes on from line to line."""
    decoder = trained.model.decoder
    if not isinstance(decoder, RecurrentDecoder):
        raise UserError(
            f"{trained.path}: this language model has no cells to look into (model.decoder.kind): take a recurrent one"
        )
    lines = [trained.target.encode([text])[0] for text in texts]
    if trained.lines_go_on:
        lines = [[token for line in lines for token in (*line, END)]]
    first, state = trained.model.start(trained.model.nothing(1))
    units = [
        Unit(layer, part, place)
        for layer, cell in enumerate(state.cells, start=1)
        for part, vectors in zip(cell._fields[: decoder.first.starts], cell, strict=False)
        for place in range(vectors.shape[-1])
    ]
    return Watched(units, [spelled(trained, line) for line in lines], [states_of(first, state, line) for line in lines])


def states_of(step: Any, state: Any, line: Sequence[int]) -> Float[np.ndarray, "tokens units"]:
    """After each token of the line; the start mark is read before the first, and again where a new line begins."""
    found, parts = [], len(state.cells[0]) if state.cells else 0
    state = step(torch.tensor([START]), state).state
    for token in line:
        state = step(torch.tensor([START if token == END else token]), state).state
        found.append(torch.cat([vectors[0] for cell in state.cells for vectors in cell[:parts]]).numpy())
    width = sum(vectors.shape[-1] for cell in state.cells for vectors in cell[:parts])
    return np.stack(found) if found else np.zeros((0, width))


def spelled(trained: TrainedLanguageModel, line: Sequence[int]) -> list[str]:
    """The text that each token adds, a space before a word being left out; the end of a line is a line feed."""
    found, before, begun = list[str](), "", 0
    for place, token in enumerate(line):
        if token == END:
            found.append("\n")
            before, begun = "", place + 1
            continue
        text = trained.target.decode(list(line[begun : place + 1]))
        added = text.removeprefix(before)
        found.append(added.removeprefix(" ") if trained.target.kind == "word" else added)
        before = text
    return found


def properties(watched: Watched, texts: Texts, names: Sequence[str]) -> dict[str, Numbers]:
    """Of all tokens, those properties that are not the same everywhere."""
    found = {name: np.array([one for tokens in watched.tokens for one in TRACKED[name](tokens)]) for name in names}
    if texts.tags:
        tags = [float(tag) for line in texts.tags for tag in line.split()]
        if len(tags) != sum(map(len, watched.tokens)):
            raise DataError(f"{texts.name}: {len(tags)} tags for {sum(map(len, watched.tokens))} tokens")
        found["tags"] = np.array(tags)
    return {name: values for name, values in found.items() if len(values) and values.std() > 0}


def correlations(states: Float[np.ndarray, "tokens units"], values: Numbers) -> Float[np.ndarray, "units"]:
    """Pearson's r of each unit; 0 of one that never changes."""
    centred, wanted = states - states.mean(axis=0), values - values.mean()
    norms = np.linalg.norm(centred, axis=0) * np.linalg.norm(wanted)
    found: Float[np.ndarray, _] = np.divide(wanted @ centred, norms, out=np.zeros(states.shape[1]), where=norms > 1e-9)
    return found


def search(searched: Watched, held_out: Watched, wanted: dict[str, Numbers], there: dict[str, Numbers]) -> list[Found]:
    """For each property the unit of the strongest correlation; only what varies in both sets of texts."""
    found = list[Found]()
    for name in wanted.keys() & there.keys():
        each = correlations(searched.all_states, wanted[name])
        best = int(np.abs(each).argmax())
        left = correlations(held_out.all_states[:, [best]], there[name])[0]
        found.append(Found(name, searched.units[best], float(each[best]), float(left)))
    return sorted(found, key=lambda one: -abs(one.held_out))


def texts_of(recipe: Recipe, files: Sequence[Path | None]) -> list[Texts]:
    """To search on and to judge on: files, or the validation and test texts of the recipe's corpus."""
    if all(files):
        return [Texts(path.name, lines(path)) for path in files if path is not None]
    if any(files):
        raise UserError("--text and --held-out go together: the cell is found on one and judged on the other")
    corpus = recipe.data.corpus
    if corpus is None:
        raise UserError("the recipe of this run has no generated corpus: name --text and --held-out, two texts")
    entry = choose(CORPORA, corpus.name, "corpus")
    splits = generate(entry, corpus.seed, size=1)
    tagged = entry.target_column == "tags"
    join = entry.joint
    return [
        Texts(
            f"{corpus.name}, {split}",
            [pair.source if join is None else f"{pair.source}{join}{pair.target}" for pair in splits[split]],
            [pair.target for pair in splits[split]] if tagged else (),
        )
        for split in ("valid", "test")
    ]


def lines(path: Path) -> list[str]:
    found = list[str]()
    for block in read_lines(path):
        for number, problem in block.problems.items():
            raise DataError(f"{path}:{number}: {problem}")
        found += block.texts
    return found


def inspect(trained: TrainedLanguageModel, both: Sequence[Texts], names: Sequence[str]) -> tuple[list[Found], Watched]:
    """What was found, and the states over the texts that it was judged on."""
    searched, held_out = (watch(trained, texts.texts) for texts in both)
    wanted, there = (properties(one, texts, names) for one, texts in zip((searched, held_out), both, strict=True))
    return search(searched, held_out, wanted, there), held_out


def coloured(watched: Watched, unit: Unit, title: str, number: int) -> Coloured:
    """The longest texts by the activation of one unit."""
    if unit not in watched.units:
        last = watched.units[-1]
        parts = " or ".join(dict.fromkeys(one.part for one in watched.units))
        raise UserError(f"there is no {unit}: layers from 1 to {last.layer}, {parts}, places from 0 to {last.place}")
    place = watched.units.index(unit)
    longest = sorted(range(len(watched.tokens)), key=lambda row: -len(watched.tokens[row]))[:number]
    shown = [
        [(token, float(value)) for token, value in zip(watched.tokens[row], watched.states[row][:, place], strict=True)]
        for row in longest
    ]
    return Coloured(title, shown, "" if any(" " in token for line in watched.tokens for token in line) else " ")


def recipe_in(run: Path) -> Recipe:
    path = next((one for one in (run / "recipe.yaml", run / "model" / "recipe.yaml") if one.is_file()), None)
    if path is None:
        raise UserError(f"{run}: no run and no model directory (no recipe.yaml)")
    return read(path)


def report(run: str, found: Sequence[Found], both: Sequence[Texts], units: int) -> Report:
    grid = [["what", "unit", f"r on {both[0].name}", f"r on {both[1].name}"]]
    grid += [[one.what, str(one.unit), f"{one.searched:+.3f}", f"{one.held_out:+.3f}"] for one in found]
    tracked = [one for one in found if abs(one.held_out) >= 0.5]
    claims = [("we can find semantic behaviour in dimensions of the cell state: indentation, quotes (004)", bool(tracked))]
    notes = [
        f"the best of {units:,} units for each property by |r| on {both[0].name}; r (Pearson) on {both[1].name} is what counts",
        "a property is tracked where |r| is 0.5 or more there; what is the same at every token is left out",
    ]
    return Report(f"What the cells of {run} track", grid, claims, notes)
