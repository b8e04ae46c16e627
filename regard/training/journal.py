"""What happened, one JSON object a line. It has no times in it: a resumed run writes the same bytes. Only what a run with
`training.minutes` has decided by the clock stands in it too."""

import json
import os
from pathlib import Path
from typing import Any

from regard.errors import naming


class Journal:
    def __init__(self, path: Path, keep: int = 0) -> None:
        """Go on after the first `keep` bytes: what a killed run wrote past its last checkpoint is written again."""
        self.path = path
        self.file = path.open("ab")
        self.lost = max(keep - self.size, 0)  # bytes that were written and are no longer there
        self.file.truncate(min(keep, self.size))  # a journal that was lost starts anew: it is a record, not a state
        self.file.seek(0, os.SEEK_END)

    @property
    def size(self) -> int:
        return self.file.tell()

    def write(self, **row: Any) -> None:
        with naming(self.path):
            self.file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
            self.file.flush()

    def settle(self) -> int:
        """Bring all rows to the disk; a checkpoint that counts them may follow."""
        with naming(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())
        return self.size

    def close(self) -> None:
        self.file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
