"""The kernels of a Transformer's layers compile for a Hopper GPU, without one: test_interpreted.py runs this file in a process
of its own. At the sizes of vaswani2017-base in numbers of 16 bits no register spills. `python compiled_layers.py` prints what
each takes."""

import itertools
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

SHARED = 227 * 1024  # bytes a program may have on an H100 or H200
TYPES = {"VISIBLE": "*u8", "LAST": "*i64", "SEED": "*i64", "SUMS": "*fp32"}
TYPES |= dict.fromkeys(("BIAS", "WEIGHT", "OFFSET"), "*fp32") | dict.fromkeys(("scale", "factor", "eps"), "fp32")
TYPES |= dict.fromkeys(("HEADS", "T", "S", "ROWS", "TIME", "COUNT"), "i32")
TYPES |= {"WORDS": "*i32", "ORDER": "*i64", "EDGES": "*fp32", "PLACES": "*fp32"}
NUMBERS = {"*bf16": ("bfloat16", 2), "*fp32": ("float32", 4)}
LENGTHS, SIZES = (16, 32, 64, 128), (64, 128)


def compiled(kernel, constants, kind, num_warps, maxnreg=None):
    """Registers a thread, bytes that they spill, and shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [parameter.name for parameter in kernel.params]
    types = {name: TYPES.get(name, kind if name.isupper() else "i32") for name in names}
    types |= {name: "constexpr" for name in names if name in constants}
    fixed = {(number,): constants[name] for number, name in enumerate(names) if name in constants}
    free = {"call", "dropped"}  # all other whole numbers are multiples of 16 at such sizes, and addresses too
    aligned = {
        (number,): [["tt.divisibility", 16]]
        for number, name in enumerate(names) if types[name][0] in "*i" and name not in free
    }  # fmt: skip
    options = {"num_warps": num_warps, "num_stages": 1} | ({} if maxnreg is None else {"maxnreg": maxnreg})
    source = ASTSource(fn=kernel, signature=types, constexprs=fixed, attrs=aligned)
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return *registers(found.asm["cubin"]), found.metadata.shared


def registers(binary):
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return tuple(int(re.search(rf"{what}:(\d+)", text).group(1)) for what in ("REG", "STACK"))


def attention(length, size, kind, back):
    import triton.language as tl

    from regard.nn.kernels.attention import short_tiles
    from regard.nn.kernels.attention.short import plan_of

    name, width = NUMBERS[kind]
    plan = plan_of(length, length, size, 8, width, back)
    constants = {"SIZE": size, "VALUE": size, "D": size, "E": size, "BM": plan.queries, "BN": length, "PAIRS": plan.pairs}
    constants |= {"BLOCKS": length // plan.queries, "HIDES": True, "LIMITS": True, "CAUSAL": False}
    constants |= {"KIND": getattr(tl, name), "PRECISION": "tf32x3"}
    return compiled(
        short_tiles.attend_short_backward if back else short_tiles.attend_short, constants, kind, plan.warps, plan.registers
    )


def norm(size, kind, back):
    from regard.nn.kernels.layers import norm_tiles
    from regard.nn.kernels.layers.norm import BACK, THERE
    from regard.nn.kernels.machine import tile_for

    tile = tile_for(size, *(BACK if back else THERE))
    warps = tile.pop("num_warps")
    flags = dict.fromkeys(("ADDS", "BIASED", "SHIFTS", "DROPS", "CENTRED", "NORMS", "PASSES", "SPLITS"), True)
    return compiled(norm_tiles.add_norm_back if back else norm_tiles.add_norm, {"SIZE": size, **tile, **flags}, kind, warps)


def activation(name, kind, back, width=2048):
    from regard.nn.kernels.layers import activation_tiles
    from regard.nn.kernels.layers.activation import COLUMNS, KINDS, NUMBERS
    from regard.nn.kernels.machine import tile_for

    tile = tile_for(COLUMNS, NUMBERS)
    warps = tile.pop("num_warps")
    constants = {"WIDTH": width, "BIASED": True, "LEARNS": True, "DROPS": True, "KIND": KINDS[name], **tile}
    return compiled(activation_tiles.activate_back if back else activation_tiles.activate, constants, kind, warps)


def words(name, kind, size=512):
    import triton.language as tl

    from regard.nn.kernels.layers import words_tiles
    from regard.nn.kernels.layers.words import AT_ONCE, BLOCK, COLUMNS
    from regard.nn.kernels.layers.words import NUMBERS as NUMBERS_OF_A_TILE
    from regard.nn.kernels.machine import tile_for

    tile = {"C": COLUMNS, "B": BLOCK, "AT_ONCE": AT_ONCE, "KIND": getattr(tl, NUMBERS[kind][0]), "num_warps": 4}
    tile = tile_for(size, NUMBERS_OF_A_TILE) if name == "enter" else tile
    warps = tile.pop("num_warps")
    return compiled(getattr(words_tiles, name), {"SIZE": size, "ADDS": True, "DROPS": True, **tile}, kind, warps)


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("name", ["enter", "add_runs", "join_runs"])
def test_kernels_of_words_do_not_spill(name, kind):
    _, spilled, shared = words(name, kind)
    assert (spilled, shared <= SHARED) == (0, True)


@pytest.mark.parametrize(("length", "back"), list(itertools.product(LENGTHS, (False, True))))
def test_attention_of_base_does_not_spill(length, back):
    _, spilled, shared = attention(length, 64, "*bf16", back)
    assert spilled == 0
    assert shared <= SHARED // 2


@pytest.mark.parametrize(("length", "size", "kind"), list(itertools.product(LENGTHS, SIZES, NUMBERS)))
def test_all_that_applies_fits(length, size, kind):
    from regard.nn.kernels.attention.short import ROOM

    if length * size <= ROOM[NUMBERS[kind][1]]:
        assert attention(length, size, kind, True)[2] <= SHARED


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("size", [512, 1024, 4096])
def test_norms_do_not_spill(size, back):
    assert norm(size, "*bf16", back)[1] == 0


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("name", ["relu", "gelu", "swiglu"])
def test_activations_do_not_spill(name, back):
    assert activation(name, "*bf16", back)[1] == 0


def show():
    print(f"{'kernel':<34} registers  spilled  shared")
    for back in (False, True):
        rows = {f"attention {length} x {size} {kind}": attention(length, size, kind, back)
                for length, size, kind in itertools.product(LENGTHS, SIZES, ["*bf16"])}  # fmt: skip
        rows |= {f"norm {size}": norm(size, "*bf16", back) for size in (512, 1024, 4096)}
        rows |= {name: activation(name, "*bf16", back) for name in ("relu", "gelu", "swiglu")}
        for name, facts in rows.items():
            print(f"{name + (', back' if back else ''):<34}" + "".join(f"{fact:>9}" for fact in facts), flush=True)


if __name__ == "__main__":
    assert "TRITON_INTERPRET" not in os.environ
    show()
