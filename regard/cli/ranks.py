"""What one of the processes that torchrun started may say."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def die_of_ctrl_c() -> None:
    """torchrun tells people about Ctrl-C and its processes go quietly; the training loop sets handlers of its own."""
    if under_torchrun():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def first_to_tell(message: str) -> bool:
    """Whether to print this error. Processes fail together: each hands the message to torchrun's summary, one prints it.

    The first to fail in each attempt on each machine leaves its mark beside the error files that torchrun has made for them.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return True
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others when one has failed; the message comes first
    reason = {"message": message, "extraInfo": {"timestamp": str(int(time.time()))}}
    try:
        Path(path).write_text(json.dumps({"message": reason}), encoding="utf-8")
        (Path(path).parents[1] / "told").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # better twice than never
        return True
    return True


def leave(code: str | int | None) -> NoReturn:
    """End this process without Python's teardown, in which about one torchrun of thirty died of SIGABRT on a busy machine.

    Gloo's threads outlive `destroy_process_group`, since DistributedDataParallel leaves references to the group behind. One
    that drops its last tensor during the teardown asks for the GIL, and Python ends it with `pthread_exit` amid C++.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
