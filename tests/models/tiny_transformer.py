"""Small Transformers: every kind of positions, norm, network, score and scope."""

from regard.nn.attention import SCOPES, SCORES, SELECTIONS
from regard.nn.positions import JOINS, POSITIONS
from regard.nn.transformer.feedforward import FEEDFORWARDS
from regard.nn.transformer.norms import NORMS


def section(decoder=None, **both):
    """Both sides alike but for `decoder`."""
    side = {
        "kind": "transformer",
        "hidden_size": 8,
        "feedforward_size": 12,
        "layers": 2,
        "dropout": 0.1,
        "attention": {"heads": 2},
        **both,
    }
    return {"encoder": side, "decoder": {**side, "cross_attention": {"heads": 2}, **(decoder or {})}}


def kinds():
    for name, kind in POSITIONS.items():
        yield f"positions-{name}", section(positions=name, longest=9, distance=3)
        for join in JOINS[1:] if kind.absolute else ():
            yield f"positions-{name}-{join}", section(positions=name, longest=9, positions_join=join)
    for name in NORMS:
        yield f"norm-{name}-pre", section(norm=name, norm_place="pre", positions="rotary")
        yield f"norm-{name}-post", section(norm=name)
    for name in FEEDFORWARDS:
        yield f"feedforward-{name}", section(feedforward=name)
    for name in SCORES:
        heads = {"score": name, "heads": 2}
        yield f"score-{name}", section({"cross_attention": heads}, attention=heads)
    for name, kind in SCOPES.items():
        if not kind.moves:
            yield f"own-scope-{name}", section(attention={"heads": 2, "scope": name, "window": 2})
        if name != "local_p":  # whose weights do not add up to 1
            yield f"cross-scope-{name}", section({"cross_attention": {"heads": 2, "scope": name, "window": 2}})
    for name in SELECTIONS:
        yield f"selection-{name}", section({"cross_attention": {"heads": 2, "selection": name, "softness": 0.99}})
    yield "coverage", section({"cross_attention": {"heads": 2, "coverage": True}})
    yield "alternating", section(layers=3, attention=[{"scope": "blocks", "window": 3}, {"scope": "compressed", "window": 2}])
    yield "untied-bias", section({"tied": False}, attention={"heads": 2, "bias": True})
    yield "experts", section(experts={"number": 3, "every": 1})
    gru = {"kind": "recurrent", "embedding_size": 5, "hidden_size": 6}
    yield "read-by-a-gru", {**section(), "decoder": gru}  # which begins at the mean of what is no padding


KINDS = dict(kinds())
