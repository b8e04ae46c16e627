"""Seconds, peak memory and size of a 500 x 500 alignment in each format, each in a process of its own; the rival is a bare
imshow of matplotlib."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SIZE = 500


def imshow(weights, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(30, 30))
    figure.add_axes((0, 0, 1, 1)).imshow(weights, cmap="Blues", vmin=0, vmax=1)
    figure.savefig(path, format="png", dpi=150)


def draw(kind, path):
    from regard.insight.figure import FORMATS
    from regard.insight.heatmap import Heatmap

    weights = np.random.default_rng(1).dirichlet(np.full(SIZE, 0.05), size=SIZE)
    names = [f"word{number}" for number in range(SIZE)]
    began = time.process_time()
    if kind == "imshow":
        imshow(weights, path)
    else:
        FORMATS[kind](Heatmap(names, names, weights), path)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"format": kind, "cpu_s": time.process_time() - began, "peak_MB": megabytes, "file_kB": path.stat().st_size / 1e3}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(draw(sys.argv[1], Path(folder) / "picture")))
    else:
        rows = [
            json.loads(subprocess.check_output([sys.executable, __file__, kind])) for kind in ("imshow", "png", "svg", "html")
        ]
        for row in rows:
            print(json.dumps({key: value if key == "format" else round(value, 2) for key, value in row.items()}
                             | {"seconds_to_imshow": round(row["cpu_s"] / rows[0]["cpu_s"], 2)}))  # fmt: skip
