"""`regard` in documents, without the seconds that importing torch takes: one process imports it, and forks for every command.

python tests/warm_regard.py serve SOCKET      the process that has imported everything
python tests/warm_regard.py call SOCKET ...   `regard ...` by a fork of it: same words, folder, environment, streams, exit code
python tests/warm_regard.py call SOCKET -c CODE   `python -c CODE` by a fork of it
"""

import fcntl
import json
import os
import re
import socket
import sys
import traceback
from dataclasses import replace

STREAMS = [0, 1, 2]
MOST = 16  # streams of a command, with those that bash makes of <(...)


def call(path: str, words: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        numbers = STREAMS + [int(number) for number in re.findall(r"/dev/fd/(\d+)", " ".join(words))]
        whole = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ), "numbers": numbers}
        asked = json.dumps(whole).encode()
        socket.send_fds(link, [len(asked).to_bytes(8, "big")], numbers)
        link.sendall(asked)
        return int.from_bytes(link.recv(1), "big")


def serve(path: str) -> None:
    import torch._dynamo  # noqa: F401 - which the first optimizer imports
    from torch.utils import tensorboard  # noqa: F401 - as the first display does

    import regard.run  # noqa: F401
    from regard.cli import main
    from regard.corpora import CORPORA

    for name, corpus in CORPORA.items():  # documents are read for what they do, not for how well a model of two updates does it
        CORPORA[name] = replace(corpus, sizes={split: rows if split == "train" else 40 for split, rows in corpus.sizes.items()})
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        while True:
            link, _ = door.accept()
            answer(link, main)


def answer(link: socket.socket, main: object) -> None:
    """A child for the call, and a child of it for the command, so that nobody waits for it but the call."""
    if os.fork():
        link.close()
        return
    size, streams, *_ = socket.recv_fds(link, 8, MOST)
    asked = b""
    while len(asked) < int.from_bytes(size, "big"):
        asked += link.recv(1 << 16)
    command = os.fork()
    if command == 0:
        run(main, streams, **json.loads(asked))
    _, status = os.waitpid(command, 0)
    link.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))
    os._exit(0)


def run(main, streams: list[int], numbers: list[int], words: list[str], folder: str, environment: dict[str, str]) -> None:
    aside = [fcntl.fcntl(stream, fcntl.F_DUPFD, 100) for stream in streams]  # where no number of theirs lies
    os.closerange(3, 100)
    for number, stream in zip(numbers, aside, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 - for good
    sys.argv = ["regard", *words]
    code = 1
    try:
        python(words[1]) if words[:1] == ["-c"] else main()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def python(text: str) -> None:
    sys.argv, sys.path[0] = ["-c"], ""
    exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(call(sys.argv[2], sys.argv[3:]))
