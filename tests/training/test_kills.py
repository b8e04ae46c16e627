"""Law 9 for every shape of model: a run that was killed goes on as if it had not been, and ends with the same bytes."""

import os
import random

import pytest
import tasks
from crash_points import count_down, count_events, in_child
from small import digests

from regard import run
from regard.models import MODELS, configure
from regard.recipe import Recipe, override, parse
from regard.training import loop

SPELLED = [
    "data.fields.source={kind: spelled, length: 4}", "model.encoder.input={kind: characters, size: 4}",
    "training.unknown_words=0.3",
]  # fmt: skip
ALONE, STACK = (
    ["data.tokenizer.shared=true"],
    "{kind: decoder_alone, hidden_size: 16, feedforward_size: 24, layers: 1, attention: {heads: 2}}",
)
# Of a task, with what draws at random in training or goes on from step to step
SHAPES = {
    "tagger": ("tagger", ["model.dropout=0.2"]),
    "crf": ("tagger", ["model.crf=true", "training.unknown_words=0.3"]),
    "spelled": ("tagger", SPELLED),
    "spelled by a network": ("tagger", [*SPELLED, "model.encoder.input.spelling=recurrent", "model.crf=true"]),
    "classifier": ("classifier", ["model.pooling=attention", "model.class_weights=balanced", "model.dropout=0.2"]),
    "texts": ("recurrent_texts", ["model.decoder.dropout=0.2", "training.average=2"]),
    "carried state": ("long_texts", []),
    "regularised carried state": ("long_texts", [
        "model.decoder.cell=lstm", "model.decoder.locked=true", "model.decoder.weight_drop=0.3", "model.decoder.dropout=0.2",
        "model.decoder.word_dropout=0.1", "training.penalties={activation: 1, activation_change: 1}",
    ]),
    "windows": ("window_texts", ["model.decoder.dropout=0.2"]),
    "vectors": ("vectors", []),
    "patches": ("image", []),
    "regions": ("regions", ["model.encoder.input.norm=renorm"]),
    "regions that boxes guide": ("regions", ["training.penalties={guided: 1}", "training.augment={noise: 0.1}"]),
    "one recurrent model": ("pairs", [*ALONE, "model={kind: recurrent_alone, embedding_size: 12, hidden_size: 12}"]),
    "one Transformer": ("pairs", [*ALONE, f"model={STACK}"]),
    "copying": ("pairs", ["model.decoder.copy_words=added", "training.unknown_words=0.3"]),
    "hard attention": ("pairs", ["model.decoder.attention.selection=hard", "training.scheduled_sampling=0.2"]),
}  # fmt: skip
UPDATES = 8


def recipe_of(shape, folder) -> Recipe:
    """Saves at every other update."""
    task, changes = SHAPES[shape]
    folder.mkdir(parents=True, exist_ok=True)
    if task == "pairs":
        files = tasks.write(folder, "recurrent_texts")
        files = {"source": files["target"], **files}
    else:
        files = tasks.write(folder, task)
    values = tasks.recipe(
        "vectors" if task == "pairs" else task, files, updates=UPDATES, save_every=2, log_every=3, validate_every=4
    )
    if task == "pairs":
        del values["data"]["fields"]
    if "guided" in str(changes):
        boxes = tasks.write_lines(folder / "boxes", ["0:0,0,1,4"] * len(tasks.ROWS))
        values["data"]["train"]["boxes"] = str(boxes)
    return parse(Recipe, override(values, changes))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_kill_changes_nothing(shape, tmp_path, monkeypatch):
    """Between two updates, after a first save."""
    made, last = recipe_of(shape, tmp_path / "data"), random.Random(shape).randrange(3, UPDATES)
    run.train(made, tmp_path / "calm", talk=False)
    original = loop.Trainer.update
    monkeypatch.setattr(loop.Trainer, "update", lambda self, now: os._exit(9) if now.step == last else original(self, now))
    assert in_child(lambda: run.train(made, tmp_path / "run", talk=False)) == 9
    monkeypatch.undo()
    run.train(made, tmp_path / "run", resume=True, talk=False)
    assert digests(tmp_path / "run") == digests(tmp_path / "calm")


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_kills_between_any_two_changes_of_files_change_nothing(shape, tmp_path):
    """Five lives that end before an event drawn from all of a run, most of them inside a save, and a last one."""
    made, chance = recipe_of(shape, tmp_path / "data"), random.Random(shape)
    events = count_events(made, tmp_path / "calm")

    def life(event: int) -> int:
        def lived() -> None:
            count_down(tmp_path / "run", event, [0])
            run.train(made, tmp_path / "run", resume=True, talk=False)

        return in_child(lived)

    ends = [life(chance.randrange(events)) for _ in range(5)]
    assert any(ends)
    run.train(made, tmp_path / "run", resume=True, talk=False)
    assert digests(tmp_path / "run") == digests(tmp_path / "calm")


def test_every_shape_of_model_is_killed(tmp_path):
    killed = {configure(recipe_of(shape, tmp_path / shape).model).kind for shape in SHAPES}
    assert killed == MODELS.keys()
