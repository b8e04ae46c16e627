"""The formulas of im2latex_small as files that `regard train` reads: an array of bytes and a line for each image.

python benchmarks/im2latex.py ../shared/data/im2latex_small OUT [--short 35]

`--short`: formulas of at most so many tokens whose ink fits 48 x 224 pixels, at half their size, for a CPU. `dev_other.npy` has
the images of `dev.npy` beside the formulas of others: a model that looks at images finds these formulas less probable.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

LEVELS = 7  # of ink in the files
ROWS, COLUMNS = slice(8, 56), slice(0, 224)  # where the ink of short ones is

Images = npt.NDArray[np.uint8]


def text_of(folder: Path, name: str) -> str:
    packed = folder / f"{name}.gz"
    return gzip.open(packed, "rt", encoding="utf-8").read() if packed.exists() else (folder / name).read_text(encoding="utf-8")


def short(images: Images, formulas: list[str], tokens: int) -> tuple[Images, list[str]]:
    """Four pixels become their mean."""
    outside = images.any(axis=(1, 2), where=np.pad(np.zeros((48, 224), bool), ((8, 8), (0, 96)), constant_values=True))
    kept = np.flatnonzero(~outside & (np.array([len(one.split()) for one in formulas]) <= tokens))
    cut = images[kept][:, ROWS, COLUMNS].reshape(len(kept), 24, 2, 112, 2).mean(axis=(2, 4))
    return cut.round().astype(np.uint8), [formulas[row] for row in kept]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--short", type=int, metavar="TOKENS")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev", "test"):
        with gzip.open(given.folder / f"{split}.images.npy.gz") as file:
            images = np.load(file) * np.uint8(255 // LEVELS)
        formulas = text_of(given.folder, f"{split}.formulas.txt").splitlines()
        if given.short is not None:
            images, formulas = short(images, formulas, given.short)
            np.save(given.out / f"{split}_other.npy", np.roll(images, 1, axis=0))
        np.save(given.out / f"{split}.npy", images)
        (given.out / f"{split}.txt").write_text("".join(f"{one}\n" for one in formulas), encoding="utf-8")
        print(f"{given.out / split}.npy and .txt: {len(formulas):,} formulas")


if __name__ == "__main__":
    main()
