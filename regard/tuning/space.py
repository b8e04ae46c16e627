"""What a search varies around a recipe: one table of entries, each with the values that it proposes and the reason for them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from regard import preflight
from regard.choices.model import recurrent, transformer
from regard.data.fields import configure_fields
from regard.data.subwords import SentencePieceTokenizer
from regard.data.tokenizers import TOKENIZERS
from regard.errors import UserError
from regard.models import configure
from regard.overrides import flatten, override
from regard.planning.minutes import SIZES
from regard.recipe import Data, Recipe, parse

Values = dict[str, Any]  # of a whole recipe
Changes = dict[str, Any]  # dotted keys of a recipe, and what they become
SIDES = ("encoder", "decoder")


class Point(NamedTuple):
    """The recipe that is searched around, and what is known beside it."""

    values: Values  # with every default of the model filled in
    named: bool = False  # a recipe that somebody named: its family is what they asked for
    copied: float = 0.0  # the share of what is written that stands in the source

    @property
    def flat(self) -> dict[str, Any]:
        return flatten(self.values)


class Entry(NamedTuple):
    """One thing that a search may change: its values in order, the chosen one among them, and what a value does to a recipe.

    Entries are applied in the order of their table, each to what those above have made; so sizes and layers are told as
    changes, which mean the same for every family.
    """

    keys: tuple[str, ...]  # that it changes; sections stand for all that is in them
    around: Callable[[Point], Sequence[Any]]  # fewer than two: it makes no sense here
    chosen: Callable[[Point], Any]
    change: Callable[[Values, Any], Changes]
    reason: str
    shown: str = "{}"  # how a value is told


def kind_of(values: Values, side: str) -> str:
    return str(values["model"].get(side, {}).get("kind"))


def families(point: Point) -> Sequence[str]:
    kinds = {kind_of(point.values, side) for side in SIDES}
    return () if point.named or len(kinds) != 1 or not kinds <= FAMILIES.keys() else tuple(FAMILIES)


def other_family(values: Values, family: str) -> Changes:
    """A model of the other family and of about the same cost; its dropout and its copying stay."""
    encoder, decoder = (values["model"][side] for side in SIDES)
    if encoder["kind"] == family:
        return {}
    changes = FAMILIES[family](encoder)
    copying = decoder.get("copy_words")
    changes["model.decoder"] |= {"copy_words": copying} if copying else {}
    shared = family == "transformer" and values["data"]["tokenizer"]["shared"] and not values["data"]["fields"]
    return {**changes, "model.share_embeddings": shared}


def as_recurrent(encoder: Values) -> Changes:
    size = max(encoder["hidden_size"] // 2, 64)
    return recurrent("gru", size, size, 1, encoder["dropout"])


def as_transformer(encoder: Values) -> Changes:
    size = max(encoder["hidden_size"] // 64, 1) * 64
    return transformer(size, 4 * size, max(encoder["layers"], 2), 4, encoder["dropout"])


FAMILIES: dict[str, Callable[[Values], Changes]] = {"recurrent": as_recurrent, "transformer": as_transformer}


def ways_of_copying(point: Point) -> Sequence[str | None]:
    """Where both sides are cut into the same units, and some of what is written can be copied."""
    now, flat = copying_of(point), point.flat
    cut = {flat.get(f"data.fields.{name}.tokenizer.kind") for name in ("source", "target")}
    sensible = "model.decoder.copy_words" in flat and len(cut) == 1 and point.copied >= ENOUGH_COPIED
    return (None, now or "gated") if now or sensible else ()


ENOUGH_COPIED = 0.2  # of the target's letters


def copying_of(point: Point) -> Any:
    return point.flat.get("model.decoder.copy_words")


def copy(values: Values, way: str | None) -> Changes:
    """Without copying there is nothing that made-up stems and hidden words could teach."""
    lessons = {} if way else {"training.made_up_stems": 0.0, "training.unknown_words": 0.0}
    return {"model.decoder.copy_words": way, **lessons}


def depths(point: Point) -> Sequence[int]:
    layers = [point.flat.get(f"model.{side}.layers") for side in SIDES]
    whole = [number for number in layers if isinstance(number, int)]
    return tuple(more for more in (-1, 0, 1, 2) if min(whole) + more >= 1) if len(whole) == len(SIDES) else ()


def deepen(values: Values, more: int) -> Changes:
    return {f"model.{side}.layers": values["model"][side]["layers"] + more for side in SIDES} if more else {}


def widths(values: Values) -> Iterator[tuple[str, int]]:
    """The sizes of both sides, by key; the attention of a recurrent decoder has one of its own."""
    for side in SIDES:
        section = values["model"].get(side, {})
        yield from ((f"model.{side}.{key}", section[key]) for key in SIZES if isinstance(section.get(key), int))
        if isinstance(own := (section.get("attention") or {}).get("size"), int):
            yield f"model.{side}.attention.size", own


def widen(values: Values, factor: float) -> Changes:
    """Rounded to what the heads can share among themselves: equal sizes stay equal."""
    heads = [(values["model"][side].get("attention") or {}).get("heads", 1) for side in SIDES]
    step = max(8, *(2 * number for number in heads))
    return {key: max(round(size * factor / step), 1) * step for key, size in widths(values)} if factor != 1 else {}


def dropouts(point: Point) -> Sequence[float]:
    found = {point.flat.get(f"model.{side}.dropout") for side in SIDES}
    now = found.pop() if len(found) == 1 else None
    return () if now is None else tuple(sorted({min(max(round(now + by, 2), 0.0), 0.7) for by in (-0.2, -0.1, 0, 0.1, 0.2)}))


def smoothings(point: Point) -> Sequence[float]:
    return tuple(sorted({0.0, 0.05, 0.1, 0.2, point.values["training"]["label_smoothing"]}))


def rates(point: Point) -> Sequence[float]:
    peak = point.values["training"]["learning_rate"]
    return tuple(peak if half == 0 else float(f"{peak * 2 ** (half / 2):.3g}") for half in range(-4, 5))


def rebatch(values: Values, factor: float) -> Changes:
    """As many tokens in all: larger batches are fewer, and what is counted in updates goes with them."""
    training = values["training"]
    counts = {f"training.{key}": max(round(training[key] / factor), 1) for key in COUNTS}
    return {"data.batch_tokens": round(values["data"]["batch_tokens"] * factor), **counts} if factor != 1 else {}


COUNTS = ("updates", "warmup", "validate_every", "save_every", "log_every")


def vocabularies(values: Values) -> dict[str, int]:
    """The sizes of the subword vocabularies that are learned, by key."""
    data = parse(Data, values["data"], "data")
    found = {}
    for name, config in configure_fields(data, configure(values["model"]).columns).items():
        cut = getattr(config, "tokenizer", None)
        own = (values["data"]["fields"].get(name) or {}).get("tokenizer") is not None
        if cut is not None and cut.file is None and issubclass(TOKENIZERS[cut.kind], SentencePieceTokenizer):
            found[f"data.fields.{name}.tokenizer.size" if own else "data.tokenizer.size"] = cut.size
    return found


def resize_vocabulary(values: Values, factor: float) -> Changes:
    return {key: round(size * factor) for key, size in vocabularies(values).items()}


TIMES = "x {:g}"  # of what is chosen


def as_it_is(key: str) -> Callable[[Point], Any]:
    return lambda point: point.flat.get(key)


# In this order: what stands below changes what those above have made
SPACE: dict[str, Entry] = {
    "family": Entry(
        ("model.encoder", "model.decoder", "model.share_embeddings"), families,
        lambda point: kind_of(point.values, "encoder"), other_family,
        "which family wins depends on the rows: tatoeba Transformer 52.3, GRU 47.2 BLEU; cmudict LSTM 73.3, Transformer 70.3 %",
    ),
    "copying": Entry(
        ("model.decoder.copy_words", "training.made_up_stems", "training.unknown_words"), ways_of_copying, copying_of, copy,
        "sigmorphon German: with copying 1,000 rows gain 0.6 and 10,000 rows lose 2.2",
    ),
    "layers": Entry(
        ("model.encoder.layers", "model.decoder.layers"), depths, lambda point: 0, deepen,
        "one layer is right for few rows, and not for all of them", "{:+d}",
    ),
    "size": Entry(
        tuple(f"model.{side}.{key}" for side in SIDES for key in (*SIZES, "attention.size")),
        lambda point: (0.5, 0.75, 1.0, 1.5, 2.0) if dict(widths(point.values)) else (), lambda point: 1.0, widen,
        "the rules choose it from the number of rows alone; how hard they are is not known before training", TIMES,
    ),
    "dropout": Entry(
        ("model.encoder.dropout", "model.decoder.dropout"), dropouts, as_it_is("model.decoder.dropout"),
        lambda values, share: {f"model.{side}.dropout": share for side in SIDES},
        "goes with the size: larger models of few rows want more", "{:g}",
    ),
    "label smoothing": Entry(
        ("training.label_smoothing",), smoothings, as_it_is("training.label_smoothing"),
        lambda values, share: {"training.label_smoothing": share},
        "helps where several answers are right, hurts where one is", "{:g}",
    ),
    "learning rate": Entry(
        ("training.learning_rate",), rates, as_it_is("training.learning_rate"),
        lambda values, peak: {"training.learning_rate": peak},
        "what matters most in nearly every study; a quarter to four times the chosen one", "{:g}",
    ),
    "batch": Entry(
        ("data.batch_tokens", *(f"training.{key}" for key in COUNTS)),
        lambda point: (0.5, 1.0, 2.0), lambda point: 1.0, rebatch,
        "many small updates or few large ones, over the same number of tokens", TIMES,
    ),
    "vocabulary": Entry(
        ("data.tokenizer.size", "data.fields.source.tokenizer.size", "data.fields.target.tokenizer.size"),
        lambda point: (0.5, 1.0, 2.0) if vocabularies(point.values) else (), lambda point: 1.0, resize_vocabulary,
        "short pieces are seen often, long ones make short sequences", TIMES,
    ),
}  # fmt: skip


def searched(point: Point, fixed: Sequence[str] = ()) -> dict[str, list[Any]]:
    """The entries that make sense here, each with the values that can be trained; those of a fixed key are left alone."""
    found = {}
    for name, entry in SPACE.items():
        if any(touches(key, other) for key in entry.keys for other in fixed):
            continue
        values = [value for value in entry.around(point) if value == entry.chosen(point) or can_be_trained(point, name, value)]
        if len(values) > 1:
            found[name] = values
    return found


def touches(key: str, other: str) -> bool:
    """Whether one is the other or stands in its section."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def can_be_trained(point: Point, name: str, value: Any) -> bool:
    try:
        preflight.check(changed(point, {name: value}))
    except UserError:
        return False
    return True


def changed(point: Point, chosen: Mapping[str, Any]) -> Recipe:
    """The recipe with these values of entries; no test sets, which a search has no business with."""
    values = override(point.values, {"data.test": {}})
    for name, entry in SPACE.items():
        if name in chosen and chosen[name] != entry.chosen(point):
            values = override(values, entry.change(values, chosen[name]))
    return parse(Recipe, values)
