"""A run: a directory with a recipe, vocabularies, a journal, checkpoints and, at the end, a model."""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from regard import preflight
from regard.data import spool
from regard.data.boxes import Boxes, read_boxes
from regard.data.lanes import Lanes
from regard.data.links import Links
from regard.data.sealed import lock, remove, sweep
from regard.decoding.load import in_use, used_as
from regard.errors import UserError
from regard.evaluation.alignment import choose_reading, read_gold
from regard.evaluation.candidates import proposer
from regard.evaluation.evaluate import Question, measure, read_test
from regard.evaluation.metrics import METRICS
from regard.evaluation.telling import tell_samples, tell_scores, tell_test
from regard.imports import GIVEN, advised
from regard.models import MODELS, build, configure
from regard.models.device import make_deterministic, tell_threads, use_threads
from regard.models.directory import Bundle, save_model
from regard.models.interface import Model
from regard.models.names import older_keys
from regard.nn.allocator import keep_freed_memory
from regard.preparation import Prepared, Say, prepare, with_corpus
from regard.recipe import Decoding, Pairs, Recipe, read
from regard.run_directory import claim, fields_folder, write_held_out, write_recipe
from regard.training.callbacks import NOBODY, Callbacks
from regard.training.checkpoint import Best, mean_weights
from regard.training.display import Display
from regard.training.distributed import Group, group
from regard.training.feed import feed_of
from regard.training.frequencies import start_frequencies
from regard.training.identity import compare
from regard.training.loop import Trainer
from regard.training.pacing import Pacing
from regard.training.start import start_weights
from regard.training.word_vectors import start_vectors


def train(
    recipe: Recipe, directory: Path, resume: bool = False, talk: bool = True,
    spooled: Path | None = None, callbacks: Callbacks = NOBODY,
) -> int | None:  # fmt: skip
    """Train to the end and leave a model in `directory/model`. Returns the signal that stopped it early, if one did.
    Where `callbacks.pause` says so the run is left for `resume`, without a model.

    `spooled` holds those of the recipe's files that came through pipes or were given as rows: the run takes them over.
    """
    if spooled is not None:
        recipe = recipe.model_copy(update={"data": spool.renamed(recipe.data, spooled, directory.absolute() / "spooled")})
    with advised(recipe.imports):
        given, typed = recipe.model, configure(recipe.model).model_dump(mode="json")
        recipe = recipe.model_copy(update={"model": typed})
        preflight.check(recipe)
    recipe = recipe.model_copy(update={"imports": dict(GIVEN) or None})
    if recipe.training.deterministic:
        make_deterministic()
    with group(recipe.training.device) as processes, ExitStack() as held:
        say = Display(0, 0, None, talk and processes.first).say
        held.enter_context(use_threads(recipe.training.threads))

        def open_run() -> Recipe:
            claim(directory)
            held.enter_context(lock(directory))
            return begin(recipe, directory, resume)

        whole = processes.share(open_run)
        for key, newer in older_keys(given, typed):
            say(f"note: `model.{key}` is an older name; it is `{newer}` now")
        if spooled is not None:
            spool.keep(spooled, directory / "spooled", begun=any((directory / "checkpoints").glob("step-*")))
            say(f"a copy of the rows is kept in {directory / 'spooled'}")
        prepared = processes.in_turn(lambda: prepare(whole, directory, say))
        tests = recipe.data.test if talk else {}  # those of a generated corpus are left to `regard evaluate`
        return fit(whole, directory, prepared, processes, talk, say, identity_of(recipe, prepared), callbacks, tests)


def identity_of(recipe: Recipe, prepared: Prepared) -> dict[str, Any]:
    """What the run's steps depend on, as each of its checkpoints remembers it."""
    return {
        "recipe": recipe.model_dump(mode="json"),
        "tokenizers": [field.digest for field in prepared.fields.values()],
        "files": [file["sha256"] for file in prepared.store.facts["files"]],
    }


def begin(recipe: Recipe, directory: Path, resume: bool) -> Recipe:
    """Write the resolved recipe, or make sure that a run that goes on goes on with the same one. Generate its data."""
    directory.mkdir(parents=True, exist_ok=True)
    sweep(directory)
    path = directory / "recipe.yaml"
    if (directory / "checkpoints").exists():
        if not resume:
            raise UserError(f"{directory}: there is a run already; continue it with --resume or take another --run")
        compare({"recipe": read(path).model_dump(mode="json")}, {"recipe": recipe.model_dump(mode="json")}, directory)
    elif path.exists():  # it never came to a first step: what it left may come from another recipe
        remove(fields_folder(directory))
    write_recipe(directory, recipe)
    return with_corpus(recipe, directory)


