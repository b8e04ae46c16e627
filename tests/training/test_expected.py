"""Training for expected rewards: gradients against sums over all outputs, and runs that start, stop and go on."""

import os

import pytest
import torch
from enumerated import PAD, every_output, log_probs_of, spoken
from kinds import KINDS, small
from small import digests, small_recipe
from tiny import END, FEW, START, batch, tiny

import regard
from regard import run
from regard.data.batching import reading
from regard.data.fields import texts
from regard.data.tokenizers import train_tokenizer
from regard.decoding.generator import TrainedGenerator
from regard.decoding.hypothesis import Found
from regard.errors import UserError
from regard.evaluation.candidates import proposer, rewards
from regard.evaluation.metrics import sentence_gleu
from regard.models.directory import Bundle
from regard.recipe import Decoding, Risk, Tokenizer
from regard.training import loop
from regard.training.expected import RISKS, Candidates, ExpectedReward, log_likelihood
from regard.training.journal import read_journal
from regard.training.objective import Objective

VOCABULARY, LIMIT = 6, 3
SOURCE = [4, 5, 4]
OUTPUTS = list(every_output(VOCABULARY, LIMIT))


def reward_of(words):
    """Any number from 0 to 1 will do: the share of 5s, and a bonus for ending."""
    return 0.8 * sum(word == 5 for word in words) / len(words) + 0.2 * (words[-1] == END)


def examples():
    source, lengths = batch(SOURCE)
    return reading(source, lengths, target=torch.tensor([[5, END]]))


def candidates_of(outputs, batch_size=1):
    words = torch.nn.utils.rnn.pad_sequence([torch.tensor(output) for output in outputs], batch_first=True, padding_value=PAD)
    read = torch.cat([torch.full((len(outputs), 1), START), words[:, :-1]], dim=1)
    values = torch.tensor([reward_of(output) for output in outputs]).view(batch_size, -1)
    return Candidates(read, words, values, torch.ones_like(values, dtype=torch.bool))


def gradients(loss, model):
    return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)


def flat(parts):
    return torch.cat([part.flatten() for part in parts if part is not None])


@pytest.fixture
def model():
    """PAD is never written, as in every trained model."""
    model = tiny(FEW["gru-additive-into_cell"], vocabulary=VOCABULARY, scale=2.0)
    model.decoder.output.bias.data[PAD] = -1e4
    return model


def expected_reward(model):
    """E[r] = Σ_y p(y) r(y) over all there is to write."""
    chances = log_probs_of(model, SOURCE, OUTPUTS).exp()
    assert chances.sum().item() == pytest.approx(1, abs=1e-5)
    return (chances * torch.tensor([reward_of(output) for output in OUTPUTS])).sum()


def test_log_likelihood_is_that_of_the_model_whatever_exists_at_a_time(model, monkeypatch):
    words = [output for output in OUTPUTS if PAD not in output]
    for logits in (1 << 27, 100):
        expected = log_probs_of(model, SOURCE, words)
        monkeypatch.setattr("regard.training.expected.LOGITS", logits)
        found = log_likelihood(model, examples(), candidates_of(words))
        torch.testing.assert_close(found[0], expected.float(), atol=1e-5, rtol=1e-5)
        ours, theirs = (flat(gradients(one.sum(), model)) for one in (found, expected))
        torch.testing.assert_close(ours, theirs.float(), atol=1e-4, rtol=1e-4)


def test_each_candidate_belongs_to_its_sentence(model):
    source, lengths = batch([4, 5, 4], [5])
    pairs = reading(source, lengths, target=torch.tensor([[END]] * 2))
    words = [(5, END), (4, 5, 5), (END,), (5, 4, END)]
    found = log_likelihood(model, pairs, candidates_of(words, 2))
    for row, of in enumerate(([4, 5, 4], [5])):
        expected = log_probs_of(model, of, words[2 * row : 2 * row + 2]).float()
        torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=1e-5)


