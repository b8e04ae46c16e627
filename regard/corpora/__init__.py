"""Generated data sets whose truth is known: where words correspond, a pair comes with the word alignment it was built from."""

from regard.corpora.arithmetic import ARITHMETIC
from regard.corpora.corpus import Corpus, Pair, generate, rows
from regard.corpora.dates import DATES
from regard.corpora.equations import EQUATIONS
from regard.corpora.files import write
from regard.corpora.latin import LATIN
from regard.corpora.letters import COPY, REVERSE, SORT
from regard.corpora.markov import MARKOV
from regard.corpora.nested import CODE, QUOTES, XML
from regard.corpora.programs import PROGRAMS
from regard.corpora.scenes import SCENES
from regard.tables import TABLES

__all__ = ["CORPORA", "Corpus", "Pair", "generate", "rows", "write"]

CORPORA: dict[str, Corpus] = {
    "latin": LATIN,
    "arithmetic": ARITHMETIC,
    "equations": EQUATIONS,
    "copy": COPY,
    "reverse": REVERSE,
    "sort": SORT,
    "dates": DATES,
    "programs": PROGRAMS,
    "markov": MARKOV,
    "scenes": SCENES,
    "xml": XML,
    "quotes": QUOTES,
    "code": CODE,
}
TABLES["corpus"] = lambda: CORPORA
