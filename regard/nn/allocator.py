"""How a CPU's memory is handed out."""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
LARGE = 1 << 25  # bytes of a block that still comes from the heap: the most that glibc allows
SPARE = 1 << 29  # bytes that may lie free at its end


def keep_freed_memory() -> bool:
    """Let the C library keep what is freed for the next step, which wants blocks of the same sizes. It would give large ones
    back to the system, which clears and maps every page of them again. Whether it could be told so: glibc alone can."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGE)) and bool(mallopt(TRIM_THRESHOLD, SPARE))
