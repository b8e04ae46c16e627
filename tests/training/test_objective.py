import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from kinds import small
from tiny import FEW, tiny

from regard.data.batching import reading
from regard.errors import UserError
from regard.models.generator import shifted
from regard.training.objective import Objective

WORDS, TARGET = torch.tensor([[2, 7, 8], [2, 4, 0]]), torch.tensor([[7, 8, 3], [4, 3, 0]])
EXAMPLES = reading(torch.tensor([[4, 5, 3], [6, 3, 0]]), torch.tensor([3, 2]), target=TARGET)


def test_a_decoder_reads_the_start_mark_and_all_but_the_end():
    assert shifted(TARGET).equal(WORDS)
    assert shifted(torch.tensor([[7, 3], [0, 0]])).tolist() == [[2, 7], [0, 0]]  # a row that was added says nothing


def test_scheduled_sampling_reads_its_own_words_and_never_pads():
    model = tiny(FEW["gru-additive-into_cell"], scale=3.0)
    own = model(EXAMPLES, WORDS).argmax(-1)
    words = model.sample(EXAMPLES, WORDS, 1.0)
    assert words[:, 0].tolist() == [2, 2]
    assert words[0, 1:].tolist() == own[0, :2].tolist()
    assert words[1].tolist() == [2, own[1, 0].item(), 0]
    assert model.sample(EXAMPLES, WORDS, 0.0).equal(WORDS)
    sampled, forced = Objective(model, 0.0, 1.0).train()(EXAMPLES), model.teacher_forced(EXAMPLES, words)
    torch.testing.assert_close(sampled.total, model.decoder.loss(forced, TARGET))


def test_validation_mode_never_samples():
    model = tiny(FEW["gru-additive-into_cell"])
    plain, sampling = Objective(model, 0.0, 0.0).eval(), Objective(model, 0.0, 1.0).eval()
    assert plain(EXAMPLES).total.item() == sampling(EXAMPLES).total.item()


def told(objective):
    torch.manual_seed(1)
    loss = objective(EXAMPLES)
    assert tuple(loss.parts) == objective.names
    assert loss.number == 5
    return loss.total, loss.parts


EXPERTS = {
    "kind": "transformer",
    "hidden_size": 8,
    "feedforward_size": 12,
    "layers": 1,
    "attention": {"heads": 2},
    "experts": {"num_experts": 3},
}
MADE_OF = {
    "plain": ({}, {}, ["loss"]),
    "hard": ({"selection": "hard"}, {}, ["loss", "reinforce"]),
    "penalties": ({}, {"coverage": 0.5, "doubly_stochastic": 2.0}, ["loss", "coverage", "doubly_stochastic"]),
    "all": ({"selection": "hard"}, {"coverage": 0.5}, ["loss", "experts", "coverage", "reinforce"]),
}


@pytest.mark.parametrize("name", MADE_OF)
def test_a_total_is_the_cross_entropy_and_named_parts(name):
    """Of one draw; the same model without the others' rates has the same cross-entropy."""
    attention, penalties, names = MADE_OF[name]
    decoder = {**EXPERTS, "cross_attention": {"heads": 2, **attention}}
    decoder["experts"] = EXPERTS["experts"] if "experts" in names else None
    encoder = {"kind": "recurrent", "embedding_size": 5, "hidden_size": 4}
    model = small({"encoder": encoder, "decoder": decoder}).train()
    total, parts = told(Objective(model, 0.1, penalties=penalties))
    assert list(parts) == names
    torch.testing.assert_close(total, torch.stack(list(parts.values())).sum())
    assert not any(part.requires_grad or part == 0 for part in parts.values())
    torch.manual_seed(1)
    steps = model.teacher_forced(EXAMPLES, WORDS, return_weights=bool(penalties))
    torch.testing.assert_close(parts["loss"], model.decoder.loss(steps, TARGET, 0.1).detach())
    if "experts" in names:
        torch.testing.assert_close(parts["experts"], steps.cost.detach() * 5)
    model.eval()
    total, parts = told(Objective(model, 0.1, penalties=penalties).eval())  # nothing is drawn, and experts cost nothing
    assert list(parts) == names
    torch.testing.assert_close(total, torch.stack(list(parts.values())).sum())


def test_penalties_need_attention():
    with pytest.raises(UserError, match=r"training\.penalties ask where the model looked"):
        Objective(tiny(FEW["lstm-none"]), 0.0, penalties={"coverage": 1.0})
