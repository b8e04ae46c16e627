"""`regard` as it is called: in this process, or in one of its own where signals, pipes and imports matter."""

import io
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest

from regard.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self):
        """Cut at line feeds only, as `wc -l` counts."""
        assert self.out.endswith("\n") or not self.out
        return self.out.split("\n")[:-1]


def regard(*words, stdin=b""):
    out, err = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True) for stream in (out, err)]
    code = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        patch.setattr(sys, "argv", ["regard", *map(str, words)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            main()
        except SystemExit as ending:
            code = ending.code or 0
    return Result(code, out.getvalue().decode(), err.getvalue().decode())


def refused(*words):
    """The one message of an error of the user."""
    code, out, err = regard(*words)
    assert (code, out) == (2, "")
    assert err.count("error:") == 1
    assert "Traceback" not in err
    return err[err.index("error: ") :].removeprefix("error: ").rstrip("\n")


def forked(*words, **options):
    """As `start`, by a fork that has imported torch already: for pipes and signals, not for what happens at an import."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(["regard"], preexec_fn=lambda: become(words), **(pipes | options))


def become(words):
    """What a process that has just been forked does instead of executing another program."""
    os.closerange(3, 1 << 12)  # among them the one that tells its parent, who waits for it, that the program has begun
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as an interpreter does at its start
    sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115 - for good
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
    sys.argv, code = ["regard", *map(str, words)], 1
    try:
        main()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    finally:
        os._exit(code if flushed(sys.stdout) and flushed(sys.stderr) else 120)  # as an interpreter that cannot flush at its end


def flushed(stream):
    try:
        return stream is None or stream.closed or stream.flush() is None
    except OSError:
        return False


def start(*words, **options):
    """A process of its own, which hears Ctrl-C even where the tests run in the background of a shell that ignores it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    hear = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    return subprocess.Popen([sys.executable, "-m", "regard", *map(str, words)], **(pipes | hear | options))
