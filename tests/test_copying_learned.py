"""A model learns to copy: words that stand in no vocabulary come out as they went in."""

import random

import pytest

import regard
from regard import run
from regard.evaluation.metrics import METRICS
from regard.nn.copying import COPIES
from regard.recipe import Recipe, override, parse, read, read_values

OPTIONS = [
    "data.batch_tokens=512", "data.tokenizer.kind=word", "data.tokenizer.size=16", "data.max_length=50", "training.updates=160",
    "training.learning_rate=0.02", "training.warmup=10", "training.validate_every=160", "training.save_every=160",
    "model.encoder.embedding_size=24", "model.decoder.embedding_size=24", "model.encoder.hidden_size=24",
    "model.decoder.hidden_size=48", "model.encoder.dropout=0", "model.decoder.dropout=0", "decoding.beam=2",
]  # fmt: skip
PLACES = {"horto": "garden", "atrio": "hall", "foro": "market"}


def pairs(seed, number):
    """Every name is new, so none is frequent enough for a vocabulary of 16."""
    chance = random.Random(seed)
    for _ in range(number):
        name, place = "".join(chance.choices("bdfglmnprst", k=7)).capitalize(), chance.choice(list(PLACES))
        yield f"{name} est in {place} .", f"{name} is in the {PLACES[place]} ."


def recipe(folder, copy_words):
    rows = list(pairs(1, 400))
    for side, suffix in enumerate(("la", "en")):
        (folder / f"a.{suffix}").write_text("".join(f"{row[side]}\n" for row in rows))
    values = {key: value for key, value in read_values("demo").items() if key != "data"}
    files = [f"data.train.source={folder / 'a.la'}", f"data.train.target={folder / 'a.en'}", "data.held_out=10"]
    return parse(Recipe, override(values, [*files, *OPTIONS, f"model.decoder.copy_words={copy_words}"]))


@pytest.mark.parametrize("way", COPIES)
def test_a_name_that_nobody_knows_is_copied(way, tmp_path):
    run.train(recipe(tmp_path, way), tmp_path / "run", talk=False)
    trained = regard.load(tmp_path / "run", "cpu")
    sources, targets = zip(*pairs(2, 20), strict=True)
    assert not {target.split()[0].encode() for target in targets} & {word.strip() for word in trained.target.spellings}
    written = trained.generate(sources)
    assert sum(ours == theirs for ours, theirs in zip(written, targets, strict=True)) >= 18
    likely = [one.log_prob for one in trained.score(list(zip(sources, targets, strict=True)))]
    assert sum(likely) / len(likely) > -2


@pytest.mark.slow
def test_new_names_of_the_latin_corpus_are_copied(tmp_path):
    """Nine in ten of those that stand in the source as such, and the other sentences are translated as well as by the demo."""
    run.train(read("latin-copy"), tmp_path / "run", talk=False)
    trained, corpus = regard.load(tmp_path / "run", "cpu"), tmp_path / "run" / "corpus"
    known = {word.decode().strip() for word in trained.target.spellings}
    source, target = (corpus.joinpath(f"test-names.{side}").read_text().splitlines() for side in ("la", "en"))
    rows = zip(source, target, trained.generate(source), strict=True)
    asked = [(name, words.split()) for text, truth, words in rows for name in set(truth.split()) & set(text.split()) - known]
    assert len(asked) > 250
    assert sum(name in words for name, words in asked) >= 0.9 * len(asked)
    source, target = (corpus.joinpath(f"test.{side}").read_text().splitlines() for side in ("la", "en"))
    assert METRICS["bleu"].function(trained.generate(source), target).value >= 97
