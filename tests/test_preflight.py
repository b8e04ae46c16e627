"""What is refused before a run writes anything, and what a machine has no memory for."""

import pytest
import torch
from pydantic import BaseModel
from small import small_recipe

from regard import preflight, run
from regard.errors import UserError
from regard.models import build, configure
from regard.recipe import Section, read

NO_ATTENTION = ["model.decoder.attention=null", "model.decoder.context=none"]
EARLY = {
    "unknown penalty in training.penalties 'covrage'; did you mean 'coverage'": ["training.penalties.covrage=1"],
    "training.risk does not go with hard attention": ["model.decoder.attention.selection=hard", "training.risk={}"],
    "unknown corpus 'latn'; did you mean 'latin'": ["data.corpus.name=latn"],
    "training.unknown_words is about what both sides share": ["training.unknown_words=0.1"],
    "training.made_up_stems is about what both sides share": ["training.made_up_stems=0.1"],
    "training.penalties asks where the model looks": [*NO_ATTENTION, "training.penalties.coverage=1"],
    "decoding.coverage_penalty asks where the model looks": [*NO_ATTENTION, "decoding.coverage_penalty=1"],
    "more than": ["model.encoder.hidden_size=1000000"],
    "unknown model ['a']": ["model.kind=[a]"],
    "model.encoder.kind: unknown kind \"['a']\"": ["model.encoder.kind=[a]"],
    "model.encoder.kind: unknown kind 'Transformer'; did you mean 'transformer'?": ["model.encoder.kind=Transformer"],
    "model.encoder.cell: unknown cell 'GRU'; did you mean 'gru'?": ["model.encoder.cell=GRU"],
}


@pytest.mark.parametrize("message", EARLY)
def test_a_recipe_is_refused_before_anything_is_written(message, tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "free_memory", lambda: 16 * 10**9)
    with pytest.raises(UserError) as error:
        run.train(small_recipe(2, *EARLY[message]), tmp_path / "run", talk=False)
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


def test_guided_attention_without_alignments(tmp_path):
    files = ["data.corpus=null", "data.train={source: a, target: b}", "training.penalties.guided=1"]
    with pytest.raises(UserError, match=r"data\.train\.alignment"):
        run.train(small_recipe(2, *files), tmp_path / "run", talk=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["demo", "vaswani2017-small", "transformer-moe-small", "bytenet2016-small", "liu2018-d-small"])
def test_an_outline_has_the_parameters_of_the_model(name):
    config, seed = configure(read(name).model), torch.get_rng_state()
    outline = preflight.outline(config, [50, 50], most=10**9)
    assert torch.equal(torch.get_rng_state(), seed)
    sizes = {key: value.shape for key, value in outline.named_parameters()}
    assert sizes == {key: value.shape for key, value in build(config, 50, 50).named_parameters()}
    assert all(parameter.is_meta for parameter in outline.parameters())


def test_a_model_that_is_too_large_is_not_even_outlined(monkeypatch):
    with pytest.raises(preflight.TooManyError, match="a matrix with more numbers than any machine can count"):
        preflight.outline(configure(read("demo").model), [50, 2**60], most=2**80)
    config = configure(read("vaswani2017-small", ["model.encoder.layers=100"]).model)
    monkeypatch.setattr(preflight, "PARTS", 200)
    with pytest.raises(preflight.TooManyError, match="in 201 matrices or vectors"):
        preflight.outline(config, [50, 50], most=10**9)
    assert preflight.outline(configure(read("demo").model), [50, 50], most=10**9)  # nobody counts any more


def test_what_is_asked_and_what_is_free_is_told(monkeypatch):
    config, cpu = configure(read("demo").model), torch.device("cpu")
    number = sum(parameter.numel() for parameter in build(config, 50, 50).parameters())
    monkeypatch.setattr(preflight, "free_memory", lambda: 16 * number)
    preflight.fitting(config, [50, 50], cpu)
    monkeypatch.setattr(preflight, "free_memory", lambda: 16 * number - 1)
    with pytest.raises(UserError) as error:
        preflight.fitting(config, [50, 50], cpu)
    told = str(error.value)
    assert told.startswith(f"{number:,} parameters take 16 bytes each in training ({16 * number / 1e6:,.1f} MB), and ")
    assert "MB of memory are free (cpu)" in told
    assert "model.decoder.hidden_size=192" in told


def test_a_run_counts_its_own_vocabulary(tmp_path, monkeypatch):
    """The words are only known once the tokenizers are: the second look is at the model as it will be."""
    monkeypatch.setattr(preflight, "free_memory", lambda: 800_000)
    with pytest.raises(UserError, match="parameters take 16 bytes each"):
        run.train(small_recipe(2), tmp_path / "run", talk=False)
    assert (tmp_path / "run" / "fields").exists()


def sections(kind=Section):
    for one in kind.__subclasses__():
        yield one
        yield from sections(one)


def numbers(schema, where):
    """The place of every whole number in a JSON schema that has no upper bound."""
    if schema.get("type") == "integer" and not schema.keys() & {"maximum", "exclusiveMaximum", "enum", "const"}:
        yield where
    for key, inner in schema.items():
        for number, one in enumerate(inner if isinstance(inner, list) else [inner]):
            if isinstance(one, dict):
                yield from numbers(one, f"{where}.{key}.{number}")


@pytest.mark.parametrize("section", list(sections()), ids=lambda section: section.__name__)
def test_every_number_of_every_section_has_an_upper_bound_and_is_finite(section: type[BaseModel]):
    assert section.model_config["allow_inf_nan"] is False
    assert not list(numbers(section.model_json_schema(), section.__name__))
