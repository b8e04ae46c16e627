"""Files that may be anybody's, read with care: plain ones only, up to a size, and JSON that means one thing."""

import json
import math
import os
import stat
from io import FileIO
from pathlib import Path
from typing import Any

from regard.errors import DamagedError
from regard.plain import unique

DEEPEST = 40  # brackets within brackets; our own files have eight


def open_plain(path: Path) -> FileIO:
    """DamagedError for a link, a pipe, a device or a folder, none of which is waited for, and for what cannot be read."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise DamagedError(f"{path}: not a plain file")
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read: {os.strerror(error.errno or 0)}") from None
    return FileIO(handle)


def read_plain(path: Path, limit: int) -> bytes:
    """The whole file; DamagedError if it has more than `limit` bytes."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise DamagedError(f"{path}: {size:,} bytes are too many: such a file has at most {limit:,}")
        return file.read(limit)


def read_json(path: Path, limit: int) -> dict[str, Any]:
    """An object; DamagedError for anything else, for keys given twice, and for numbers that are not finite."""
    try:
        content = json.loads(
            read_plain(path, limit).decode(), object_pairs_hook=unique, parse_float=finite, parse_constant=finite
        )
        if not isinstance(content, dict) or is_deeper(content, DEEPEST):
            raise ValueError(f"not an object of at most {DEEPEST} levels")
    except (ValueError, RecursionError) as error:
        if isinstance(error, DamagedError):
            raise
        raise DamagedError(f"{path}: not readable JSON: {error}") from None
    return content


def finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text:.80} is no finite number")
    return value


def is_deeper(content: Any, levels: int) -> bool:
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return levels == 0 or any(is_deeper(one, levels - 1) for one in inner if isinstance(one, dict | list))
