"""A study from its data to its best model: begun or resumed, searched, told."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard import preflight
from regard.data import spool
from regard.data.sealed import lock, sweep
from regard.data.survey import survey
from regard.drafting import Files, draft, with_files
from regard.errors import UserError
from regard.models import configure
from regard.overrides import Overrides, changes
from regard.planning.minutes import within
from regard.recipe import Data, Recipe, parse, read_values
from regard.training.display import Display
from regard.tuning import folder, outcome, picture
from regard.tuning.folder import Asked, Study
from regard.tuning.halving import Limits, OutOfTimeError, Search
from regard.tuning.proposals import need_optuna
from regard.tuning.space import SPACE, Point, searched
from regard.tuning.trials import Trials

SHARE = 0.25  # of the time that the chosen recipe may take, if it is fitted to a time at all
# of its updates. 800 pronunciations, 4 minutes, trials of 151 updates instead of 1,872: 69.5 % wrong phonemes on test rows,
# while 4 minutes of `regard train` gave 35.5
ENOUGH = 0.5


def tune(
    files: Files, recipe: str | Recipe | None, overrides: Overrides, directory: Path, resume: bool, limits: Limits,
    talk: bool = True, spooled: Path | None = None,
) -> outcome.Facts:  # fmt: skip
    """Search until the time or the trials are spent; the best model is left in `directory/model`. Returns the figures.

    `spooled` holds those of the files that came through pipes or were given as rows: the study takes them over.
    """
    need_optuna()
    refuse_wrong(files, recipe, directory, resume, limits)
    say = Display(0, 0, None, talk).say
    begun = folder.is_study(directory)
    drafted = None if begun else drafted_recipe(files, recipe, overrides, limits, talk)
    asked = Asked(with_files({}, files)["data"], name_of(recipe), plain(overrides))
    with lock(directory):
        sweep(directory)
        if spooled is not None:
            spool.keep(spooled, directory / "spooled", begun)
            asked = asked._replace(data=kept_names(asked.data, spooled, directory))
        if drafted is not None:
            folder.begin(directory, study_of(drafted, asked, directory, spooled))
        study = folder.read(directory)
        folder.refuse_other(directory, study, asked)
        with journal(directory) as trials:
            return searching(Search(directory, study.point, study.space, trials, limits, say), talk)


def refuse_wrong(files: Files, recipe: object, directory: Path, resume: bool, limits: Limits) -> None:
    """Before anything is read."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("regard tune works in one process; without torchrun, please")
    if limits.trials is not None and limits.trials < 1:
        raise UserError(f"--trials {limits.trials}: one is the least, the chosen recipe itself")
    folder.claim(directory)
    begun = folder.is_study(directory)
    if begun and not resume:
        raise UserError(f"{directory}: there is a study already; continue it with --resume or take another --run")
    if resume and not begun:
        raise UserError(f"{directory}: no study to continue (no {folder.STUDY})")
    if not begun and not files.train and recipe is None:
        raise UserError("tune on what? Give a table (regard tune pairs.tsv), two files, --pairs, or --source and --target")


def drafted_recipe(files: Files, recipe: str | Recipe | None, overrides: Overrides, limits: Limits, talk: bool) -> Recipe:
    """Chosen for the data and fitted to a share of the time, or as it was named."""
    if recipe is None:
        chosen = draft(None, files, overrides, None, talk, labels=False)
        shorter = within(SHARE * limits.minutes, chosen, overrides, talk)
        if shorter.training.updates < ENOUGH * chosen.training.updates:
            Display(0, 0, None, talk).say(
                f"note: {limits.minutes:g} minutes are few for a search around {chosen.training.updates:,} updates: "
                f"`regard train --minutes {limits.minutes:g}` may well learn more in the same time"
            )
        return shorter
    values = recipe.model_dump(mode="json") if isinstance(recipe, Recipe) else read_values(recipe)
    return draft(values, files, overrides, None, talk, labels=False)


def name_of(recipe: str | Recipe | None) -> str | None:
    return "of its own" if isinstance(recipe, Recipe) else recipe


def plain(overrides: Overrides) -> dict[str, Any]:
    """As JSON keeps them."""
    found: dict[str, Any] = json.loads(json.dumps(dict(changes(overrides)), default=str))
    return found


def kept_names(data: dict[str, Any], spooled: Path, directory: Path) -> dict[str, Any]:
    """The same files where the study keeps them."""
    renamed = spool.renamed(parse(Data, data), spooled, directory.absolute() / "spooled").model_dump(mode="json")
    return {key: renamed[key] for key in data}


def study_of(recipe: Recipe, asked: Asked, directory: Path, spooled: Path | None) -> Study:
    """The point to search around, with every default filled in, and what of the space makes sense there."""
    data = recipe.data if spooled is None else spool.renamed(recipe.data, spooled, directory.absolute() / "spooled")
    whole = recipe.model_copy(update={"data": data, "model": configure(recipe.model).model_dump(mode="json")})
    preflight.check(whole)
    point = Point(whole.model_dump(mode="json"), asked.recipe is not None, copied(data))
    return Study(point, searched(point, list(asked.overrides)), asked.recipe, asked.overrides, folder.digests(data))


def copied(data: Data) -> float:
    """The share of the target's letters that stand in the source; rows that may be held out are not looked into."""
    if data.train is None or set(data.train.named) != {"source", "target"}:
        return 0.0
    return round(survey(data.train, data.held_out).copied_letters, 3)


@contextmanager
def journal(directory: Path) -> Iterator[Trials]:
    trials = Trials(directory / "trials.jsonl")
    try:
        yield trials
    finally:
        trials.journal.close()


def searching(search: Search, talk: bool) -> outcome.Facts:
    say = search.say
    say(f"searched, {len(search.space)} of {len(SPACE)} entries: {', '.join(search.space) or 'nothing'}; by {search.metric}")
    if search.trials.all:
        say(f"going on with {len(search.trials.all)} trials, {search.trials.seconds:.0f} s of training so far")
    try:
        search.all_waves()
        ending = f"{len(search.trials.all)} trials are done" if search.limits.trials else "no further trial fits into the time"
    except OutOfTimeError:
        ending = "the time is up"
    facts = outcome.leave(search, f"{ending} ({search.limits.minutes:g} minutes)")
    try:
        for path in picture.draw(search, facts["importance"]):
            say(f"a picture is in {path}")
    except UserError as error:  # a search of hours is not lost for a picture
        say(f"note: {error}")
    return facts