FIRST = {name.partition("-")[0]: name for name in reversed(KINDS)}  # one of each family


@pytest.mark.parametrize("name", FIRST.values())
def test_every_kind_of_model_tells_how_probable_candidates_are(name):
    model = small(KINDS[name])
    source, lengths = batch([4, 5, 4], [5, 8])
    pairs = reading(source, lengths, target=torch.tensor([[END]] * 2))
    words = [(5, END), (4, 5, 5), (END,), (5, 4, END)]
    found = log_likelihood(model, pairs, candidates_of(words, 2))
    expected = torch.stack([log_probs_of(model, of, words[at : at + 2]) for of, at in (([4, 5, 4], 0), ([5, 8], 2))])
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)
    assert torch.isfinite(flat(gradients(found.sum(), model))).all()


def test_minimum_risk_over_all_outputs_is_the_expected_cost(model):
    words = [output for output in OUTPUTS if PAD not in output]
    objective = ExpectedReward(
        Objective(model, 0.0), Risk(objective="minimum_risk", likelihood=0), lambda *_: candidates_of(words)
    )
    loss = objective(examples()).total
    assert loss.item() == pytest.approx(1 - expected_reward(model).item(), abs=1e-5)
    ours, theirs = flat(gradients(loss, model)), flat(gradients(1 - expected_reward(model), model))
    torch.testing.assert_close(ours, theirs.float(), atol=1e-5, rtol=1e-4)


def test_minimum_risk_by_hand():
    log_probs = torch.tensor([[0.5, 0.25, 0.9]]).log()
    given = Candidates(
        torch.zeros(3, 1).long(), torch.zeros(3, 1).long(), torch.tensor([[1.0, 0.5, 0.0]]), torch.tensor([[True, True, False]])
    )
    # the third is not real; squared, the others weigh 4 : 1
    loss = RISKS["minimum_risk"](log_probs, given, Risk(objective="minimum_risk", sharpness=2.0))
    assert loss.item() == pytest.approx(0.8 * 0.0 + 0.2 * 0.5)


