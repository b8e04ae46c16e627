"""A chosen recipe made to fit into a time: fewer updates; smaller batches and then a smaller model where far too few would be
left."""

from collections.abc import Callable
from typing import Any

from regard.data.store import HELD_OUT
from regard.evaluation.metrics import METRICS
from regard.models import configure
from regard.models.device import choose_device
from regard.overrides import Overrides, changes
from regard.planning.example import shapes_of
from regard.planning.lengths import lengths_of
from regard.planning.rate import tokens_a_second
from regard.recipe import Recipe
from regard.run import metric_of
from regard.training.display import Display

Say = Callable[[str], None]

TRAINING = 0.75  # the share of the time that updates get; validating and saving take the rest
ENOUGH = 0.3  # of the updates that the recipe wants; with fewer, a model of half the size learns more
LEAST = 20  # updates
SIZES = ("embedding_size", "hidden_size", "feedforward_size")
SMALLEST = 64  # sizes are not halved below it
FEWEST = 256  # tokens of a batch that is not halved
FEWEST_ROWS = 100  # that are validated on


def within(minutes: float, recipe: Recipe, overrides: Overrides = (), talk: bool = True) -> Recipe:
    """A few steps are timed here and now; what the user set stays."""
    say = Display(0, 0, None, talk).say
    own = {key for key, _ in changes(overrides)}
    possible = updates_in(minutes, recipe)
    while possible < ENOUGH * recipe.training.updates and (smaller := less(recipe, own)) is not None:
        told, recipe = smaller
        possible = updates_in(minutes, recipe)
        say(f"{minutes:g} minutes are few: {told}")
    set_by_user = "training.updates" in own
    if possible >= recipe.training.updates or set_by_user:
        return recipe
    if possible < LEAST:
        say(
            f"{LEAST} updates are the least, and take {minutes * LEAST / max(possible, 0.1):.0f} minutes or more: rows are long"
        )
    else:
        say(f"{possible:,.0f} updates instead of {recipe.training.updates:,}, to be done in {minutes:g} minutes")
    updates = max(int(possible), LEAST)
    fitted = {**counts(recipe, updates, own), **validated(recipe, possible, own, say)}
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=fitted)})


def validated(recipe: Recipe, updates: float, own: set[str], say: Say) -> dict[str, int]:
    """A validation writes outputs, and each takes about as long as to train on its row: of so many rows that all validations
    together get a quarter of the time."""
    training, data = recipe.training, recipe.data
    if METRICS[metric_of(recipe)].needs != "outputs" or "training.validate_rows" in own:
        return {}
    lengths = lengths_of(data, configure(recipe.model), None, None).lengths
    validations = 2 + training.updates / training.validate_every
    rows = int(updates * lengths.rows(data.batch_tokens) * (1 - TRAINING) / TRAINING / validations)
    if rows >= (data.held_out or HELD_OUT) and data.valid is None:
        return {}
    rows = max(rows, FEWEST_ROWS)
    say(f"a validation is of {rows:,} rows at most (training.validate_rows); at the end there may be time for all")
    return {"validate_rows": rows}


def less(recipe: Recipe, own: set[str]) -> tuple[str, Recipe] | None:
    """A smaller batch, where a CPU is the faster for it, or else a smaller model, and what to say of it; None where there is
    none. What the user set stays."""
    batch = recipe.data.batch_tokens // 2
    if batch >= FEWEST and "data.batch_tokens" not in own and choose_device(recipe.training.device).type == "cpu":
        return f"data.batch_tokens={batch}", recipe.model_copy(
            update={"data": recipe.data.model_copy(update={"batch_tokens": batch})}
        )
    if (smaller := halved(recipe)) is None:
        return None
    sections = {name: section for name, section in smaller.model.items() if isinstance(section, dict)}
    sizes = [f"model.{name}.{key}={section[key]}" for name, section in sections.items() for key in SIZES if key in section]
    return f"a model of half the size ({'  '.join(sizes)})", smaller


def counts(recipe: Recipe, updates: int, own: set[str]) -> dict[str, int]:
    """What a recipe counts in updates, in proportion."""
    share, keys = updates / recipe.training.updates, ("warmup", "validate_every", "validate_first", "save_every")
    wanted = {key: getattr(recipe.training, key) for key in keys if f"training.{key}" not in own}
    return {"updates": updates, **{key: max(round(share * count), 5) for key, count in wanted.items() if count is not None}}


def updates_in(minutes: float, recipe: Recipe) -> float:
    config, batch = configure(recipe.model), recipe.data.batch_tokens
    lengths = lengths_of(recipe.data, config, None, None).lengths
    device = choose_device(recipe.training.device).type
    speed = tokens_a_second(recipe.model, shapes_of(recipe.data, config), lengths, batch, recipe.training, device)
    tokens = lengths.rows(batch) * lengths.target
    return minutes * 60 * TRAINING * speed / tokens


def halved(recipe: Recipe) -> Recipe | None:
    """With half the sizes; None where one of them would be too small."""
    sections = {name: shrunk(section) if isinstance(section, dict) else section for name, section in recipe.model.items()}
    changed = recipe.model_copy(update={"model": sections})
    sizes = [section[key] for section in sections.values() if isinstance(section, dict) for key in SIZES if key in section]
    return changed if min(sizes, default=0) >= SMALLEST else None


def shrunk(section: dict[str, Any]) -> dict[str, Any]:
    """The attention of a recurrent decoder has a size of its own, and so has what words take from their characters."""
    found = {key: value // 2 if key in SIZES else value for key, value in section.items()}
    own = {key: section[key] for key in ("attention", "input") if isinstance(section.get(key), dict)}
    return {**found, **{key: {**part, "size": part["size"] // 2} for key, part in own.items() if "size" in part}}
