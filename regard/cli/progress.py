"""How far a file is, on a terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[int, int], None]  # so many lines more, so many bytes more


@contextmanager
def progress(size: int | None, told: str, seen: bool) -> Iterator[Tell]:
    """A bar, if it is to be `seen` and standard error is a terminal; `size` is that of the file in bytes, where known. It has
    no thread of its own, for processes are forked while it is shown."""
    if not seen or sys.stderr is None or not sys.stderr.isatty():
        yield lambda lines, read: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [BarColumn(), TextColumn("{task.fields[facts]}"), TimeElapsedColumn()]
    columns += [TextColumn("to go:"), TimeRemainingColumn()] if size is not None else []
    with Progress(*columns, console=Console(file=sys.stderr), transient=True, auto_refresh=False) as bar:
        task, began, done = bar.add_task("", total=size, facts=told), time.monotonic(), 0

        def tell(lines: int, read: int) -> None:
            nonlocal done
            done += lines
            speed = done / max(time.monotonic() - began, 1e-9)
            bar.update(task, advance=read, facts=f"{done:,} lines  {speed:,.0f} lines/s  {told}", refresh=True)

        yield tell
