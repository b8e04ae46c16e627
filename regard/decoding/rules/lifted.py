"""An automaton over characters, as one over the tokens of a vocabulary: which tokens may come is found out state by state,
where a search gets to."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.data.tokenizer import END, HIDDEN, Tokenizer
from regard.decoding.rules.automata import Automaton, State


class Place(NamedTuple):
    """How far a text has come."""

    state: State
    begun: bytes = b""  # a character of which not all bytes are there
    bare: bool = True  # the blank of a token that comes now is not written


class Node:
    """Of a tree of spellings: what the tokens that end here are, and where the next byte leads."""

    def __init__(self) -> None:
        self.tokens, self.next = list[int](), dict[int, Node]()


def tree_of(spellings: Mapping[int, bytes]) -> Node:
    root = Node()
    for token, spelling in spellings.items():
        node = root
        for byte in spelling:
            node = node.next.setdefault(byte, Node())
        node.tokens.append(token)
    return root


@lru_cache(maxsize=8)
def tree(tokenizer: Tokenizer, bare: bool) -> Node:
    """Of all that tokens may add to a text; those that stand for none are not written."""
    spelled = ((token, spelling) for token, spelling in enumerate(tokenizer.spellings) if token not in HIDDEN)
    return tree_of({token: tokenizer.added(spelling, bare) for token, spelling in spelled})


class Lifted:
    """`automaton` over the tokens of a vocabulary and the words that one source offers beside it to be copied."""

    def __init__(self, automaton: Automaton, tokenizer: Tokenizer, extra: Sequence[bytes]) -> None:
        self.automaton, self.tokenizer = automaton, tokenizer
        self.extra = dict(enumerate(extra, start=len(tokenizer)))
        self.size = len(tokenizer) + len(extra)
        self.characters = dict[tuple[State, str], State | None]()
        self.moves = dict[Place, dict[int, Place]]()
        self.allowed = dict[tuple[Place, bool], Bool[Tensor, "vocabulary"]]()

    def next(self, place: Place) -> dict[int, Place]:
        """The tokens that may come, and where each leads; END, which leads nowhere, is not among them."""
        if place not in self.moves:
            root = tree(self.tokenizer, place.bare)
            found = [*self.walk(root, place.state, place.begun)]
            if self.extra:
                added = {token: self.tokenizer.added(word, place.bare) for token, word in self.extra.items()}
                found += self.walk(tree_of(added), place.state, place.begun)
            self.moves[place] = {
                token: Place(state, begun, self.bare_after(token, place.bare)) for token, state, begun in found
            }
        return self.moves[place]

    def bare_after(self, token: int, bare: bool) -> bool:
        spelling = self.extra[token] if token in self.extra else self.tokenizer.spellings[token]
        return self.tokenizer.bare_after(token, spelling, bare)

    def walk(self, node: Node, state: State, begun: bytes) -> Iterator[tuple[int, State, bytes]]:
        """Every token below a node of the tree that the automaton allows."""
        stack = [(node, state, begun)]
        while stack:
            node, state, begun = stack.pop()
            yield from ((token, state, begun) for token in node.tokens)
            for byte, below in node.next.items():
                whole = bytes([*begun, byte])
                if needed(whole) > len(whole):
                    stack.append((below, state, whole))
                elif (behind := self.step(state, whole)) is not None:
                    stack.append((below, behind, b""))

    def step(self, state: State, whole: bytes) -> State | None:
        try:
            key = state, whole.decode()
        except UnicodeDecodeError:
            return None
        if key not in self.characters:
            self.characters[key] = self.automaton.step(*key)
        return self.characters[key]

    def accepts(self, place: Place) -> bool:
        return not place.begun and self.automaton.accepts(place.state)

    def forbidden(self, place: Place, last: bool) -> Bool[Tensor, "vocabulary"]:
        """What may not come here; where it is the `last` token, the text must be whole with it."""
        if (place, last) not in self.allowed:
            allowed = [token for token, behind in self.next(place).items() if not last or self.accepts(behind)]
            mask = torch.ones(self.size, dtype=torch.bool)
            mask[[*allowed, END] if self.accepts(place) else allowed] = False
            self.allowed[place, last] = mask
        return self.allowed[place, last]


def needed(begun: bytes) -> int:
    """How many bytes the character has that begins so (UTF-8)."""
    return 1 if begun[0] < 0xC0 else 2 if begun[0] < 0xE0 else 3 if begun[0] < 0xF0 else 4
