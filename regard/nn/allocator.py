"""How a CPU's memory is handed out."""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
LARGE = 1 << 25  # bytes of a block that still comes from the heap: the most that glibc allows
SPARE = 1 << 29  # bytes that may lie free at its end
GIVEN_BACK = 1 << 18


def give_back_large() -> bool:
    """What is above this size goes back to the system when it is freed: weights as they were read, once they are laid out."""
    return told((MMAP_THRESHOLD, GIVEN_BACK))


def keep_freed_memory() -> bool:
    """Let the C library keep what is freed for the next step, which wants blocks of the same sizes. It would give large ones
    back to the system, which clears and maps every page of them again. Whether it could be told so: glibc alone can."""
    return told((MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, SPARE))


def give_back_freed() -> bool:
    """Pages that lie between others in use too."""
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):
        return False


def told(*settings: tuple[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(bool(mallopt(*setting)) for setting in settings)
