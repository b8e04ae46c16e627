import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from kinds import small
from tiny import FEW, tiny

from regard.errors import UserError
from regard.training.objective import Examples, Objective

EXAMPLES = Examples(
    torch.tensor([[4, 5, 3], [6, 3, 0]]),
    torch.tensor([3, 2]),
    torch.tensor([[2, 7, 8], [2, 4, 0]]),
    torch.tensor([[7, 8, 3], [4, 3, 0]]),
)


def test_scheduled_sampling_reads_its_own_words_and_never_pads():
    model = tiny(FEW["gru-additive-into_cell"], scale=3.0)
    objective = Objective(model, 0.0, 1.0).train()
    own = model(EXAMPLES.source, EXAMPLES.source_lengths, EXAMPLES.target_input).argmax(-1)
    words = objective.sample(EXAMPLES)
    assert words[:, 0].tolist() == [2, 2]
    assert words[0, 1:].tolist() == own[0, :2].tolist()
    assert words[1].tolist() == [2, own[1, 0].item(), 0]
    assert Objective(model, 0.0, 0.0).sample(EXAMPLES).equal(EXAMPLES.target_input)


def test_validation_mode_never_samples():
    model = tiny(FEW["gru-additive-into_cell"])
    plain, sampling = Objective(model, 0.0, 0.0).eval(), Objective(model, 0.0, 1.0).eval()
    assert plain(EXAMPLES).total.item() == sampling(EXAMPLES).total.item()


def told(objective):
    torch.manual_seed(1)
    loss = objective(EXAMPLES)
    return loss.total, dict(zip(objective.names, loss.parts, strict=True))


EXPERTS = {"kind": "transformer", "size": 8, "inner": 12, "layers": 1, "attention": {"heads": 2}, "experts": {"number": 3}}
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
    steps = model.teacher_forced(EXAMPLES, WORDS, look=bool(penalties))
    torch.testing.assert_close(parts["loss"], model.decoder.loss(steps, EXAMPLES.target_output, 0.1).detach())
    if "experts" in names:
        torch.testing.assert_close(parts["experts"], steps.cost.detach() * 5)
    model.eval()
    total, parts = told(Objective(model, 0.1, penalties=penalties).eval())  # nothing is drawn, and experts cost nothing
    assert list(parts) == names
    torch.testing.assert_close(total, torch.stack(list(parts.values())).sum())


def test_penalties_need_attention():
    with pytest.raises(UserError, match=r"training\.penalties ask where the model looked"):
        Objective(tiny(FEW["lstm-none"]), 0.0, penalties={"coverage": 1.0})
