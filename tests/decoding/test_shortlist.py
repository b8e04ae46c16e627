"""A shortlist of all words changes nothing; a shorter one allows each sentence its own words, and no others."""

import importlib.util

import pytest
import torch
from exchanged import TOKENIZER, bundle, save, sources
from test_engines_by_name import stored
from tiny_transformer import section

from regard import load
from regard.data.lexicon import learn
from regard.data.store import Store
from regard.data.tokenizers import END
from regard.decoding.shortlist import ALWAYS, Shortlist, learn_shortlist, load_shortlist, place_of, store_shortlist
from regard.errors import UserError
from regard.models.directory import store_rounded

SIZE = len(TOKENIZER)
LINES = sources(20, 9)
ALL = Shortlist(torch.full((SIZE, 1), END), torch.arange(SIZE))
RECURRENT = {
    "encoder": {"kind": "recurrent", "embedding_size": 8, "hidden_size": 8},
    "decoder": {"kind": "recurrent", "embedding_size": 8, "hidden_size": 8, "attention": {"score": "additive"}},
}


def few():
    """Two words for each word of the source, those that always may come, and one that is frequent."""
    likely = torch.randint(4, SIZE, (SIZE, 2), generator=torch.Generator().manual_seed(3))
    likely[:4] = END
    return Shortlist(likely, torch.tensor([*ALWAYS, 7]))


def narrowed(path, shortlist, **ways):
    store_shortlist(path, shortlist)
    found = load(path, device="cpu", **ways)
    found.use_shortlist()
    return found


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shortlists")
    torch.manual_seed(2)
    return {"transformer": stored(folder / "one"), "recurrent": save(bundle(RECURRENT, max_length=8), folder / "two")}


@pytest.mark.parametrize("name", ["transformer", "recurrent"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("beam", [1, 4])
def test_all_words_are_the_whole_layer(name, precision, beam, models):
    expected = load(models[name], precision=precision).search(LINES, beam=beam)
    found = narrowed(models[name], ALL, precision=precision).search(LINES, beam=beam)
    assert [[one.tokens for one in each] for each in found] == [[one.tokens for one in each] for each in expected]
    scores = [torch.tensor([one.log_prob for each in both for one in each]) for both in (found, expected)]
    torch.testing.assert_close(*scores, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["transformer", "recurrent"])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_sentence_has_its_own_words_alone_and_in_any_batch(name, beam, models):
    """Probabilities are shared among them: softmax over logits of which all others are struck out."""
    model, shortlist = narrowed(models[name], few()), few()
    together, alone = model.search(LINES, beam=beam), [model.search([line], beam=beam)[0] for line in LINES]
    assert [[one.tokens for one in each] for each in alone] == [[one.tokens for one in each] for each in together]
    for ids, each in zip(TOKENIZER.encode(LINES), together, strict=True):
        own = {*ALWAYS, 7, *shortlist.likely[ids].flatten().tolist()}
        assert all(set(one.tokens) <= own for one in each)
    assert [[one.tokens for one in each] for each in together] != [
        [one.tokens for one in each] for each in load(models[name], precision="float32").search(LINES, beam=beam)
    ]


@torch.inference_mode()
def test_the_first_word_is_the_best_of_those_that_may_come(models):
    model = narrowed(models["transformer"], few())
    plain = load(models["transformer"], "cpu").model
    for line in LINES:
        ids = TOKENIZER.encode([line])[0]
        step, state = plain.start(plain.encode(model.inputs([ids])))
        logits = step(torch.tensor([2]), state).logits[0].double()
        own = sorted({*ALWAYS, 7, *few().likely[ids].flatten().tolist()})
        best = max(own, key=lambda word: logits[word])
        (found,) = model.search([line], beam=1, token_scores=True)[0]
        assert [*found.tokens, END][0] == best
        assert found.token_scores[0] == pytest.approx((logits[best] - logits[own].logsumexp(0)).item(), abs=1e-4)


@pytest.mark.skipif(importlib.util.find_spec("ctranslate2") is None, reason="CTranslate2 is not installed")
@pytest.mark.parametrize("beam", [1, 3])
def test_ctranslate2_takes_the_same_list(beam, models):
    settings = {"beam": beam, "length_penalty": 0.0}
    ours, theirs = narrowed(models["transformer"], few()), narrowed(models["transformer"], few(), engine="ctranslate2")
    for line in LINES:  # one by one: it lets a sentence have the words of all others in its batch
        (expected,), (found,) = ours.search([line], **settings), theirs.search([line], **settings)
        assert [one.tokens for one in found] == [one.tokens for one in expected]
        numbers = [torch.tensor([one.log_prob for one in each]) for each in (found, expected)]
        torch.testing.assert_close(*numbers, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_kept_in_int8_gives_its_rows_as_they_are(beam, models, tmp_path):
    store_rounded(models["transformer"], tmp_path / "int8", "int8", "")
    expected = load(tmp_path / "int8", "cpu").search(LINES, beam=beam)
    found = narrowed(tmp_path / "int8", ALL).search(LINES, beam=beam)
    assert [[(one.tokens, one.log_prob) for one in each] for each in found] == [
        [(one.tokens, pytest.approx(one.log_prob, abs=1e-5)) for one in each] for each in expected
    ]


class Rows(Store):
    """What is asked of a store."""

    def __init__(self, source, target):
        self.columns = {"source": Column(source), "target": Column(target)}

    def __getitem__(self, name):
        return self.columns[name]

    def __len__(self):
        return len(self.columns["source"].rows)


class Column:
    def __init__(self, rows):
        self.rows, self.values = (
            [torch.tensor(row).numpy() for row in rows],
            torch.tensor([one for row in rows for one in row]).numpy(),
        )
        self.offsets = [0, *torch.tensor([len(row) for row in rows]).cumsum(0).tolist()]

    def __getitem__(self, row):
        return self.rows[row]


def test_it_is_learnt_from_rows():
    rows = Rows([[4, 5], [4, 6], [4, 6]], [[8, 9], [8, 10], [8, 10]])
    found = learn_shortlist(rows, 7, likely=1, common=1, rows=2)
    assert found.likely[[4, 5, 6]].flatten().tolist() == [8, 9, 10]
    assert found.common.tolist() == sorted([*ALWAYS, 8])
    assert learn_shortlist(rows, 7, 1, 0, 1).common.tolist() == sorted(ALWAYS)
    assert len(learn([]).source) == 0


def test_one_of_another_model_or_none_is_named(tmp_path):
    model = stored(tmp_path)
    with pytest.raises(UserError, match="make one with `regard shortlist"):
        load_shortlist(model, SIZE, SIZE)
    store_shortlist(model, ALL)
    assert load_shortlist(model, SIZE, SIZE).common.equal(ALL.common)
    with pytest.raises(UserError, match="other vocabularies"):
        load_shortlist(model, SIZE + 1, SIZE)
    with pytest.raises(UserError, match="other vocabularies"):
        load_shortlist(model, SIZE, SIZE - 1)
    stored(tmp_path, seed=1)
    with pytest.raises(UserError, match="no longer there"):
        load_shortlist(model, SIZE, SIZE)
    assert place_of(model).name == "model-shortlist"


def test_models_that_copy_words_are_refused(tmp_path):
    model = load(save(bundle(RECURRENT), tmp_path / "model"), "cpu")
    model.model.__class__ = type("Copying", (type(model.model),), {"copies_words": True})
    with pytest.raises(UserError, match="do not copy words"):
        model.use_shortlist()


def test_sections_are_those_of_the_tests():
    assert section()["encoder"]["kind"] == "transformer"
