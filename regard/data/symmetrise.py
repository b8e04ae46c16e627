"""Two directions, one alignment: what a model and one trained the other way round agree on.

Both directions' links are written as (source, target) words of the first one; `flip` turns those of the second.
"""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush

import numpy as np
from jaxtyping import Float

from regard.data.links import Link

Symmetrisation = Callable[[AbstractSet[Link], AbstractSet[Link]], frozenset[Link]]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


class Growing:
    """An alignment that links are added to, and the words it links already."""

    def __init__(self, links: AbstractSet[Link]) -> None:
        self.links = set(links)
        self.sources, self.targets = {source for source, _ in links}, {target for _, target in links}

    def add(self, link: Link) -> None:
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])

    def linked(self, link: Link) -> tuple[bool, bool]:
        """Whether the source word has a link, and whether the target word has one."""
        return link[0] in self.sources, link[1] in self.targets


def intersection(forward: AbstractSet[Link], backward: AbstractSet[Link]) -> frozenset[Link]:
    return frozenset(forward & backward)


def union(forward: AbstractSet[Link], backward: AbstractSet[Link]) -> frozenset[Link]:
    return frozenset(forward | backward)


def grow_diag(forward: AbstractSet[Link], backward: AbstractSet[Link]) -> frozenset[Link]:
    """The intersection, and links of the union beside it that link a word without any (Koehn et al. 2003)."""
    return frozenset(grown(forward, backward).links)


def grow_diag_final(forward: AbstractSet[Link], backward: AbstractSet[Link]) -> frozenset[Link]:
    """And, wherever they lie, those of either direction that link a word without any."""
    return finished(forward, backward, all)


def grow_diag_final_and(forward: AbstractSet[Link], backward: AbstractSet[Link]) -> frozenset[Link]:
    """And, wherever they lie, those of either direction that link two words without any."""
    return finished(forward, backward, any)


def grown(forward: AbstractSet[Link], backward: AbstractSet[Link]) -> Growing:
    """Sweeps over the links by source and target, those just added among them, until a sweep adds none."""
    growing, candidates = Growing(forward & backward), forward | backward
    before = -1
    while before < len(growing.links):
        before, sweep = len(growing.links), sorted(growing.links)
        while sweep:
            link = heappop(sweep)
            for new in neighbours(link):
                if new in candidates and new not in growing.links and not all(growing.linked(new)):
                    growing.add(new)
                    if new > link:  # the sweep has not come there yet
                        heappush(sweep, new)
    return growing


def neighbours(link: Link) -> Iterator[Link]:
    return ((link[0] + source, link[1] + target) for source, target in NEIGHBOURS)


def finished(
    forward: AbstractSet[Link], backward: AbstractSet[Link], settled: Callable[[tuple[bool, bool]], bool]
) -> frozenset[Link]:
    """What has grown, and each direction's links whose words are not settled yet."""
    growing = grown(forward, backward)
    for link in [*sorted(forward), *sorted(backward)]:
        if not settled(growing.linked(link)):
            growing.add(link)
    return frozenset(growing.links)


def agreement(
    forward: Float[np.ndarray, "target source"], backward: Float[np.ndarray, "source target"]
) -> Float[np.ndarray, "target source"]:
    """√(p(source | target) p(target | source)): high where both directions look (Liang et al. 2006, section 3)."""
    both: Float[np.ndarray, "target source"] = np.sqrt(forward * backward.T)
    return both


def agree(
    forward: Float[np.ndarray, "target source"], backward: Float[np.ndarray, "source target"], threshold: float = 0.3
) -> frozenset[Link]:
    """Links whose agreement reaches the threshold and is the highest of its source word or of its target word."""
    both = agreement(forward, backward)
    if not both.size:
        return frozenset()
    best = (both == both.max(axis=0)) | (both == both.max(axis=1, keepdims=True))
    targets, sources = np.nonzero(best & (both >= threshold) & (both > 0))
    return frozenset(zip(sources.tolist(), targets.tolist(), strict=True))


SYMMETRISATIONS: dict[str, Symmetrisation] = {
    "intersection": intersection,
    "union": union,
    "grow_diag": grow_diag,
    "grow_diag_final": grow_diag_final,
    "grow_diag_final_and": grow_diag_final_and,
}
