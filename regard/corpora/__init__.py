"""Generated data sets whose truth is known: where words correspond, a pair comes with the word alignment it was built from."""

from regard.corpora.arithmetic import ARITHMETIC
from regard.corpora.corpus import Corpus, Pair, generate, write
from regard.corpora.latin import LATIN
from regard.corpora.scenes import SCENES
from regard.tables import TABLES

__all__ = ["CORPORA", "Corpus", "Pair", "generate", "write"]

CORPORA: dict[str, Corpus] = {"latin": LATIN, "arithmetic": ARITHMETIC, "scenes": SCENES}
TABLES["corpus"] = lambda: CORPORA
