"""Law 8 for every task: a handful of rows is learnt by heart, saved, loaded back and answered the same."""

import json

import pytest
import tasks

import regard
from regard import run
from regard.evaluation.evaluate import evaluate
from regard.models.directory import load_model
from regard.recipe import Recipe, parse
from regard.training.journal import read_journal

ASKED = {
    "tagger": lambda model, sources: list(map(str, model.predict(sources))),
    "classifier": lambda model, sources: list(map(str, model.predict(sources))),
    "recurrent_texts": lambda model, texts: [one.log_prob for one in model.score(texts)],
    "transformer_texts": lambda model, texts: [one.log_prob for one in model.score(texts)],
    "long_texts": lambda model, texts: [one.log_prob for one in model.score(texts)],
    "window_texts": lambda model, texts: [one.log_prob for one in model.score(texts)],
    "vectors": lambda model, sources: model.generate(sources),
    "image": lambda model, sources: model.generate(sources),
    "regions": lambda model, sources: model.generate(sources),
}
CARDS = {"tagger": "token-classification", "classifier": "text-classification", "recurrent_texts": "text-generation"}


@pytest.fixture(scope="module", params=tasks.MODELS)
def finished(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    files = tasks.write(folder, request.param)
    run.train(parse(Recipe, tasks.recipe(request.param, files)), folder / "run", talk=False)
    sources = next(iter(files.values())).read_text().splitlines()
    sources = [str(folder / name) for name in sources] if request.param in tasks.FIELDS else sources
    return request.param, folder, sources


def test_it_learns_a_handful_by_heart_and_answers_the_same_when_loaded_back(finished):
    task, folder, sources = finished
    model, again = regard.load(folder / "run"), regard.load(folder / "run" / "model")
    answers = ASKED[task](model, sources)
    assert answers == ASKED[task](again, sources)
    truth = {"tagger": tasks.tags(), "classifier": tasks.labels(), "vectors": tasks.texts()}
    truth |= {"image": tasks.texts(), "regions": tasks.texts()}
    if task in truth:
        assert answers == truth[task]
    losses = [row["loss"] for row in read_journal(folder / "run" / "journal.jsonl") if "loss" in row]
    assert losses[-1] < (0.8 if task in ("long_texts", "window_texts") else 0.6) * losses[0]  # windows of a text begin anywhere


def test_validation_and_evaluation_ask_what_the_shape_gives(finished):
    task, folder, sources = finished
    model = regard.load(folder / "run")
    rows = [row for row in read_journal(folder / "run" / "journal.jsonl") if "valid_loss" in row]
    usual = {"tagger": "accuracy", "classifier": "accuracy"}.get(task, "bleu" if task in tasks.FIELDS else "loss")
    assert [row["step"] for row in rows] == [30, 60]
    assert all(f"valid_{usual}" in row for row in rows)
    assert type(model.model).validate_by == usual
    truth = {"tagger": tasks.tags(), "classifier": tasks.labels()}.get(task, tasks.texts())
    pairs = list(zip(sources, truth, strict=True)) if not task.endswith("texts") else [(text,) for text in truth]
    scores = {score.name: score.value for score in evaluate(model, pairs)[0]}
    assert scores["loss"] == pytest.approx(min(row["valid_loss"] for row in rows), rel=1e-4)
    if task in ("tagger", "classifier"):
        assert scores["accuracy"] == 100
        assert scores.keys() == {"accuracy", "macro F1", "loss", "perplexity"}


def test_the_card_says_what_it_is_for(finished):
    task, folder, _ = finished
    card = (folder / "run" / "model" / "README.md").read_text()
    assert f"pipeline_tag: {CARDS.get(task, 'text-generation' if task.endswith('texts') else 'translation')}" in card
    verb = {"tagger": "regard predict", "classifier": "regard predict"}.get(task, "regard continue")
    assert ("regard generate" if task in tasks.FIELDS else verb) in card


def test_a_model_directory_tells_its_columns(finished):
    task, folder, _ = finished
    config = json.loads((folder / "run" / "model" / "config.json").read_text())
    bundle = load_model(folder / "run")
    assert {name: (one["kind"], tuple(one["sizes"])) for name, one in config["columns"].items()} == {
        name: tuple(field.shape) for name, field in bundle.fields.items()
    }
    shapes = {"vectors": ("vectors", (4,)), "image": ("image", (4, 6, 1)), "regions": ("image", (4, 6, 1))}
    if task in shapes:
        assert bundle.fields["source"].shape == shapes[task]
