"""Alignment by a model and one trained the other way round."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from regard.data.links import Link, flip
from regard.data.symmetrise import SYMMETRISATIONS, agree
from regard.decoding.forcing import TeacherForced
from regard.decoding.reading import WORDS, Alignment, Pair, Sides
from regard.recipe import choose

Join = Callable[[Alignment, Alignment], frozenset[Link]]  # of both directions -> the links of the first


def symmetrised(name: str) -> Join:
    """Links of each direction, made one set by an entry of SYMMETRISATIONS."""
    both = choose(SYMMETRISATIONS, name, "symmetrisation")
    return lambda there, back: both(there.links, flip(back.links))


def agreed(threshold: float) -> Join:
    """Links by the weights of both directions. Tokenizers that disagree on the number of words agree on the first ones."""

    def join(there: Alignment, back: Alignment) -> frozenset[Link]:
        targets, sources = map(min, there.weights.shape, back.weights.T.shape)
        return agree(there.weights[:targets, :sources], back.weights[:sources, :targets], threshold)

    return join


class Directions(NamedTuple):
    """One model, or two and how their links are joined."""

    forward: TeacherForced
    backward: TeacherForced | None = None
    join: Join = symmetrised("grow_diag")
    words: bool = False  # whatever the text is: gold links count words

    @property
    def tokens(self) -> Sides:
        """The sides whose tokens are linked: those without spaces, if both models cut them alike."""
        sides, other = self.forward.spaceless, self.backward
        if self.words or other is None or not any(sides):
            return WORDS if self.words else sides
        cut = zip((self.forward.source, self.forward.target), (other.target, other.source), strict=True)
        source, target = (apart and one.spellings == two.spellings for apart, (one, two) in zip(sides, cut, strict=True))
        return source, target

    def align(self, pairs: Sequence[Pair]) -> dict[str, list[frozenset[Link]]]:
        """The links of each pair by each direction and, last, by both."""
        there = self.forward.align(pairs, tokens=self.tokens)
        links = {"forward": [one.links for one in there]}
        if self.backward is not None:
            back = self.backward.align([(target, source) for source, target in pairs], tokens=self.tokens[::-1])
            links["backward"] = [flip(one.links) for one in back]
            links["both"] = [self.join(*each) for each in zip(there, back, strict=True)]
        return links
