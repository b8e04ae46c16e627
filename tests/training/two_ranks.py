"""`torchrun two_ranks.py RUN [RANK STEP]`: train the recipe at RUN.yaml; that rank alone is asked to stop after that step."""

import os
import signal
import sys
from pathlib import Path

from regard import run
from regard.recipe import read
from regard.training import loop

directory, *alone = sys.argv[1:]
original = loop.Trainer.update


def update(self, progress):
    original(self, progress)
    if alone and (self.group.rank, progress.step) == (int(alone[0]), int(alone[1])):
        os.kill(os.getpid(), signal.SIGTERM)


loop.Trainer.update = update
stopped = run.train(read(f"{directory}.yaml"), Path(directory), resume=True, talk=False)
Path(f"{directory}.{os.environ['RANK']}").write_text(str(stopped))
