"""Every tile plan of flash attention compiles for a Hopper GPU, without one, and fits into its shared memory:
test_interpreted.py runs this file in a process of its own."""

import itertools

import pytest

SHARED = 227 * 1024  # bytes a program may have on an H100 or H200
WIDTHS = [(64, 64), (128, 128), (256, 256), (512, 512), (64, 300), (64, 700), (300, 64), (1000, 1000)]
NUMBERS = {"LOG_SUM", "CENTRE", "MIDDLE", "BY_SUM", "DCENTRE"}
TYPES = dict.fromkeys(NUMBERS, "*fp32") | dict.fromkeys(("LOW", "HIGH"), "*i32") | {"VISIBLE": "*u8"}
TYPES |= dict.fromkeys(("PLACE", "FIRST", "LAST"), "*i64")
TYPES |= dict.fromkeys(("HEADS", "SHARES", "T", "S"), "i32") | dict.fromkeys(("scale", "factor", "steep"), "fp32")
OFF = dict.fromkeys(("PLAIN", "HIDES", "WINDOW", "GAUSS", "SOFT", "PICK", "GIVES", "SUMS"), False)
USES = {
    "soft": {"HIDES": True, "WINDOW": True, "GAUSS": True, "SOFT": True, "GIVES": True},
    "hard": {"PLAIN": True, "PICK": True, "GIVES": True, "SUMS": True},
}


def kernels(plan, sizes):
    """Each kernel that the plan launches, with its tile and what its columns are."""
    from regard.nn.kernels.attention import flash_backward, flash_tiles, wide_tiles
    from regard.nn.kernels.attention.flash_plans import COLUMNS, STRIP

    yield flash_tiles.attend_tiles, plan.forward, {"C": plan.chunk, "CV": plan.slice_}
    if plan.wide:
        yield wide_tiles.wide_score_gradients, plan.query_backward, {"C": STRIP, "CV": STRIP}
        yield wide_tiles.by_query, plan.keys_backward, {"WIDTH": sizes[0], "BC": COLUMNS}
        yield wide_tiles.by_key, plan.keys_backward, {"WIDTH": sizes[0], "BC": COLUMNS}
    else:
        yield flash_backward.query_backward, plan.query_backward, {"C": plan.chunk, "CV": plan.slice_}
        yield flash_backward.keys_backward, plan.keys_backward, {"C": plan.chunk, "CV": plan.slice_}


def shared_memory(kernel, tile, constants, kind):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [parameter.name for parameter in kernel.params]
    types = {name: TYPES.get(name, kind if name.isupper() else "i32") for name in names}
    types |= {name: "constexpr" for name in names if name in constants}
    fixed = {(number,): constants[name] for number, name in enumerate(names) if name in constants}
    aligned = {  # as real tensors are: only such loads are made ahead of time, which is what takes shared memory
        (number,): [["tt.divisibility", 16]] for number, name in enumerate(names) if types[name][0] == "*" or name in ("T", "S")
    }
    source = ASTSource(fn=kernel, signature=types, constexprs=fixed, attrs=aligned)
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).metadata.shared


@pytest.mark.parametrize(("sizes", "use", "kind"), list(itertools.product(WIDTHS, USES, ["*bf16", "*fp32"])))
def test_a_plan_fits(sizes, use, kind):
    pytest.importorskip("triton")
    from regard.nn.kernels.attention.flash_plans import plan_for

    plan = plan_for(*sizes, 2 if kind == "*bf16" else 4)
    common = {**OFF, **USES[use], "SIZE": sizes[0], "VALUE": sizes[1], "PRECISION": "tf32x3", "FM": 128}
    for kernel, tile, columns in kernels(plan, sizes):
        constants = {**common, **columns, "BM": tile.queries, "BN": tile.keys}
        assert shared_memory(kernel, tile, constants, kind) <= SHARED, kernel.__name__
