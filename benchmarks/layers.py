"""The kernels of a Transformer's layers beside PyTorch's, forward and backward as one CUDA graph, at the sizes of
vaswani2017-base: with the bytes that must move, how many GB/s that is, and how long they take at 4 TB/s.

python benchmarks/layers.py [attention] [norm] [activation] [words]
"""

import functools
import json
import sys

import torch
import torch.nn.functional as F
from timing import race, report
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.nn.kernels.attention import short
from regard.nn.kernels.layers import activation, norm, words

SHAPES = [(1024, 32), (256, 128)]  # sentences, tokens of each
HEADS, HEAD, SIZE, INNER, RATE = 8, 64, 512, 2048, 0.1
FASTEST = 4e12  # bytes a second
TIMES = 20  # replays a sample
BACKENDS = {"sdpa flash": SDPBackend.FLASH_ATTENTION, "sdpa efficient": SDPBackend.EFFICIENT_ATTENTION,
            "sdpa cudnn": SDPBackend.CUDNN_ATTENTION}  # fmt: skip


def numbers(*shape, kind=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=kind, requires_grad=True)


def captured(action):
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            action()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        action()
    return graph


def replay(graph):
    for _ in range(TIMES):
        graph.replay()
    torch.cuda.synchronize()


def both(function, inputs, slopes):
    found = function(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    torch.autograd.grad(found, inputs, slopes)


def graph_of(name, action):
    """None where a rival refuses."""
    try:
        return captured(action)
    except Exception as error:
        print(json.dumps({"rival": name, "refused": str(error).strip().splitlines()[-1][:120]}), flush=True)
        torch.cuda.synchronize()
        return None


def compare(what, ours, rivals, inputs, slopes, moved, **facts):
    """`moved`: bytes that are read and written at least, forward and backward."""
    ways = {"forward and backward": functools.partial(both, inputs=inputs, slopes=slopes)}
    ways |= {"forward": functools.partial(forward, inputs=inputs)}
    for way, run in ways.items():
        graphs = {name: graph_of(name, functools.partial(run, one)) for name, one in {"ours": ours, **rivals}.items()}
        actions = {name: functools.partial(replay, graph) for name, graph in graphs.items() if graph is not None}
        medians = {name: seconds / TIMES for name, seconds in race(actions, rounds=9).items()}
        bytes_ = moved[0] if way == "forward" else sum(moved)
        facts |= {"way": way, "floor_ms": round(bytes_ / FASTEST * 1e3, 4), "GB/s": round(bytes_ / medians["ours"] / 1e9)}
        for rival in list(medians)[1:]:
            report(what, "ours", rival, medians, **facts)


def forward(function, inputs):
    with torch.no_grad():
        function(*inputs)


def sdpa(fused, visible, causal, backend):
    """The libraries take a whole mask, or none and `is_causal`; what they return has heads before time."""
    query, keys, values = fused.transpose(1, 3).unbind(2)
    mask = None if visible is None else visible[:, None, None, :]
    if mask is not None and causal:
        mask = mask & torch.ones(fused.shape[1], fused.shape[1], dtype=torch.bool, device="cuda").tril()
    with sdpa_kernel(backend):
        found = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=causal and mask is None)
    return found.transpose(1, 2)


