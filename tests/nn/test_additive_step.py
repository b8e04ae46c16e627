"""One query looks at its sentence: the fused kernels against the formula in float64, on a CPU by Triton's interpreter."""

import pytest
import torch

from regard.nn.kernels.attention import additive_step


def formula(query, keys, values, visible, score_vector):
    """α = softmax(w · tanh(q + k)) over what is visible, c = Σ α v."""
    scores = torch.einsum("bqhsd,hd->bhqs", torch.tanh(query[:, :, :, None] + keys[:, None]), score_vector)
    hidden = torch.zeros_like(scores, dtype=torch.bool) if visible is None else ~visible[:, None, None].expand_as(scores)
    weights = scores.masked_fill(hidden, -1e300).softmax(dim=-1).masked_fill(hidden, 0.0)
    return torch.einsum("bhqs,bhsv->bqhv", weights, values), weights


class Trial:
    """Several looks at one sentence, a random gradient for each result, and nothing visible in the first row."""

    def __init__(self, shape, looks=2, masked=True, penalty=True, dtype=torch.float32, device="cpu", spread=1.0):
        batch, heads, source, size, value, queries = shape
        shapes = [(batch, heads, source, size), (batch, heads, source, value), (heads, size)]
        shapes += [(batch, queries, heads, size)] * looks
        scales = [spread, 1.0, size**-0.5] + [spread] * looks
        self.tensors = [(scale * torch.randn(one)).to(device, dtype) for scale, one in zip(scales, shapes, strict=True)]
        self.visible = (torch.rand(batch, source) < 0.6).to(device) if masked else None
        if masked:
            self.visible[0] = False
        self.slopes = [torch.randn(batch, queries, heads, value, device=device) for _ in range(looks)]
        self.penalties = [torch.randn(batch, heads, queries, source, device=device) for _ in range(looks if penalty else 0)]

    def results(self, exact, wanted=(0, 1, 2)):
        """Values, then the gradients of keys, values and energy as far as they are wanted, and of all queries."""
        kind = torch.float64 if exact else self.tensors[0].dtype
        leaves = [tensor.to(kind).detach() for tensor in self.tensors]
        learning = [leaves[number].requires_grad_() for number in (*wanted, *range(3, len(leaves)))]
        keys, values, score_vector, *queries = leaves
        look = additive_step.bind_step(keys, values, self.visible, score_vector)
        if exact:
            look = lambda query: formula(query, keys, values, self.visible, score_vector)  # noqa: E731
        found = [look(query) for query in queries]
        total = sum((context * slope).sum() for (context, _), slope in zip(found, self.slopes, strict=True))
        for (_, weights), penalty in zip(found, self.penalties, strict=False):
            total = total + (weights * penalty).sum()
        return [*(part.detach() for pair in found for part in pair), *torch.autograd.grad(total, learning)]

    def distance(self, wanted=(0, 1, 2)):
        ours, exact = self.results(False, wanted), self.results(True, wanted)
        return max(
            float((one.double() - other).norm() / (other.norm() + 1e-30)) for one, other in zip(ours, exact, strict=True)
        )


def test_a_cpu_is_refused():
    assert not additive_step.applies(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1))


GPU = [
    (8, 1, 32, 512, 512, 1),
    (3, 2, 300, 100, 130, 1),
    (2, 1, 1500, 1024, 1024, 5),
    (4, 8, 33, 64, 64, 3),
    (5, 1, 1, 1, 1, 1),
]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
CASES = [(shape, torch.float32) for shape in GPU] + [
    (GPU[0], torch.bfloat16),
    (GPU[2], torch.bfloat16),
    (GPU[0], torch.float16),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "kind"), CASES)
def test_a_look_is_the_formula_on_a_gpu(shape, kind):
    for masked in (False, True):
        assert Trial(shape, masked=masked, penalty=masked, dtype=kind, device="cuda").distance() < TOLERANCE[kind]


@pytest.mark.gpu
def test_keys_that_saturate_the_tanh():
    assert Trial((4, 1, 40, 96, 64, 1), device="cuda", spread=30.0).distance() < 1e-4


@pytest.mark.gpu
def test_two_runs_agree_in_every_bit():
    trial = Trial((9, 2, 70, 96, 80, 2), dtype=torch.bfloat16, device="cuda")
    for one, other in zip(trial.results(False), trial.results(False), strict=True):
        assert torch.equal(one, other)
