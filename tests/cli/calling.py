"""`regard` as it is called: in this process, or in one of its own where signals, pipes and imports matter."""

import io
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


def start(*words, **options):
    """A process of its own, which hears Ctrl-C even where the tests run in the background of a shell that ignores it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    hear = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    return subprocess.Popen([sys.executable, "-m", "regard", *map(str, words)], **(pipes | hear | options))
