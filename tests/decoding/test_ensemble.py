"""Several models as one: against the distributions of each, multiplied and added up by hand."""

import itertools

import numpy as np
import pytest
import torch
from calling import refused, regard
from test_sampling import write_model
from tiny import END, FEW, START, tiny

from regard.data.fields import texts
from regard.data.tokenizers import CharacterTokenizer
from regard.decoding.ensemble import COMBINATIONS, ensemble
from regard.decoding.generator import TrainedGenerator
from regard.decoding.language import TrainedLanguageModel
from regard.errors import UserError
from regard.models import build, configure
from regard.models.directory import Bundle
from regard.recipe import Decoding

MOST, WEIGHTS = 3, (1.0, 2.0, 0.5)
PLAIN = {
    "mean": lambda each, weights: np.log(np.average(np.exp(each), axis=0, weights=weights)),
    "log_mean": lambda each, weights: normalised(np.average(each, axis=0, weights=weights)),
    "product": lambda each, weights: normalised(np.tensordot(weights, each, axes=1)),
}


def normalised(log_probs):
    return log_probs - np.log(np.exp(log_probs).sum(axis=-1, keepdims=True))


def writer_of(setting, source, target="ab"):
    model = tiny(FEW[setting], vocabulary=6, scale=2.0)
    model.decoder.output.bias.data[END] += 1
    fields = texts(CharacterTokenizer([*source]), CharacterTokenizer([*target]))
    return TrainedGenerator(Bundle(model, fields, Decoding(beam=3, max_length=MOST, length_penalty=0.0)))


@pytest.fixture
def models():
    """Two shapes, whose sources have other tokens, and a language model of the same vocabulary."""
    writers = [writer_of("gru-additive-into_cell", " b"), writer_of("lstm-none", "b ")]
    config = configure({"kind": "language_model", "decoder": {"embedding_size": 5, "hidden_size": 8}})
    fields = {"target": writers[0].fields["target"]}
    return [*writers, TrainedLanguageModel(Bundle(build(config, 6).eval(), fields, Decoding()))]


def by_hand(models, text, words, combine):
    """log p of each word of the vocabulary at each step, by teacher forcing of each model."""
    each = []
    for model in models:
        inputs = torch.tensor([[START, *words[:-1]]])
        if isinstance(model, TrainedLanguageModel):
            logits = model.model.logits(model.model.decoder(inputs, model.model.nothing(1)))
        else:
            logits = model.model(model.inputs(model.encoded("source", [text])[0]), inputs)
        each.append(logits[0].log_softmax(dim=-1).detach().double().numpy())
    return PLAIN[combine](np.stack(each), np.array(WEIGHTS))


def test_every_combination_has_an_oracle():
    assert PLAIN.keys() == COMBINATIONS.keys()


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_a_wide_beam_finds_the_ranking_of_the_combined_distribution(models, combine):
    together = ensemble(models, WEIGHTS, combine)
    for text in ("b b", " "):
        expected = []
        for size in range(1, MOST + 1):
            for words in itertools.product(range(6), repeat=size):
                if END not in words[:-1] and (words[-1] == END or size == MOST):
                    steps = by_hand(models, text, words, combine)
                    expected.append((steps[range(size), words].sum(), [word for word in words if word != END]))
        expected.sort(reverse=True)
        found = together.search(text, beam=len(expected))
        assert [one.tokens for one in found[:20]] == [tokens for _, tokens in expected[:20]]
        assert [one.log_prob for one in found] == pytest.approx([total for total, _ in expected], abs=1e-4)
    (likelihood,) = together.score([("b b", "ab")])
    assert likelihood.log_prob == pytest.approx(
        by_hand(models, "b b", (4, 5, END), combine)[range(3), (4, 5, END)].sum(), abs=1e-4
    )


def test_an_input_gives_the_same_output_alone_and_in_any_batch(models):
    together, given = ensemble(models), ["b b ", " ", "bb b b", ""]
    for way in (
        together.generate,
        lambda texts: [each and each[0].text for each in together.sample(texts, 2, no_repeat_ngram=2)],
    ):
        found = way(given)
        assert way(given[::-1])[::-1] == found
        assert [way([text])[0] for text in given] == found


def test_twins_are_one_model(models):
    first = models[0]
    assert ensemble([first, first], [3.0, 1.0]).search("b b")[0].score == pytest.approx(first.search("b b")[0].score, abs=1e-5)