class Validation(NamedTuple):
    """The rows that decide on checkpoints, what is known of them, and the metric that they are judged by."""

    by: str
    rows: Any
    gold: list[Links] | None  # true alignments; read before the first update, lest they stop the last
    boxes: list[Boxes] | None  # where in its image each word of a row is

    def question(self, trained: Any, decoding: Decoding, most: int | None = None) -> Question:
        """About all rows, or the first of them."""
        gold, boxes = None if self.gold is None else self.gold[:most], None if self.boxes is None else self.boxes[:most]
        return Question(trained, self.rows[:most], gold, decoding, boxes=boxes)


def validation_of(recipe: Recipe, rows: Any) -> Validation:
    files = recipe.data.valid  # None: rows held out
    gold = None if files is None or files.alignment is None else read_gold(files.alignment, rows)
    boxes = None if files is None or files.boxes is None else read_boxes(files.boxes, [row[-1] for row in rows])
    return Validation(metric_of(recipe), rows, gold, boxes)


def fit(
    recipe: Recipe, directory: Path, prepared: Prepared, processes: Group, talk: bool, say: Say,
    identity: dict[str, Any], callbacks: Callbacks, tests: Mapping[str, Pairs],
) -> int | None:  # fmt: skip
    preflight.check_metric(recipe, MODELS[configure(recipe.model).kind])
    valid = validation_of(recipe, prepared.valid)
    test_rows = {name: read_test(files, prepared.fields) for name, files in tests.items()}  # a bad one is told now
    if recipe.data.valid is None and processes.first:  # what was held out, for `regard evaluate`
        write_held_out(directory, [dict(zip(prepared.fields, row, strict=True)) for row in prepared.valid])
    model = first_model(recipe, directory, prepared, processes.device, say)
    trained: Any = in_use(Bundle(model, prepared.fields, recipe.decoding), processes.device)
    risk, greedy = recipe.training.risk, recipe.decoding.model_copy(update={"beam": 1})
    asked_rows = min(recipe.training.validate_rows or len(valid.rows), len(valid.rows))

    def validate() -> dict[str, float]:
        model.eval()
        usual = set() if METRICS[valid.by].needs == "outputs" else {model.validate_by}
        asked = {*usual, valid.by, *([] if risk is None else [risk.reward])} - {"loss"}
        scores, evidence = measure(valid.question(trained, greedy, asked_rows), ["loss", *sorted(asked)])
        tell_samples(valid.rows, evidence, say)
        trained.release()  # training's graphs need the room
        return {name: score.value for name, score in scores.items()}

    feed = feed_of(prepared.store, prepared.plan, model.writes, recipe.training)
    if isinstance(feed, Lanes):
        if processes.world > 1:
            raise UserError("model.window: the state of one long text goes on in one process; train without torchrun")
        model.open_lanes(feed.lanes)
    propose = None if risk is None else proposer(trained, risk)
    metric = METRICS[valid.by]
    given = (recipe.training, directory, processes, validate, propose, identity, lambda scores: metric.rank(scores[valid.by]))
    ending = Trainer(model, feed, *given, callbacks, metric.highest, metric.lowest).run(talk)
    if ending.signal is not None:
        say(f"stopped at step {ending.progress.step}; continue with `{processes.command} train -r {directory} --resume`")
    elif not ending.paused and processes.first:
        steps = choose_weights(recipe, directory, model, validate, ending.progress.best)
        finish(recipe, directory, trained, steps, valid)
        if talk:
            tell_finished(recipe, directory, trained, valid, test_rows, rows_in_time(ending.pacing, asked_rows), say)
        tell_end(directory, type(model), len(steps), say)
    return ending.signal


def tell_finished(
    recipe: Recipe, directory: Path, trained: Any, valid: Validation, tests: Mapping[str, Any], most: Callable[[int], int],
    say: Say,
) -> None:  # fmt: skip
    """Scores of the finished model, on at most so many of the rows."""
    count = len(valid.rows)
    tell_scores(valid.question(trained, recipe.decoding, most(count)), count, valid.by, directory, say)
    for name, rows in tests.items():
        tell_test(name, Question(trained, rows[: most(len(rows))], None, recipe.decoding), len(rows), valid.by, say)


