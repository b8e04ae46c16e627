"""How a CPU's memory is handed out."""

import ctypes

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # as malloc.h numbers them
NEVER = -1


def keep_freed_memory() -> bool:
    """Let the C library keep what is freed for the next step, which wants blocks of the same sizes. It would give large ones
    back to the system, which clears and maps every page of them again. Whether it could be told so: glibc alone can."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(MMAP_MAX, 0)) and bool(mallopt(TRIM_THRESHOLD, NEVER))
