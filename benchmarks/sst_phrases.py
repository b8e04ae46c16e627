"""Phrases of the Stanford Sentiment Treebank as rows `label<TAB>text`, to train a classifier on more than whole sentences.

    python benchmarks/sst_phrases.py sst_trees.train.txt.gz phrases.tsv [--plus sst2.train.tsv.gz]

Every constituent with a sentiment (0 and 1 are negative, 3 and 4 positive; neutral ones are left out) becomes a row, once;
letters are small, as in the sentences of SST-2. Rows of `--plus` follow as they are.
"""

import argparse
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

ESCAPED = {"\\/": "/", "\\*": "*"}
TOKEN = re.compile(r"[()]|[^\s()]+")


def opened(path: Path) -> str:
    return (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()


def word(token: str) -> str:
    token = token.lower()
    for escaped, plain in ESCAPED.items():
        token = token.replace(escaped, plain)
    return token


def phrases(tree: str) -> Iterator[tuple[int, str]]:
    """The label and the words of every constituent of `(label child child)` or `(label word)`."""
    open_ones: list[tuple[int, list[str]]] = []
    tokens = TOKEN.findall(tree)
    at = 0
    while at < len(tokens):
        if tokens[at] == "(":
            open_ones.append((int(tokens[at + 1]), []))
            at += 2
        elif tokens[at] == ")":
            label, words = open_ones.pop()
            yield label, " ".join(words)
            if open_ones:
                open_ones[-1][1].extend(words)
            at += 1
        else:
            open_ones[-1][1].append(word(tokens[at]))
            at += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--plus", type=Path, help="rows to add as they are")
    asked = parser.parse_args()
    every = (phrase for line in opened(asked.trees).splitlines() for phrase in phrases(line))
    rows = dict.fromkeys((int(label > 2), text) for label, text in every if label != 2)
    plus = [line.split("\t", 1) for line in opened(asked.plus).splitlines()] if asked.plus else []
    known = {text for _, text in rows}
    print(f"{len(rows):,} phrases; {sum(text in known for _, text in plus):,} of {len(plus):,} rows of --plus are among them")
    lines = [*(f"{label}\t{text}\n" for label, text in rows), *(f"{label}\t{text}\n" for label, text in plus)]
    asked.out.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
