"""Law 8: every recipe loads, builds, overfits a handful of pairs, saves, loads back and decodes the same."""

import pytest
import torch
from recipes_by_shape import DESCRIBERS, WRITERS

import regard
from regard import preflight, run
from regard.corpora import CORPORA, generate, write
from regard.data.batching import reading
from regard.data.fields import Shape
from regard.models import build, configure
from regard.recipe import Recipe, built_in, override, parse, read, read_values

SMALL = [
    "data.batch_tokens=256", "data.tokenizer.kind=word", "data.tokenizer.size=500", "training.updates=150",
    "training.schedule=cosine", "training.learning_rate=0.02", "training.warmup=10", "training.validate_every=150",
    "training.save_every=150", "training.label_smoothing=0", "training.precision=float32", "data.tokenizer.min_count=1",
    "data.tokenizer.lowercase=false",
]  # fmt: skip


def quick(values):
    """Transformers learn in fewer updates, at a lower rate than recurrent networks; rewards of few outputs from scratch."""
    kinds = [values["model"].get("kind"), *(values["model"].get(side, {}).get("kind") for side in ("encoder", "decoder"))]
    rewards = ["training.risk.candidates=2", "training.risk.likelihood=1"] if "risk" in values["training"] else []
    return rewards + (longer(80, 0.01) if {"transformer", "decoder_alone"} & set(kinds) else [])


# no attention to the source, two kinds to learn, or a deep stack
SLOW = {"sutskever2014": (400, 0.005), "sutskever2014-small": (400, 0.005), "latin-lstm-tape": (250, 0.008)}
SLOW |= dict.fromkeys(["gnmt2016-small", "deepatt2016", "deepatt2016-small"], (150, 0.005))
SLOW |= {"gnmt2016": (700, 0.003), "shazeer2017-moe": (450, 0.005)}
SLOW |= dict.fromkeys(["latin-one-model", "latin-two-models", "latin-two-directions"], (400, 0.01))
SLOW |= {"vinyals2015-small": (400, 0.003), "xu2015-hard-small": (450, 0.005)}
# of the recipes for one cell each, which tests/nn holds to their laws
USUAL = {"latin-hard", "latin-copy", "latin-self-attention", "latin-one-model"}