def attention():
    for batch, time in SHAPES:
        fused, slope = numbers(batch, time, 3, HEADS, HEAD), numbers(batch, time, HEADS, HEAD).detach()
        one = slope.nbytes
        lengths = torch.randint(time // 2, time + 1, (batch, 1), device="cuda")
        padded = torch.arange(time, device="cuda") < lengths
        for scope, visible, causal in (("all", None, False), ("causal", None, True), ("padded", padded, False)):
            ours = functools.partial(short.short_joint_attention, scale=HEAD**-0.5, visible=visible, causal=causal)
            rivals = {name: functools.partial(sdpa, visible=visible, causal=causal, backend=backend)
                      for name, backend in BACKENDS.items()}  # fmt: skip
            moved = 4 * one, 7 * one
            compare("short attention", ours, rivals, [fused], [slope], moved, scope=scope, shape=(batch, time, HEADS, HEAD))


def eager_norm(states, residual, bias, weight, offset, kind):
    total = residual + F.dropout(states + bias.to(states.dtype), RATE)
    weight = weight.to(states.dtype)
    if kind == "layer":
        return total, F.layer_norm(total, weight.shape, weight, offset.to(states.dtype), 1e-5)
    return total, F.rms_norm(total, weight.shape, weight, 1e-5) + offset.to(states.dtype)


def norms():
    for batch, time in SHAPES:
        states, residual = numbers(batch, time, SIZE), numbers(batch, time, SIZE)
        vectors = [numbers(SIZE, kind=torch.float32) for _ in range(3)]
        slopes, one = [numbers(batch, time, SIZE).detach() for _ in range(2)], states.nbytes
        for kind in ("layer", "rms"):
            ours = functools.partial(norm.add_norm, rate=RATE, kind=kind)
            plain = lambda *parts, kind=kind: eager_norm(*parts, kind)  # noqa: E731
            rivals = {"eager": plain, "torch.compile": torch.compile(plain, dynamic=False)}
            compare("add and norm", ours, rivals, [states, residual, *vectors], slopes, (4 * one, 5 * one), kind=kind,
                    shape=(batch, time, SIZE))  # fmt: skip


def eager_activation(states, bias, kind):
    states = states + bias.to(states.dtype)
    if kind == "swiglu":
        opened, gate = states.chunk(2, dim=-1)
        return F.dropout(F.silu(opened) * gate, RATE)
    return F.dropout(F.relu(states) if kind == "relu" else F.gelu(states), RATE)


def activations():
    for batch, time in SHAPES:
        for kind in activation.KINDS:
            width = INNER * (2 if kind == "swiglu" else 1)
            states, bias = numbers(batch, time, width), numbers(width, kind=torch.float32)
            slope = numbers(batch, time, INNER).detach()
            plain = lambda *parts, kind=kind: eager_activation(*parts, kind)  # noqa: E731
            rivals = {"eager": plain, "torch.compile": torch.compile(plain, dynamic=False)}
            moved = states.nbytes + slope.nbytes, 2 * states.nbytes + slope.nbytes
            ours = functools.partial(activation.activate, kind=kind, rate=RATE)
            compare("activation", ours, rivals, [states, bias], [slope], moved, kind=kind, shape=(batch, time, width))


def eager_entry(states, places):
    return F.dropout(states * SIZE**0.5 + places, RATE)


def entries():
    """Words looked up in a table of 32,000, as often as words of text are (Zipf), and on their way into a stack."""
    for batch, time in SHAPES:
        chances = 1 / torch.arange(1, 32_001, device="cuda", dtype=torch.float32)
        tokens = torch.multinomial(chances, batch * time, replacement=True).view(batch, time)
        table, slope = numbers(32_000, SIZE), numbers(batch, time, SIZE).detach()
        rivals = {"F.embedding": lambda table, tokens=tokens: F.embedding(tokens, table)}
        ours = lambda table, tokens=tokens: words.lookup(table, tokens)  # noqa: E731
        moved = 2 * slope.nbytes, slope.nbytes + table.nbytes
        compare("lookup", ours, rivals, [table], [slope], moved, shape=(batch, time, SIZE))
        states, places = numbers(batch, time, SIZE), torch.randn(1, time, SIZE, device="cuda")
        low = places.to(states.dtype)
        plain = lambda states, places=low: eager_entry(states, places)  # noqa: E731
        ours = lambda states, places=places: words.entered(states, places, scale=SIZE**0.5, rate=RATE)  # noqa: E731
        rivals = {"eager": plain, "torch.compile": torch.compile(plain, dynamic=False)}
        compare("entry", ours, rivals, [states], [slope], (2 * slope.nbytes,) * 2, shape=(batch, time, SIZE))


PARTS = {"attention": attention, "norm": norms, "activation": activations, "words": entries}

if __name__ == "__main__":
    torch.manual_seed(1)
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
