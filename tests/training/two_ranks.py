"""One of two processes that train the recipe at RUN.yaml together; one of them may be asked to stop."""

import os
import signal
from pathlib import Path

from regard import run
from regard.recipe import read
from regard.training import loop


def train(directory, rank, alone=None):
    """`alone`: (rank, step), a signal after that step to that rank only."""
    original = loop.Trainer.update

    def update(self, progress):
        original(self, progress)
        if (self.group.rank, progress.step) == alone:
            os.kill(os.getpid(), signal.SIGTERM)

    loop.Trainer.update = update
    stopped = run.train(read(f"{directory}.yaml"), Path(directory), resume=True, talk=False)
    Path(f"{directory}.{rank}").write_text(str(stopped))
