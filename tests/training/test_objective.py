import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from tiny import FEW, tiny

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
