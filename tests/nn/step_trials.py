"""Trials of the kernels of a decoding step, for Triton's interpreter and for a GPU: each beside its formula in float64."""

import torch

from regard.nn.kernels.steps import attend, product, words
from regard.nn.linear import Projection


def close(ours, exact, kind=torch.float32):
    bound = {torch.float32: 2e-4, torch.bfloat16: 4e-2, torch.float64: 1e-9}[kind]
    torch.testing.assert_close(ours.double(), exact.double(), rtol=bound, atol=bound)


def exactly(*tensors):
    """As numbers of 64 bits, which no kernel takes; what is no number of a fraction is copied."""
    return [
        one.double() if one is not None and one.is_floating_point() else None if one is None else one.clone() for one in tensors
    ]


def past(width, size=20, heads=3, rows=6, room=37, device="cpu", kind=torch.float32):
    joint = torch.randn(rows, 3, heads, size, device=device, dtype=kind)
    caches = torch.randn(rows, 2, 2, room, heads * size, device=device, dtype=kind)
    places = torch.tensor([0, 1, 5, 33, 36, 40][:rows], device=device)
    places = places if width == 1 else places[: rows // width].repeat_interleave(width)
    table = None if width == 1 else torch.randint(width, (rows, room), device=device, dtype=torch.int32)
    return joint, caches, places, table


def try_past(width, **sizes):
    joint, caches, places, table = past(width, **sizes)
    other, exact = exactly(caches, table), {"scale": 0.3, "width": width, "marks": True}
    found = attend.attend_to_past(joint, caches[:, 1], places, table, **exact)
    expected = attend.attend_to_past(joint.double(), other[0][:, 1], places, other[1], **exact)
    close(found, expected, joint.dtype)
    assert torch.equal(caches.double(), other[0])
    assert table is None or torch.equal(table, other[1])


def try_sentence(width, size=20, heads=3, batch=3, source=37, device="cpu", kind=torch.float32):
    keys, values = (torch.randn(batch, source, heads, size, device=device, dtype=kind).transpose(1, 2) for _ in range(2))
    query = torch.randn(batch * width, heads * size, device=device, dtype=kind)
    counts = torch.arange(source, device=device) < torch.tensor([source, 5, 0], device=device)[:batch, None]
    sides = query, keys, values.contiguous()
    found, expected = (attend.attend_to_sentence(*each, counts, scale=0.3) for each in (sides, [one.double() for one in sides]))
    close(found, expected, kind)


def norm_of(size, kind, like):
    def draw():
        return torch.randn(size, device=like.device, dtype=like.dtype)

    return product.Norm(draw(), draw() if kind == "layer" else None, kind)


def exact_norm(norm):
    return None if norm is None else norm._replace(weight=norm.weight.double(), offset=exactly(norm.offset)[0])


def try_product(
    rows, size=48, wide=40, norm=None, other=None, relu=False, biased=True, adds=True, device="cpu", kind=torch.float32
):
    def draw(*shape):
        return torch.randn(*shape, device=device, dtype=kind)

    states, plus, layer = (
        draw(rows, size),
        draw(rows, wide),
        Projection(draw(wide, size) * size**-0.5, draw(wide) if biased else None),
    )
    before, behind = (None if name is None else norm_of(width, name, states) for name, width in ((norm, size), (other, wide)))
    assert product.applies(states)
    how = {"kind": "relu" if relu else None}
    found = product.product(states, layer, norm=before, plus=product.Plus(plus, behind) if adds else None, **how)
    layer, plus = Projection(*exactly(*layer)), product.Plus(plus.double(), exact_norm(behind)) if adds else None
    close(found, product.plain_product(states.double(), layer, norm=exact_norm(before), plus=plus, **how), kind)


def missing_of(rows, device):
    """(left, missing): one may end, one may not, one can no longer keep to both."""
    return [torch.tensor(side, device=device).repeat(rows)[:rows] for side in ([5, 5, 1], [0, 2, 3])]


def try_best(batch, width, count, vocabulary, least, device="cpu", kind=torch.float32):
    logits, totals = (torch.randn(*shape, device=device) for shape in ((batch * width, vocabulary), (batch, width)))
    logits = (logits * 3).to(kind)
    totals[0, -1] = float("-inf") if width > 1 else 0.0
    left, missing = missing_of(len(logits), device)
    given = count, 3, left, missing if least else None
    found, expected = words.best_words(logits, totals, *given), words.plain_best_words(logits, totals, *given)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    possible = expected[0] > float("-inf")
    whole = torch.cat([totals.view(-1, 1) + words.allowed(logits, *given[1:])]).view(batch, -1)
    torch.testing.assert_close(whole.gather(1, found[1]), found[0], rtol=1e-5, atol=1e-5)  # the words are those of the scores
    assert all(len(set(one[ok].tolist())) == int(ok.sum()) for one, ok in zip(found[1], possible, strict=True))
    assert int(found[1].max()) < width * vocabulary


def greedy_rows(rows, least, device):
    left, missing = missing_of(rows, device)
    places = torch.arange(rows, device=device)
    is_open = torch.arange(rows, device=device) % 3 != 1
    return words.GreedyRows(
        torch.zeros_like(places), torch.full((rows, rows), 3, device=device), places.clone(), torch.randn(rows, device=device),
        is_open, left, places, missing if least else None,
    )  # fmt: skip


def try_greedily(rows, vocabulary, least, device="cpu", kind=torch.float32):
    logits, ours = (torch.randn(rows, vocabulary, device=device) * 3).to(kind), greedy_rows(rows, least, device)
    logits[:, 3] += 6  # the end mark
    exact = words.GreedyRows(*(None if one is None else one.clone() for one in ours))
    words.step_greedily(logits, ours, 3)
    words.plain_step_greedily(logits, exact, 3)
    for name, one, other in zip(words.GreedyRows._fields, ours, exact, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def try_no_number(least, device="cpu", kind=torch.float32):
    """In the second of three sentences, so that the search finds out."""
    logits = torch.randn(6, 130, device=device).to(kind)
    logits[3, 100] = float("nan")
    left, missing = missing_of(6, device)
    totals, _ = words.best_words(logits, torch.zeros(3, 2, device=device), 4, 3, left.clamp(min=4), missing if least else None)
    assert totals.isnan().any(dim=1).tolist() == [False, True, False]
    rows = greedy_rows(6, least, device)
    words.step_greedily(logits, rows._replace(open=torch.ones_like(rows.open), left=left.clamp(min=4)), 3)
    assert rows.totals.isnan().tolist() == [False] * 3 + [True] + [False] * 2
    assert int(rows.words.min()) >= 0
    assert int(rows.words.max()) < 130


def try_enter(size=20, device="cpu", kind=torch.float32):
    embed, table = (torch.randn(9, size, device=device, dtype=kind) for _ in range(2))
    asked, places = torch.tensor([1, 8, 8], device=device), torch.tensor([0, 8, 12], device=device)
    for one in (table, None):
        found = words.enter(asked, embed, one, places, 4.5)
        close(found, words.enter(asked, embed.double(), None if one is None else one.double(), places, 4.5), kind)