def test_reinforce_by_hand():
    """Each of three samples against the mean of the other two."""
    log_probs = torch.tensor([[-1.0, -2.0, -4.0]])
    given = Candidates(
        torch.zeros(3, 1).long(), torch.zeros(3, 1).long(), torch.tensor([[1.0, 0.5, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
    )
    loss = RISKS["reinforce"](log_probs, given, Risk())
    assert loss.item() == pytest.approx(-((1 - 0.25) * -1 + (0.5 - 0.5) * -2 + (0 - 0.75) * -4) / 3)


def test_reinforce_follows_the_expected_reward(model):
    """Over all pairs of outputs, weighed by how often they are drawn together, its gradient is that of -E[r] exactly; so it
    is without bias, and what is left is chance."""
    words = [output for output in OUTPUTS if PAD not in output]
    log_probs = log_likelihood(model, examples(), candidates_of(words))[0]
    values, chances = candidates_of(words).rewards[0], log_probs.detach().exp()
    first, second = torch.meshgrid(torch.arange(len(words)), torch.arange(len(words)), indexing="ij")
    pairs = torch.stack([first.flatten(), second.flatten()], dim=1)
    risk, total = Risk(likelihood=0), torch.zeros(())
    weights = chances[pairs].prod(dim=1)
    # a sentence a pair; its share of the sum is scaled by its chance through log p, in which the loss is linear
    given = Candidates(
        torch.zeros(1, 1).long(), torch.zeros(1, 1).long(), values[pairs], torch.ones_like(pairs, dtype=torch.bool)
    )
    total = total + RISKS["reinforce"](log_probs[pairs] * weights[:, None], given, risk)
    ours, theirs = flat(gradients(total, model)), flat(gradients(-expected_reward(model), model))
    torch.testing.assert_close(ours, theirs.float(), atol=1e-5, rtol=1e-3)


WORDS = ["x", "y"]


@pytest.fixture
def trained(model):
    source, target = (train_tokenizer(Tokenizer(kind="word"), side) for side in (["a b"], WORDS))
    return TrainedGenerator(Bundle(model, texts(source, target), Decoding(max_length=LIMIT)))


def test_samples_lead_where_the_expected_reward_leads(model, trained):
    """The whole way: texts drawn from the model, judged by GLEU, against the sum over everything."""
    risk, pair = Risk(candidates=400, likelihood=0), examples()
    objective = ExpectedReward(Objective(model, 0.0), risk, proposer(trained, risk)).eval()
    words = [output for output in OUTPUTS if PAD not in output]
    chances = log_probs_of(model, SOURCE, words).exp()
    reference = trained.target.decode([5])
    worth = torch.tensor([sentence_gleu(trained.target.decode(spoken(output)), reference) for output in words])
    truth = flat(gradients(-(chances * worth).sum(), model)).float()
    found = torch.zeros_like(truth)
    for seed in range(5):
        torch.manual_seed(seed)
        found += flat(gradients(objective(pair).total, model)) / 5
    assert torch.cosine_similarity(found, truth, dim=0) > 0.97
    assert found.norm().item() == pytest.approx(truth.norm().item(), rel=0.15)


def test_the_likelihood_counts_as_much_as_is_asked(model):
    words = [(5, END), (4, 5, 5)]
    losses = [
        ExpectedReward(Objective(model, 0.0), Risk(likelihood=share), lambda *_: candidates_of(words))(examples()).total.item()
        for share in (0.0, 0.017)
    ]
    assert losses[1] - losses[0] == pytest.approx(0.017 * -log_probs_of(model, SOURCE, [(5, END)]).item(), rel=1e-4)


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_the_likelihood_is_told_as_it_is_and_costs_no_random_numbers_unless_it_counts(model, share):
    given, model.decoder.dropout.p = candidates_of([(5, END), (4, 5, 5)]), 0.3
    objective = ExpectedReward(Objective(model, 0.0), Risk(likelihood=share), lambda *_: given)
    assert objective.names == ("loss", "risk")
    total, parts, number = objective.eval()(examples())
    assert (tuple(parts), number) == (objective.names, 2)
    loss, risk = parts.values()
    assert loss.item() == pytest.approx(-log_probs_of(model, SOURCE, [(5, END)]).item(), rel=1e-4)
    torch.testing.assert_close(total, risk + share * loss)
    objective.train()
    torch.manual_seed(1)
    log_likelihood(model, examples(), given)
    after = torch.rand(1)
    torch.manual_seed(1)
    objective(examples())
    assert after.equal(torch.rand(1)) == (share == 0)


def test_outputs_are_drawn_as_in_use_and_by_the_seed_of_the_step(model):
    seen = []

    def propose(pair, seed):
        seen.append((model.training, seed))
        return candidates_of([(5, END), (4, 5, 5)])

    objective = ExpectedReward(Objective(model, 0.0), Risk(), propose).train()
    for seed in (7, 8):
        torch.manual_seed(seed)
        objective(examples())
    assert seen == [(False, 7), (False, 8)]
    assert model.training


def test_what_is_proposed(model, trained):
    pair = examples()
    drawn = proposer(trained, Risk(candidates=50))(pair, 3)
    again, other = (proposer(trained, Risk(candidates=50))(pair, seed) for seed in (3, 4))
    assert all(one.equal(two) for one, two in zip(drawn, again, strict=True))
    assert not drawn.target_output.equal(other.target_output)
    assert drawn.real.all()
    reference = trained.target.decode([5])
    for read, words, worth in zip(
        drawn.target_input.tolist(), drawn.target_output.tolist(), drawn.rewards[0].tolist(), strict=True
    ):
        words = tuple(word for word in words if word != PAD)
        assert words in OUTPUTS  # with an end mark, or cut off at the limit
        assert read[: len(words)] == [START, *words[:-1]]
        assert worth == pytest.approx(sentence_gleu(trained.target.decode(spoken(words)), reference))


@pytest.mark.parametrize("search", ["sample", "beam"])
def test_a_minimum_of_risk_is_sought_over_distinct_outputs(trained, search):
    found = proposer(trained, Risk(objective="minimum_risk", candidates=40, search=search))(examples(), 1)
    rows = [tuple(row) for row, real in zip(found.target_output.tolist(), found.real[0].tolist(), strict=True) if real]
    assert 1 < len(rows) == len(set(rows))
    assert found.rewards.shape == found.real.shape == (1, 40)


def test_an_unknown_word_is_never_right_and_a_copied_one_is():
    target = train_tokenizer(Tokenizer(kind="word"), ["x y"])
    references = torch.tensor([[4, 1, END], [4, len(target) + 1, END]])
    outputs = [[Found([4, 1], 0.0)], [Found([4, len(target) + 1], 0.0)]]
    assert rewards(outputs, references, "exact", target) == [[0.0], [1.0]]
    assert rewards([[Found([4, len(target)], 0.0)]], references[1:], "exact", target) == [[0.0]]


def test_what_follows_samples_takes_no_beam(tmp_path):
    with pytest.raises(UserError, match=r"training\.risk: `reinforce` follows samples"):
        run.train(small_recipe(2, "training.risk={objective: reinforce, search: beam}"), tmp_path / "run", talk=False)
    assert not (tmp_path / "run").exists()


SHORT = "decoding.max_length=12"  # a model that has hardly begun never ends


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "begun"
    run.train(small_recipe(20, SHORT), directory, talk=False)
    return directory


def tuned(begun, updates, *changes):
    return small_recipe(updates, SHORT, f"training.start_from={begun}", "training.risk.candidates=3", *changes)


def test_a_run_starts_from_a_model_and_goes_on_as_if_never_stopped(begun, tmp_path, monkeypatch):
    """Law 9 for draws: a kill between two checkpoints changes no byte."""
    changes = ("training.save_every=2", "training.validate_every=4")
    run.train(tuned(begun, 4, *changes), tmp_path / "calm", talk=False)
    child = os.fork()
    if child == 0:
        original = loop.Trainer.update
        monkeypatch.setattr(loop.Trainer, "update", lambda self, now: os._exit(9) if now.step == 4 else original(self, now))
        run.train(tuned(begun, 4, *changes), tmp_path / "run", talk=False)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    run.train(tuned(begun, 4, *changes), tmp_path / "run", resume=True, talk=False)
    assert digests(tmp_path / "run") == digests(tmp_path / "calm")
    (row,) = [row for row in read_journal(tmp_path / "run" / "journal.jsonl") if "valid_loss" in row]
    assert {"valid_bleu", "valid_gleu"} <= row.keys()


def test_the_first_weights_are_the_models_and_pieces_do_not_matter(begun, tmp_path):
    still = ("training.learning_rate=1e-9", "model.encoder.dropout=0", "model.decoder.dropout=0", "training.log_every=1")
    for pieces in (1, 3):
        run.train(tuned(begun, 1, *still, f"training.accumulate={pieces}"), tmp_path / str(pieces), talk=False)
    lines = ["Caecilius est in horto .", "servus laborat ."]
    assert regard.load(tmp_path / "1").generate(lines) == regard.load(begun).generate(lines)
    losses = [read_journal(tmp_path / name / "journal.jsonl")[0]["loss"] for name in ("1", "3")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)  # draws belong to sentences, not to batches


def test_what_a_run_cannot_start_from_is_refused(begun, tmp_path):
    for change, told in (
        ("model.decoder.hidden_size=10", "model.decoder.hidden_size"),
        ("data.tokenizer.kind=character", "data.tokenizer.kind=word"),
        (f"training.start_from={tmp_path}", "neither a run nor a model"),
    ):
        with pytest.raises(UserError, match=told):
            run.train(tuned(begun, 2, change), tmp_path / "run", talk=False)