def rows_in_time(pacing: Pacing | None, validated: int) -> Callable[[int], int]:
    """Of so many rows, how many there is still time to score."""
    return lambda rows: rows if pacing is None else pacing.share(rows, validated)


def first_model(recipe: Recipe, directory: Path, prepared: Prepared, device: torch.device, say: Say) -> Model:
    """The model before the first update, or as a checkpoint will find it."""
    keep_freed_memory()
    training, config = recipe.training, configure(recipe.model)
    preflight.fitting(config, prepared.shapes, device)
    torch.manual_seed(training.seed)
    model = build(config, *prepared.shapes).to(device)
    model.learn_from(prepared.fields)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    epochs = training.updates / len(prepared.plan)
    say(f"{parameters:,} parameters on {device}{tell_threads(device)}")
    most = "" if training.minutes is None else "at most "
    say(f"{most}{training.updates:,} updates, {epochs:.1f} passes over the rows; best by {metric_of(recipe)}")
    if smoothing := training.label_smoothing:
        say(f"losses of training have label smoothing ({smoothing:g}) in them; those of validation do not, and are lower")
    begun = any((directory / "checkpoints").glob("step-*"))
    start_vectors(model, prepared.fields, training, begun, say)
    start_frequencies(model, prepared.counts, begun, say)
    if training.start_from is not None and not begun:
        start_weights(model, training.start_from, recipe.model)
    return model


def tell_end(directory: Path, model: type[Model], checkpoints: int, say: Say) -> None:
    mean = f", the mean of {checkpoints} checkpoints" if checkpoints > 1 else ""
    say(f"the model is in {directory / 'model'}{mean}")
    use = used_as(model)
    for command, what in ((use.usage, "use it"), *use.further):
        say(f"{what}: {command.replace('MODEL', str(directory))}")


def metric_of(recipe: Recipe) -> str:
    """What decides on checkpoints."""
    return recipe.training.validate_by or MODELS[configure(recipe.model).kind].validate_by


def choose_weights(
    recipe: Recipe, directory: Path, model: nn.Module, validate: Callable[[], dict[str, float]], best: list[Best]
) -> list[Best]:
    """The best checkpoints if their mean validates better than the best alone, and is no less likely than the worst of them:
    neither is so while they are far apart."""
    if len(best) == 1:
        return best
    model.load_state_dict(mean_weights(weights_of(directory, best)))
    scores, by = validate(), metric_of(recipe)
    mean, nothing = Best(METRICS[by].rank(scores[by]), 0, scores["loss"]), METRICS[by].lowest
    likely = mean.loss <= max(one.loss for one in best)  # infinite of older checkpoints
    return best if likely and mean.rank(nothing) >= best[0].rank(nothing) else best[:1]


def weights_of(directory: Path, best: list[Best]) -> list[Path]:
    return [directory / "best" / f"step-{one.step:09d}" for one in best]


def finish(recipe: Recipe, directory: Path, trained: Any, best: list[Best], valid: Validation) -> None:
    """The mean of these checkpoints becomes the model; its alignments are read as is best on the validation pairs."""
    weights = mean_weights(weights_of(directory, best))
    trained.model.load_state_dict(weights)
    trained.model.eval()
    if valid.gold is not None and trained.has_attention:
        trained.reading = choose_reading(trained, valid.rows, valid.gold)
    card = model_card(recipe, best)
    save_model(directory / "model", weights, recipe, trained.fields, card, trained.reading)


def model_card(recipe: Recipe, best: list[Best]) -> str:
    by = metric_of(recipe)
    steps = ", ".join(f"{one.step} ({METRICS[by].rank(one.score):.3f})" for one in best)
    imports = "".join(f" --import {name}" for name in recipe.imports or ())
    model = MODELS[configure(recipe.model).kind]
    usage = used_as(model).usage.replace("MODEL <", f"MODEL{imports} <")
    return (
        f"---\nlibrary_name: regard\npipeline_tag: {model.pipeline_tag}\n---\n\n"
        f"{recipe.about}\n\nMean of the checkpoints with the best validation {by}, by step: {steps}.\n\n"
        f"Use: `{usage}`. The whole recipe is in `recipe.yaml`.\n\n"
        f"```json\n{json.dumps(recipe.model, indent=1)}\n```\n"
    )
