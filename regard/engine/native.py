"""layers.c and what it includes, compiled once for this processor where there is a compiler; elsewhere PyTorch does it."""

import ctypes
import functools
import hashlib
import math
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int, Int8
from torch import Tensor

from regard.engine.pages import laid_out, room
from regard.nn.rounding import Which

SOURCES = [Path(__file__).with_name(name) for name in ("layers.c", "products.c", "attention.c")]  # the first has the others
# Sums in any order; not -ffast-math, which changes how the whole process rounds once such a library is loaded
FLAGS = ("-O3", "-march=native", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno",
         "-ffinite-math-only", "-freciprocal-math", "-fno-strict-aliasing", "-shared", "-fPIC")  # fmt: skip
SWITCH = "REGARD_NATIVE"  # 0: not even where it could be compiled
Bias = Float[Tensor, "output"] | None
FOUR, PANEL = 4, 64  # inputs that an instruction multiplies at once, outputs of a tile


@functools.cache
def library() -> ctypes.CDLL | None:
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if os.environ.get(SWITCH) == "0" or shutil.which(compiler[0]) is None or platform.machine() not in ("x86_64", "AMD64"):
        return None
    try:
        found = ctypes.CDLL(str(compiled(compiler)))
    except (OSError, RuntimeError, subprocess.SubprocessError):  # other instructions, no place to write or no home, no compiler
        return None
    number, place = ctypes.c_long, ctypes.c_void_p
    found.linear.argtypes, found.linear.restype = (place, place, number, place), ctypes.c_int
    found.lay_out.argtypes, found.lay_out.restype = (place, place, place, number, number), None
    found.attend.argtypes = (place, place, number, number, number, place, place, number)
    found.attend.restype = None
    found.decode_word.argtypes, found.decode_word.restype = (place, place), ctypes.c_int
    found.lstm_scan.argtypes, found.lstm_scan.restype = (place, place), ctypes.c_int
    return found


def compiled(compiler: list[str]) -> Path:
    """The library in the user's cache, under a name that says what it was made of."""
    known = [*(source.read_bytes() for source in SOURCES), " ".join((*compiler, *FLAGS)).encode(), processor().encode()]
    name = hashlib.sha256(b"\0".join(known)).hexdigest()[:24]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"native-{name}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            made = Path(aside) / path.name
            subprocess.run([*compiler, *FLAGS, str(SOURCES[0]), "-o", str(made)], check=True, capture_output=True, timeout=120)
            made.replace(path)
    return path


def processor() -> str:
    """Whose instructions -march=native means: a home directory may be shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "".join(line for line in dict.fromkeys(lines) if line.startswith(("model name", "flags")))


class Weights(ctypes.Structure):
    """`Linear` of products.c."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("inputs", "outputs")),
        *((name, ctypes.c_void_p) for name in ("weight", "scales", "offsets", "bias", "after")),
    )


