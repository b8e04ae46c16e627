"""Products of rounded weights against NumPy's integers."""

import numpy as np
import pytest
import torch

from regard.engine import native
from regard.engine.products import PRECISIONS
from regard.engine.transformer import Heads, look
from regard.models.rounded import STORED
from regard.nn.rounding import LARGEST, RoundedMatrix, rounded

TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2, "int8": 3e-2}  # of the largest output


def integer_product(inputs, weight, bias, levels):
    """Both factors rounded row by row, multiplied as integers."""
    scales = np.abs(weight).max(axis=1) / LARGEST
    integers = np.rint(weight / scales[:, None]).astype(np.int64)
    largest = np.abs(inputs).max(axis=1, keepdims=True)
    shares = np.rint((inputs / largest).astype(np.float32) * levels).astype(np.int64)
    return (shares @ integers.T) * (largest / levels) * scales + bias


@pytest.fixture(params=["compiled", "operators"])
def way(request, monkeypatch):
    """With products.c and attention.c where they can be compiled, and by PyTorch's operators."""
    if request.param == "operators":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("no compiler, or a processor without AVX512-VNNI")
    return request.param


ODD = [(rows, 7 * rows + 1, 66 - rows) for rows in range(1, 18)]  # every remainder of a tile's rows


@pytest.mark.parametrize(
    ("rows", "outputs", "inputs"), [(1, 24, 40), (7, 24, 41), (16, 17, 3), (3, 130, 40), (12, 64, 40), *ODD]
)
def test_int8_is_the_product_of_rounded_integers(rows, outputs, inputs, way):
    weight, bias = torch.randn(outputs, inputs), torch.randn(outputs)
    inputs = torch.randn(rows, inputs) * torch.rand(rows, 1) * 50
    levels = LARGEST if way == "compiled" or torch.cpu._is_vnni_supported() else LARGEST // 2
    expected = integer_product(inputs.double().numpy(), weight.double().numpy(), bias.double().numpy(), levels)
    found = PRECISIONS["int8"](weight, bias)(inputs).double().numpy()
    step = np.abs(inputs.numpy()).max(axis=1, keepdims=True) / levels * np.abs(weight.numpy()).max()
    assert (np.abs(found - expected) <= 1e-4 * np.abs(expected) + 1.01 * step).all()  # a share that lies between two integers
    assert np.median(np.abs(found - expected)) < 1e-4


@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(0, 5, 4), (1, 24, 40), (3, 64, 8), (12, 65, 1), *ODD])
def test_float32_is_the_product(rows, outputs, inputs, way):
    weight, bias, given = (
        torch.randn(outputs, inputs),
        torch.randn(outputs),
        torch.randn(inputs, rows).T,
    )  # lies column by column
    expected = given.double() @ weight.double().T
    for offset in (None, bias):
        found = PRECISIONS["float32"](weight, offset)(given)
        torch.testing.assert_close(found, (expected if offset is None else expected + offset).float(), atol=2e-5, rtol=1e-5)


def test_several_threads_leave_float32_to_the_operators():
    """Which share a product among them; ours is of one."""
    weight = torch.randn(9, 8)
    torch.set_num_threads(2)
    several = PRECISIONS["float32"](weight, None)
    torch.set_num_threads(1)
    assert not isinstance(several, native.NativeProduct)
    assert isinstance(PRECISIONS["float32"](weight, None), native.NativeProduct) == (native.library() is not None)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24), (1, 1, 24)])
def test_every_precision_is_near_the_plain_product(precision, shape, way):
    weight, bias, inputs = torch.randn(17, 24), torch.randn(17), torch.randn(shape)
    expected = torch.nn.functional.linear(inputs, weight, bias)
    for given, wanted in ((bias, expected), (None, expected - bias)):
        found = PRECISIONS[precision](weight, given)(inputs)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted, atol=TOLERANCES[precision] * expected.abs().max().item(), rtol=0)


def test_a_row_is_rounded_alike_in_any_batch(way):
    product, inputs = (
        PRECISIONS["int8"](torch.randn(9, 24), torch.randn(9)),
        torch.randn(5, 24) * 10.0 ** torch.arange(-2, 3)[:, None],
    )
    alone = torch.cat([product(row[None]) for row in inputs])
    torch.testing.assert_close(product(inputs), alone, atol=0, rtol=1e-6)


def test_rows_of_zeros_stay_zeros(way):
    product = PRECISIONS["int8"](torch.zeros(4, 8), None)
    assert product(torch.zeros(2, 8)).eq(0).all()
    assert product(torch.randn(2, 8)).eq(0).all()


def test_weights_that_were_rounded_before_stay_as_they_are():
    integers, scales = rounded(torch.randn(6, 30))
    again, same = rounded(integers * scales[:, None])
    assert again.equal(integers)
    torch.testing.assert_close(same, scales)


