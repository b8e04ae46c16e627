"""Generated data sets whose truth is known: every pair comes with the word alignment it was built from."""

from regard.corpora.corpus import Corpus, Pair, generate, write
from regard.corpora.latin import LATIN

__all__ = ["CORPORA", "Corpus", "Pair", "generate", "write"]

CORPORA: dict[str, Corpus] = {"latin": LATIN}
