"""Cut a long text for a language model: `python benchmarks/last_tenth.py FILE FOLDER` writes train.txt, valid.txt and test.txt.

The last tenth of its characters, from a line's beginning on, is the test; the twentieth before it is for validation.
"""

import gzip
import sys
from itertools import accumulate
from pathlib import Path

SHARES = {"train": 0.85, "valid": 0.9, "test": 1.0}  # of the characters, up to the end of each part


def main(file: Path, folder: Path) -> None:
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as text:
        lines = text.readlines()
    ends = list(accumulate(map(len, lines)))
    folder.mkdir(parents=True, exist_ok=True)
    begin = 0
    for name, share in SHARES.items():
        end = sum(one <= share * ends[-1] for one in ends)
        part = "".join(lines[begin:end])
        (folder / f"{name}.txt").write_text(part, encoding="utf-8")
        print(f"{folder / name}.txt: {len(part):,} of {ends[-1]:,} characters")
        begin = end


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