def longer(updates, rate):
    counts = [f"training.{name}={updates}" for name in ("updates", "validate_every", "save_every")]
    return [*counts, f"training.learning_rate={rate}"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Names of images in an array, and their captions."""
    folder = tmp_path_factory.mktemp("pictures")
    paths = write(CORPORA["scenes"], folder, size=8)["train"]
    captions = dict(enumerate(paths["target"].read_text().splitlines(), start=1))
    return {f"{paths['source']}#{row}": caption for row, caption in captions.items()}


@pytest.fixture(scope="module")
def handful(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pairs = [pair for pair in generate(CORPORA["latin"], seed=1, size=60)["train"] if len(pair.source.split()) < 8][:5]
    (folder / "a.la").write_text("".join(f"{pair.source}\n" for pair in pairs))
    (folder / "a.en").write_text("".join(f"{pair.target}\n" for pair in pairs))
    return folder, pairs


def recurrent(side, values):
    """Small hidden sizes that keep a recipe's own proportions (dot scores want them)."""
    encoder = values["model"]["encoder"]
    directions = 1 if encoder.get("bidirectional") is False else 2
    hidden, layers = 32 // directions if side == "encoder" else 32, values["model"][side].get("layers", 1)
    experts = {"experts.num_experts": 8, "experts.feedforward_size": 32} if "experts" in values["model"][side] else {}
    return {"embedding_size": 24, "hidden_size": hidden, "layers": min(layers, 3), "dropout": 0, **experts}


def transformer(side, values):
    return {"hidden_size": 32, "feedforward_size": 32, "layers": 1 if side else 2, "dropout": 0}


def convolutional(side, values):
    return {"embedding_size": 24, "hidden_size": 32, "layers": 2, "dropout": 0}


def bytenet(side, values):
    return {"embedding_size": 24, "hidden_size": 32, "sets": 1, "dilations": "[1,2]", "dropout": 0}


def identity(side, values):
    blocks = len(values["model"]["encoder"]["input"]["channels"])
    return {"embedding_size": 32, "dropout": 0, "input.channels": f"[{','.join(['12'] * blocks)}]", "input.dropout": 0}


# what makes each kind of encoder and decoder small
SIZES = {
    "identity": identity,
    "recurrent": recurrent,
    "transformer": transformer,
    "convolutional": convolutional,
    "bytenet": bytenet,
}


def sizes(values):
    model = values["model"]
    if model.get("kind") == "recurrent_alone":
        return ["model.embedding_size=24", "model.hidden_size=32", "model.dropout=0"]
    if model.get("kind") == "decoder_alone":
        return [f"model.{key}={value}" for key, value in transformer("", values).items()]
    return [
        f"model.{side}.{key}={value}"
        for side in ("encoder", "decoder")
        for key, value in SIZES[model[side].get("kind", "recurrent")](side, values).items()
    ]


def in_time(name):
    """`make test` takes one recipe of each system; those that differ only in size or cell, and a slow one, wait."""
    twin = f"{name}-small" in built_in() or name.endswith(("-big", "-moe", "-rl-small")) or name == "deepatt2016-small"
    one_cell = name.startswith("latin-") and name not in USUAL
    one_cell = one_cell or read_values(name)["data"].get("corpus", {}).get("name") not in (None, "latin", "reverse")
    return pytest.param(name, marks=pytest.mark.slow) if twin or one_cell else name


@pytest.mark.parametrize("name", DESCRIBERS)
def test_a_recipe_for_images_overfits_saves_loads_and_decodes_the_same(name, pictures, tmp_path):
    captions = pictures
    values = read_values(name)
    values["data"] = {key: value for key, value in values["data"].items() if key != "corpus"}
    values["data"]["fields"]["source"] |= {"height": 48, "width": 48}
    rows = tmp_path / "rows.tsv"
    rows.write_text("".join(f"{image}\t{caption}\n" for image, caption in captions.items()))
    changes = [f"data.{part}.pairs={rows}" for part in ("train", "valid")] + [
        *SMALL,
        *longer(*SLOW.get(name, (300, 0.01))),
        *sizes(values),
    ]
    changes += ["training.average=1", "training.augment={}", "training.penalties={}", "decoding.beam=2"]
    run.train(parse(Recipe, override(values, changes)), tmp_path / "run", talk=False)
    trained, again = (regard.load(tmp_path / place, "cpu") for place in ("run", "run/model"))
    assert dict(zip(captions, trained.generate(list(captions)), strict=True)) == captions
    found, same = ([[one.score for one in each] for each in model.search(list(captions))] for model in (trained, again))
    assert found == same


@pytest.mark.parametrize("name", [in_time(name) for name in WRITERS])
def test_a_recipe_overfits_saves_loads_and_decodes_the_same(name, handful, tmp_path):
    folder, pairs = handful
    values = read_values(name)
    values["data"] = {key: value for key, value in values["data"].items() if key != "corpus"}
    files = [
        f"data.{part}.{side}={folder / f'a.{suffix}'}"
        for part in ("train", "valid")
        for side, suffix in (("source", "la"), ("target", "en"))
    ]
    slow = longer(*SLOW[name]) if name in SLOW else []
    recipe = parse(Recipe, override(values, [*files, *SMALL, *quick(values), *slow, *sizes(values), "training.average=1"]))
    run.train(recipe, tmp_path / "run", talk=False)
    trained = regard.load(tmp_path / "run", "cpu")
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    assert trained.generate(sources) == targets
    again = regard.load(tmp_path / "run" / "model", "cpu")
    assert [[one.score for one in found] for found in again.search(sources)] == [
        [one.score for one in found] for found in trained.search(sources)
    ]


SYSTEMS = [name for name in WRITERS if "corpus" not in read_values(name)["data"]]


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_recipe_says_what_it_is(name):
    """NAME is a paper's system and says what differs from it; NAME-small is for 20k to 200k pairs."""
    about = read_values(name)["about"]
    assert ("20k to 200k pairs" in about) == name.endswith("-small")
    assert name.endswith("-small") or about.startswith("No paper's") or "ours" in about


def test_every_system_of_a_paper_has_a_small_form():
    papers = {name.split("-")[0] for name in SYSTEMS if not read_values(name)["about"].startswith("No paper's")}
    assert papers <= {name.split("-")[0] for name in SYSTEMS if name.endswith("-small")}


@pytest.mark.parametrize(
    ("name", "source", "target", "parameters"),
    [
        ("sutskever2014", 160_000, 80_000, 384e6),  # section 3.4
        ("vaswani2017-base", 37_000, 37_000, 65e6),  # table 3
        ("vaswani2017-big", 37_000, 37_000, 213e6),
    ],
)
def test_a_papers_system_has_the_papers_parameters(name, source, target, parameters):
    with torch.device("meta"):
        model = build(configure(read_values(name)["model"]), source, target)
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(parameters, rel=0.04)  # as rounded there


def test_convs2s_has_the_layers_of_its_paper():
    """Gehring et al. 2017, section 5.1: ten of 512 and three of 768 read three words, two of 2048 one."""
    config = configure(read_values("convs2s2017")["model"])
    for side in (config.encoder, config.decoder):
        assert side.blocks == [(512, 3)] * 10 + [(768, 3)] * 3 + [(2048, 1)] * 2


@pytest.mark.parametrize("name", WRITERS)
def test_a_recipe_builds_at_its_own_size_and_loads_its_weights_back(name):
    """With numbers where there are not too many of them, in shape only otherwise."""
    config = configure(read_values(name)["model"])
    images = (
        Shape("image", (64, 64, int(read_values(name)["data"]["fields"]["source"]["channels"]))) if name in DESCRIBERS else None
    )
    with torch.device("meta"):
        outline = build(config, images or 60, 60)
    if sum(parameter.numel() for parameter in outline.parameters()) > 30_000_000:
        assert not any(outline.load_state_dict(outline.state_dict()))
        return
    model, other = build(config, images or 60, 60), build(config, images or 60, 60)
    other.load_state_dict({key: value.clone() for key, value in model.state_dict().items()})
    copies = (torch.randint(4, 62, (2, 3)), 62) if model.decoder.copies_words else ()
    batch, words = reading(torch.randint(4, 50, (2, 3)), torch.tensor([3, 2]), *copies), torch.randint(4, 50, (2, 4))
    batch = batch if images is None else reading(torch.randint(0, 256, (2, *images.sizes), dtype=torch.uint8))
    torch.testing.assert_close(other.eval()(batch, words), model.eval()(batch, words))


@pytest.mark.parametrize(
    "name", [name for name in built_in() if name not in ("shazeer2017-moe", "transformer-moe")]
)  # too large
def test_a_recipe_is_refused_nothing_as_it_stands(name):
    preflight.check(read(name))