def copier_of(setting, source="abx", copying="gated"):
    """`x` is a letter of the source alone: it can only be copied."""
    model = tiny({**FEW[setting], "copy_words": copying}, vocabulary=7, scale=2.0)
    model.decoder.output.weight = torch.nn.Parameter(model.decoder.output.weight[:6])
    model.decoder.output.bias = torch.nn.Parameter(model.decoder.output.bias[:6])
    model.decoder.embed = torch.nn.Embedding.from_pretrained(model.decoder.embed.weight[:6])
    fields = texts(CharacterTokenizer([*source]), CharacterTokenizer([*"ab"]))
    return TrainedGenerator(Bundle(model, fields, Decoding(beam=3, max_length=MOST, length_penalty=0.0)))


def test_models_that_copy_write_words_together_that_only_the_source_has():
    """The mean of each one's distribution over what it can write or copy, by hand."""
    parts = [copier_of("gru-additive-into_cell"), copier_of("lstm-general-input_feeding", copying="added")]
    together, text = ensemble(parts, [1.0, 3.0]), "xb"
    expected = []
    for size in range(1, MOST + 1):
        for words in itertools.product(range(7), repeat=size):  # 6 is x
            if END not in words[:-1] and (words[-1] == END or size == MOST):
                inputs, steps = torch.tensor([[START, *words[:-1]]]), []
                for part in parts:
                    tokens, offers = part.encoded("source", [text])[0], part.offers([text])
                    logits = part.model(part.inputs(tokens, part.copies(offers)), inputs)
                    steps.append(logits[0].softmax(dim=-1).detach().double())
                both = ((steps[0] + 3 * steps[1]) / 4).log()
                expected.append(
                    (both[range(size), words].sum().item(), "".join("    abx"[word] for word in words if word != END))
                )
    expected.sort(reverse=True)
    found = together.search(text, beam=len(expected))
    assert [one.log_prob for one in found[:50]] == pytest.approx([total for total, _ in expected[:50]], abs=1e-4)
    assert "x" in "".join(one.text for one in found[:20])
    wanted = next(total for total, written in expected if written == "xb")
    assert together.score([(text, "xb")])[0].log_prob == pytest.approx(wanted, abs=1e-4)
    assert ensemble(parts[:1] * 2).search(text)[0].score == pytest.approx(parts[0].search(text)[0].score, abs=1e-5)
    assert together.generate(["xb", "a", "bbx"])[::-1] == together.generate(["bbx", "a", "xb"])


def test_copying_is_for_all_or_none():
    copier, plain = copier_of("gru-additive-into_cell"), writer_of("lstm-none", "ab")
    with pytest.raises(UserError, match="model 2 of the ensemble copies words of the source and the first does not"):
        ensemble([plain, copier])
    with pytest.raises(UserError, match="model 2 of the ensemble copies no words, the first does"):
        ensemble([copier, plain])
    with pytest.raises(UserError, match="other words to copy"):
        ensemble([copier, copier_of("gru-additive-into_cell", "abxy")])


def test_what_cannot_write_together_is_refused(models):
    with pytest.raises(UserError, match="writes another vocabulary"):
        ensemble([models[0], writer_of("lstm-none", " b", "ac")])
    with pytest.raises(UserError, match="model 1 of the ensemble continues texts"):
        ensemble(models[::-1])
    with pytest.raises(UserError, match="positive weight"):
        ensemble(models, [1.0, 2.0])
    with pytest.raises(UserError, match="no attention"):
        ensemble(models).search("b", alignment=True)


def test_the_command_line_takes_several(models, tmp_path):
    run, other = (
        write_model(models[0], tmp_path / "one"),
        write_model(writer_of("gru-additive-into_cell", " b"), tmp_path / "two"),
    )
    import regard as package

    loaded = [package.load(path, device="cpu") for path in (run, other)]
    together = package.ensemble(loaded, [1.0, 3.0], combine="log_mean")
    lines = b"b b\n b\n"
    found = regard("generate", run, "--with", other, "--weights", "1,3", "--combine", "log_mean", stdin=lines)
    assert found.lines == together.generate(["b b", " b"])
    assert "unknown combination" in refused("generate", run, "--with", other, "--combine", "log_men")
    assert "add --with" in refused("generate", run, "--weights", "1,2")
    assert "2 numbers" in refused("generate", run, "--with", other, "--weights", "1;2")
