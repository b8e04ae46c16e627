"""A run: a directory with a recipe, vocabularies, a journal, checkpoints and, at the end, a model."""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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
from regard.nn.allocator import keep_freed_memory
from regard.preparation import Prepared, Say, prepare, with_corpus
from regard.recipe import Data, Pairs, Recipe, read
from regard.run_directory import claim, fields_folder, write_held_out, write_recipe
from regard.training.callbacks import NOBODY, Callbacks
from regard.training.checkpoint import Best, mean_weights
from regard.training.display import Display
from regard.training.distributed import Group, group
from regard.training.feed import feed_of
from regard.training.identity import compare
from regard.training.loop import Trainer
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
        recipe = recipe.model_copy(update={"model": configure(recipe.model).model_dump(mode="json")})
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


def fit(
    recipe: Recipe, directory: Path, prepared: Prepared, processes: Group, talk: bool, say: Say,
    identity: dict[str, Any], callbacks: Callbacks, tests: Mapping[str, Pairs],
) -> int | None:  # fmt: skip
    preflight.check_metric(recipe, MODELS[configure(recipe.model).kind])
    gold, boxes = valid_gold(recipe.data, prepared.valid), valid_boxes(recipe.data, prepared.valid)
    test_rows = {
        name: read_test(files, prepared.fields) for name, files in tests.items()
    }  # a bad one is told now, not at the end
    if recipe.data.valid is None and processes.first:
        keep_valid(directory, prepared)
    keep_freed_memory()
    preflight.fitting(configure(recipe.model), prepared.shapes, processes.device)
    torch.manual_seed(recipe.training.seed)
    model = build(configure(recipe.model), *prepared.shapes).to(processes.device)
    model.learn_from(prepared.fields)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    epochs = recipe.training.updates / len(prepared.plan)
    say(f"{parameters:,} parameters on {processes.device}{tell_threads(processes.device)}")
    say(f"{recipe.training.updates:,} updates, {epochs:.1f} passes over the rows; best by {metric_of(recipe)}")
    if smoothing := recipe.training.label_smoothing:
        say(f"losses of training have label smoothing ({smoothing:g}) in them; those of validation do not, and are lower")
    start, risk, begun = recipe.training.start_from, recipe.training.risk, any((directory / "checkpoints").glob("step-*"))
    start_vectors(model, prepared.fields, recipe.training, begun, say)
    if start is not None and not begun:
        start_weights(model, start, recipe.model)
    trained: Any = in_use(Bundle(model, prepared.fields, recipe.decoding), processes.device)

    by = metric_of(recipe)
    greedy = recipe.decoding.model_copy(update={"beam": 1})

    def validate() -> dict[str, float]:
        model.eval()
        usual = set() if METRICS[by].needs == "outputs" else {model.validate_by}
        asked = {*usual, by, *([] if risk is None else [risk.reward])} - {"loss"}
        scores, evidence = measure(Question(trained, prepared.valid, gold, greedy, boxes=boxes), ["loss", *sorted(asked)])
        tell_samples(prepared.valid, evidence, say)
        return {name: score.value for name, score in scores.items()}

    propose = None if risk is None else proposer(trained, risk)
    given = (recipe.training, directory, processes, validate, propose, identity, lambda scores: METRICS[by].rank(scores[by]))
    feed = feed_of(prepared.store, prepared.plan, model.writes, recipe.training)
    if isinstance(feed, Lanes):
        refuse_several(processes)
        model.open_lanes(feed.lanes)
    trainer = Trainer(model, feed, *given, callbacks, METRICS[by].highest)
    ending = trainer.run(talk)
    if ending.signal is None and not ending.paused and processes.first:
        steps = choose_weights(recipe, directory, model, validate, ending.progress.best)
        finish(recipe, directory, trained, steps, prepared.valid, gold)
        mean = f", the mean of {len(steps)} checkpoints" if len(steps) > 1 else ""
        if talk:
            tell_scores(Question(trained, prepared.valid, gold, recipe.decoding, boxes=boxes), by, directory, say)
            for name, rows in test_rows.items():
                tell_test(name, Question(trained, rows, None, recipe.decoding), by, say)
        say(f"the model is in {directory / 'model'}{mean}")
        use = used_as(type(model))
        for command, what in ((use.usage, "use it"), *use.further):
            say(f"{what}: {command.replace('MODEL', str(directory))}")
    elif ending.signal is not None:
        say(f"stopped at step {ending.progress.step}; continue with `{processes.command} train -r {directory} --resume`")
    return ending.signal


def refuse_several(processes: Group) -> None:
    if processes.world > 1:
        raise UserError("model.window: the state of one long text goes on in one process; train without torchrun")


def keep_valid(directory: Path, prepared: Prepared) -> None:
    """The rows that were held out of the training rows, for `regard evaluate`."""
    write_held_out(directory, [dict(zip(prepared.fields, row, strict=True)) for row in prepared.valid])


def metric_of(recipe: Recipe) -> str:
    """What decides on checkpoints."""
    return recipe.training.validate_by or MODELS[configure(recipe.model).kind].validate_by


def choose_weights(
    recipe: Recipe, directory: Path, model: nn.Module, validate: Callable[[], dict[str, float]], best: list[Best]
) -> list[Best]:
    """The best checkpoints if their mean validates better than the best alone, which is not so while they are far apart."""
    if len(best) == 1:
        return best
    model.load_state_dict(mean_weights(weights_of(directory, best)))
    scores, by = validate(), metric_of(recipe)
    mean = Best(METRICS[by].rank(scores[by]), 0, scores["loss"])
    return best if mean.rank >= best[0].rank else best[:1]


def weights_of(directory: Path, best: list[Best]) -> list[Path]:
    return [directory / "best" / f"step-{one.step:09d}" for one in best]


def valid_gold(data: Data, pairs: Any) -> list[Links] | None:
    """The true alignments of the validation pairs, if there are any; read before the first update, lest they stop the last."""
    path = None if data.valid is None else data.valid.alignment
    return None if path is None else read_gold(path, pairs)


def valid_boxes(data: Data, rows: Any) -> list[Boxes] | None:
    """Likewise: where in its image each word of a validation row is."""
    path = None if data.valid is None else data.valid.boxes
    return None if path is None else read_boxes(path, [row[-1] for row in rows])


def finish(recipe: Recipe, directory: Path, trained: Any, best: list[Best], valid: Any, gold: list[Links] | None) -> None:
    """The mean of these checkpoints becomes the model; its alignments are read as is best on the validation pairs."""
    weights = mean_weights(weights_of(directory, best))
    trained.model.load_state_dict(weights)
    trained.model.eval()
    if gold is not None and trained.has_attention:
        trained.reading = choose_reading(trained, valid, gold)
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
