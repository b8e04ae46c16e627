"""Flash attention where libraries have no path, on a GPU: local-p, hard and wide heads, forward and forward with backward.

python benchmarks/attention_flash.py [long] [wide]
"""

import functools
import json
import sys

import torch
import torch.nn.functional as F
from timing import race, report
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from regard.nn.kernels.attention.flash import flash_attention, hard_attention

LONG, WIDE = (32, 8, 4096, 64), (64, 1, 512, 512)  # batch, heads, length, size
WINDOW = 128
BACKENDS = {"sdpa cudnn": SDPBackend.CUDNN_ATTENTION, "sdpa flash": SDPBackend.FLASH_ATTENTION,
            "sdpa efficient": SDPBackend.EFFICIENT_ATTENTION}  # fmt: skip


def numbers(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def eager(query, keys, values, scale):
    return (scale * query @ keys.mT).softmax(-1) @ values


def sdpa(backend, query, keys, values, scale):
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(query, keys, values, scale=scale)


def local(window, centre, query, keys, values, scale):
    bounds = {"first": (centre.detach() - window).int(), "last": (centre.detach() + window).int()} if window else {}
    return flash_attention(query, keys, values, scale=scale, centre=centre, deviation=WINDOW / 2, **bounds).context


def hard(query, keys, values, scale):
    return hard_attention(query, keys, values, scale=scale).context


def both(function, inputs, outer):
    """Forward and backward."""
    found = function(*inputs, inputs[0].shape[-1] ** -0.5)
    outputs = [part for part in (found if isinstance(found, tuple) else (found,)) if part.requires_grad]
    slopes = [outer if part.dim() == 4 else outer[..., 0].float() for part in outputs]
    torch.autograd.grad(outputs, [*inputs, *(extra for extra in EXTRA if extra.requires_grad)], slopes, allow_unused=True)


def forward(function, inputs):
    with torch.no_grad():
        function(*inputs, inputs[0].shape[-1] ** -0.5)


def several(action, times):
    """So often that the clock's own cost is small; launches may run ahead of the GPU, as they do in training."""
    for _ in range(times):
        action()
    torch.cuda.synchronize()


def captured(action):
    """The same as one CUDA graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        action()
        action()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        action()
    return graph.replay


def works(name, action):
    try:
        action()
    except Exception as error:
        print(json.dumps({"rival": name, "refused": str(error).strip().splitlines()[-1][:120]}), flush=True)
        return False
    return True


def compare(benchmark, ours, rivals, actions, times, **facts):
    usable = {name: functools.partial(several, action, times) for name, action in actions.items() if works(name, action)}
    medians = {name: seconds / times for name, seconds in race(usable, rounds=7).items()}
    for mine in ours:
        for rival in rivals:
            if rival in medians and mine in medians:
                report(benchmark, mine, rival, medians, variant=mine, **facts)


def measure(benchmark, shape, functions, ours, times, graphs):
    inputs, outer = [numbers(*shape) for _ in range(3)], numbers(*shape).detach()
    rivals = [name for name in functions if name not in ours]
    ways = {"forward": forward, "forward and backward": lambda function, inputs: both(function, inputs, outer)}
    for way, run in ways.items():
        actions = {name: functools.partial(run, function, inputs) for name, function in functions.items()}
        compare(benchmark, ours, rivals, actions, times, way=way, shape=shape)
        if graphs:
            recorded = {name: captured(action) for name, action in actions.items() if works(name, action)}
            compare(benchmark, ours, rivals, recorded, times, way=way + ", in a CUDA graph", shape=shape)


def plain(query, keys, values, scale):
    return flash_attention(query, keys, values, scale=scale).context


def long_sequences():
    compiled = torch.compile(flex_attention)
    rivals = {
        "flex": lambda query, keys, values, scale: compiled(query, keys, values, scale=scale),
        "sdpa cudnn": functools.partial(sdpa, BACKENDS["sdpa cudnn"]),
    }
    ours = {
        "plain": plain,
        "local-p": functools.partial(local, 0, EXTRA[0]),
        "local-p, window": functools.partial(local, WINDOW, EXTRA[0]),
        "hard": hard,
    }
    measure("attention", LONG, rivals | ours, list(ours), 1, False)


def wide_heads():
    rivals = {"eager": eager} | {name: functools.partial(sdpa, backend) for name, backend in BACKENDS.items()}
    measure("attention", WIDE, rivals | {"wide": plain}, ["wide"], 10, True)


PARTS = {"long": long_sequences, "wide": wide_heads}

torch.manual_seed(1)
EXTRA = [(torch.rand(*LONG[:3], device="cuda") * LONG[2]).requires_grad_()]  # centres
for part in sys.argv[1:] or PARTS:
    PARTS[part]()
