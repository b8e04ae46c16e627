"""Small decoders alone: source and target in one sequence."""

from regard.nn.attention import SCOPES
from regard.nn.positions import POSITIONS


def section(**options):
    side = {"hidden_size": 8, "feedforward_size": 12, "layers": 2, "attention": {"heads": 2}, **options}
    return {"kind": "decoder_alone", "longest": 12, "distance": 3, **side}


def kinds():
    for name in POSITIONS:
        yield f"positions-{name}", section(positions=name)
    for name, kind in SCOPES.items():
        if not kind.moves and not kind.local:
            yield f"scope-{name}", section(attention={"heads": 2, "scope": name, "window": 2})
    yield "two-way", section(two_way_source=True, norm_place="pre", positions="rotary")
    alternating = [{"heads": 2, "scope": "blocks", "window": 3}, {"heads": 2, "scope": "compressed", "window": 2}, {"heads": 2}]
    yield "alternating", section(layers=3, attention=alternating)
    yield "alternating-two-way", section(layers=3, attention=alternating, two_way_source=True)


KINDS = dict(kinds())