class Tiles:
    """Integers as products.c reads them, [outputs / 64][inputs / 4][64] times four bytes, and row by row."""

    def __init__(self, native: ctypes.CDLL, integers: Int8[Tensor, "output input"]) -> None:
        self.outputs, self.inputs = integers.shape
        missing = -self.inputs % FOUR
        rows = torch.nn.functional.pad(integers, (0, missing)) if missing else integers.contiguous()
        self.laid_out = room((-(-self.outputs // PANEL), rows.shape[1] // FOUR, PANEL), torch.int32)
        self.offsets = torch.empty(self.outputs, dtype=torch.int32)
        native.lay_out(*map(place_of, (rows, self.laid_out, self.offsets)), self.outputs, rows.shape[1])

    def __getitem__(self, which: Which) -> Int8[Tensor, "*some input"]:
        which = torch.arange(self.outputs)[which] if isinstance(which, slice) else which
        return self.laid_out[which // PANEL, :, which % PANEL].view(torch.int8)[..., : self.inputs]


class NativeProduct:
    """y = x Wᵀ + b by products.c."""

    def __init__(self, native: ctypes.CDLL, inputs: int, outputs: int, kept: Sequence[Tensor | None]) -> None:
        """`kept`: weights as they are laid out, scales, offsets, bias."""
        self.run, self.inputs, self.outputs = native.linear, inputs, outputs
        self.kept = kept  # what is pointed to lives as long
        self.weights = Weights(inputs, outputs, *map(place_of, kept))
        self.place = ctypes.byref(self.weights)

    def __call__(self, rows: Float[Tensor, "*rows input"]) -> Float[Tensor, "*rows output"]:
        if rows.dtype != torch.float32 or not rows.is_contiguous():
            rows = rows.float().contiguous()
        *outer, inputs = rows.shape
        assert inputs == self.inputs
        count, found = math.prod(outer), torch.empty((*outer, self.outputs))
        if not self.run(self.place, rows.data_ptr(), count, found.data_ptr()):
            raise MemoryError(f"no memory for a product of {count} rows")
        return found


def int8_product(native: ctypes.CDLL, tiles: Tiles, scales: Float[Tensor, "output"], bias: Bias) -> NativeProduct:
    assert tiles.inputs < 1 << 17, "a sum of more products of bytes does not fit into 32 bits"
    kept = tiles.laid_out, scales.contiguous(), tiles.offsets, None if bias is None else bias.float().contiguous()
    return NativeProduct(native, tiles.inputs, tiles.outputs, kept)


def float32_product(native: ctypes.CDLL, weight: Float[Tensor, "output input"], bias: Bias) -> NativeProduct:
    outputs, inputs = weight.shape
    padded = torch.nn.functional.pad(weight.float(), (0, 0, 0, -outputs % PANEL))
    panels = laid_out(padded.reshape(-1, PANEL, inputs).transpose(1, 2))
    return NativeProduct(native, inputs, outputs, (panels, None, None, None if bias is None else bias.float().contiguous()))


def place_of(tensor: Tensor | None) -> int | None:
    """Where its numbers lie, for C, which takes them to be side by side."""
    assert tensor is None or tensor.is_contiguous()
    return None if tensor is None else tensor.data_ptr()


class Past(ctypes.Structure):
    """`Past` of attention.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("pairs", "ancestors", "visible", "network")),
        *((name, ctypes.c_long) for name in ("sharers", "heads", "key", "value", "places", "times")),
    )


def attend(
    native: ctypes.CDLL, queries: Float[Tensor, "rows heads*key"], pairs: Float[Tensor, "slots heads places both"], key: int,
    times: int, ancestors: Int[Tensor, "rows times"] | None, visible: Bool[Tensor, "slots times"] | None, sharers: int,
    network: Float[Tensor, "heads key"] | None = None,
) -> tuple[Float[Tensor, "rows heads*value"], Float[Tensor, "rows heads times"]]:  # fmt: skip
    """`look` of transformer.py; pairs are float32 or bfloat16. `network`: 2 v of scores v · tanh(q + k), whose queries and keys
    are given as e^2q and e^2k."""
    rows, (_, heads, places, both) = len(queries), pairs.shape
    queries = queries if queries.stride(1) == 1 else queries.contiguous()
    assert pairs.dtype in (torch.float32, torch.bfloat16)
    assert ancestors is not None or rows == sharers * len(pairs)
    context, weights = queries.new_empty(rows, heads * (both - key)), queries.new_empty(rows, heads, times)
    past = Past(*map(place_of, (pairs, ancestors, visible, network)), sharers, heads, key, both - key, places, times)
    native.attend(
        ctypes.byref(past), queries.data_ptr(), queries.stride(0), rows, pairs.dtype == torch.bfloat16, context.data_ptr(),
        weights.data_ptr(), heads * times,
    )  # fmt: skip
    return context, weights
