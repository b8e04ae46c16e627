"""Our recurrent model in int8 beside OpenNMT-py and PyTorch's own quantised layers, by the peers' own worker: CPU time of one
thread, in turns, medians.

python benchmarks/recurrent_peers.py PEERS PACKAGES       the folder of the peers' driver; one where OpenNMT-py is installed
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LENGTH = 25  # words of each output


class Worker:
    def __init__(self, name: str, adapter: Path, precision: str, peers: Path, packages: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": packages}
        self.name, command = name, [sys.executable, str(peers / "worker.py")]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        from common import config  # type: ignore[import-not-found]  # of the peers

        self.ask(op="build", adapter=str(adapter), config=config("rnn", precision=precision, threads=1))

    def ask(self, **question: object) -> dict:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer: dict = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer


def main(peers: Path, packages: str, rounds: int = 6) -> None:
    sys.path.insert(0, str(peers))
    workers = [
        Worker("OpenNMT-py", peers / "adapters" / "onmt_py.py", "fp32", peers, packages),
        Worker("plain loop, int8", peers / "adapters" / "plain_rnn.py", "int8", peers, ""),
        Worker("ours, int8", HERE / "peers_adapter.py", "int8", peers, str(HERE.parent)),
    ]
    for sentences in (1, 16, 64):
        taken: dict[str, list[float]] = {worker.name: [] for worker in workers}
        for number in range(rounds + 1):
            for worker in workers:
                found = worker.ask(op="time", kind="translate", beam=1, batch=sentences, reps=4 if sentences < 64 else 1)
                assert found["lens"] == [LENGTH]
                if number:
                    taken[worker.name].append(found["cpu"])
        rates = {name: sentences * LENGTH / statistics.median(each) for name, each in taken.items()}
        for name, rate in rates.items():
            row = {"benchmark": "recurrent_peers", "sentences": sentences, "who": name, "tokens_per_s": round(rate)}
            print(json.dumps(row | {"ratio": round(rate / rates["OpenNMT-py"], 2)}), flush=True)
    for worker in workers:
        worker.process.communicate()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
