"""How much memory is free, and what to say when there was too little. Needs no torch."""

import os
import re
from pathlib import Path

MEMINFO, GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
# What PyTorch, numpy, C++ and CUDA's libraries say
SIGNS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
    "unable to allocate",
    "STATUS_ALLOC_FAILED",
)
ASKED = re.compile(
    r"(?:tried to|unable to|can't) allocate (?:memory: you tried to allocate )?([\d.]+ ?[kKMGTPE]?i?[bB]\w*)", re.I
)
ADVICE = {
    "train": "lower data.batch_tokens, data.max_length or the sizes in the recipe's model section; a run that has saved a "
    "checkpoint goes on with --resume training.accumulate=2 (or more), which computes the same in smaller pieces",
    "generate": "lower --beam or --n-best, or answer line by line with --unbuffered",
    "evaluate": "lower --beam",
    "plan": "lower data.batch_tokens or the sizes in the recipe's model section, or plan without --device",
}


def spoken(number: float) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e8 else f"{number / 1e6:,.1f} MB"


def free_memory() -> int:
    """Bytes that programs can still have: of the machine, and of the control group that a container puts us in."""
    try:
        rows = dict(line.split(":") for line in MEMINFO.read_text(encoding="ascii").splitlines())
        free = sum(int(rows[name].split()[0]) * 1024 for name in ("MemAvailable", "SwapFree"))
    except (OSError, ValueError, KeyError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        most, now = (int((GROUP / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
        return min(free, most - now)
    except (OSError, ValueError):  # no control group, or one without a limit ("max")
        return free


def is_shortage(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    text = str(error).lower()
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and any(sign.lower() in text for sign in SIGNS))


def tell_shortage(error: BaseException, verb: str) -> str:
    """What was asked for, what there is, what to lower."""
    found = ASKED.search(str(error))
    asked = f"{figure(found[1])} more were asked for" if found else "more was asked for than there is"
    on_gpu = "cuda" in str(error).lower()
    there = re.search(r"of which ([\d.]+ \w+) is free", str(error)) if on_gpu else None
    free = (
        f"{there[1]} of the GPU's are free" if there else "the GPU is full" if on_gpu else f"{spoken(free_memory())} are free"
    )
    return f"out of memory: {asked}, and {free}; {ADVICE.get(verb, 'take less text at a time, or a smaller model')}"


def figure(text: str) -> str:
    """`40000000000 bytes` as people read it; other units stay."""
    number, _, unit = text.partition(" ")
    return spoken(float(number)) if unit.lower() == "bytes" else text