@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (16, 4), (37, 10), (64, 8), (65, 7), (200, 9)])
def test_rows_are_read_where_products_keep_them(outputs, inputs, way):
    """A matrix that stays rounded gives its integers to the product, and still is the same matrix."""
    plain = torch.randn(outputs, inputs)
    weight, which = RoundedMatrix(*rounded(plain)), torch.randint(outputs, (3, 2))
    expected, rows = weight.integers.clone(), torch.randn(4, inputs)
    found = PRECISIONS["int8"](weight, None)(rows)
    assert found.equal(PRECISIONS["int8"](plain, None)(rows))
    assert (type(weight.integers) is native.Tiles) == (way == "compiled")
    assert weight.integers[:].equal(expected)
    assert weight.integers[which].equal(expected[which])
    assert weight.rows(which).equal(expected[which] * weight.scales[which][..., None])


@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (64, 4), (65, 9), (130, 64), (17, 40_000)])
def test_integers_lie_in_tiles_beside_128_times_their_sums(outputs, inputs):
    if (own := native.library()) is None:
        pytest.skip("no compiler for this processor")
    integers = np.random.default_rng(0).integers(-LARGEST, LARGEST + 1, (outputs, inputs), dtype=np.int8)
    integers[0] = -LARGEST
    tiles = native.Tiles(own, torch.from_numpy(integers))
    padded = np.pad(integers, ((0, -outputs % 64), (0, -inputs % 4)))
    expected = padded.reshape(-1, 64, padded.shape[1] // 4, 4).transpose(0, 2, 1, 3)
    assert np.array_equal(tiles.laid_out.numpy(), expected.copy().view(np.int32)[..., 0])
    assert np.array_equal(tiles.offsets.numpy(), 128 * integers.sum(axis=1, dtype=np.int64))


def attended(queries, keys, values, visible):
    """softmax(q Kᵀ) V of each query, one by one."""
    scores = np.where(visible, keys @ queries, -np.inf)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights @ values, weights


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("times", [1, 5, 37])
@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16])
def test_a_query_looks_at_keys_wherever_they_were_written(times, shared, kept, way):
    """At those of its ancestors, or, `shared`, at those of its sentence, padding aside."""
    heads = object.__new__(Heads)
    heads.count, heads.key, heads.value = 2, 3, 69
    slots, rows = 3, 6
    pairs, queries = torch.randn(slots, 2, 40, 72).to(kept), (torch.randn(rows, 7) * 3)[:, :6]
    ancestors, visible = torch.randint(slots, (rows, times)), torch.rand(slots, times) < 0.6
    visible[:, 0] = True
    found = look(queries, pairs, heads, times, *((None, visible) if shared else (ancestors, None)))
    for row in range(rows):
        own = torch.full((times,), row // 2) if shared else ancestors[row]
        seen = visible[row // 2].numpy() if shared else np.ones(times, bool)
        for head in range(2):
            mine = pairs[own, head, torch.arange(times)].double().numpy()
            asked = queries[row, head * 3 : head * 3 + 3].double().numpy()
            context, weights = attended(asked, mine[:, :3], mine[:, 3:], seen)
            np.testing.assert_allclose(found.weights[row, head].numpy(), weights, atol=1e-5)
            np.testing.assert_allclose(found.context[row, head * 69 : head * 69 + 69].numpy(), context, atol=1e-5)


def test_without_a_compiler_there_is_no_library(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert native.library.__wrapped__() is None
    monkeypatch.delenv("CC")
    monkeypatch.setenv(native.SWITCH, "0")
    assert native.library.__wrapped__() is None


@pytest.fixture
def compiling(monkeypatch, tmp_path):
    """Where it would be compiled anew."""
    monkeypatch.delenv(native.SWITCH, raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("compiler", ["", "cc -g0"])
@pytest.mark.skipif(native.library() is None, reason="no compiler, or a processor without AVX512-VNNI")
def test_a_compiler_may_come_with_options(compiler, compiling, monkeypatch):
    monkeypatch.setenv("CC", compiler)
    assert native.library.__wrapped__() is not None


def test_without_a_place_for_it_there_is_no_library(compiling, monkeypatch):
    """A file where the folder would be, and a user who has no home."""
    (compiling / "regard").write_text("")
    assert native.library.__wrapped__() is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(native.Path, "home", lambda: native.Path("~nobody-of-that-name").expanduser())
    assert native.library.__wrapped__() is None


def test_without_the_instructions_there_is_no_library(compiling, monkeypatch):
    monkeypatch.setattr(native, "FLAGS", tuple("-march=x86-64" if flag == "-march=native" else flag for flag in native.FLAGS))
    assert native.library.__wrapped__() is None
    assert not list((compiling / "regard").iterdir())


def test_a_compiler_that_fails_leaves_nothing_behind(compiling, monkeypatch):
    broken = compiling / "broken-compiler"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    assert native.library.__wrapped__() is None
    assert not list((compiling / "regard").iterdir())


def test_what_can_be_stored_can_be_used():
    assert list(STORED) == list(PRECISIONS)
