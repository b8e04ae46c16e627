"""The formulas of im2latex_small as files that `regard train` reads: an array of bytes and a line for each image.

python benchmarks/im2latex.py ../shared/data/im2latex_small OUT
"""

import gzip
import sys
from pathlib import Path

import numpy as np

LEVELS = 7  # of ink in the files


def text_of(folder: Path, name: str) -> str:
    packed = folder / f"{name}.gz"
    return gzip.open(packed, "rt", encoding="utf-8").read() if packed.exists() else (folder / name).read_text(encoding="utf-8")


def main(folder: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev", "test"):
        with gzip.open(folder / f"{split}.images.npy.gz") as file:
            np.save(out / f"{split}.npy", np.load(file) * np.uint8(255 // LEVELS))
        (out / f"{split}.txt").write_text(text_of(folder, f"{split}.formulas.txt"), encoding="utf-8")
        print(f"{out / split}.npy and .txt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
