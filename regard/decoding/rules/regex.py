"""Regular expressions as automata: Python's own parser, Thompson's construction (1968), subsets made as they are met. A library
would bring a parser of its own dialect for what is a page here."""

import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Callable, Iterable
from typing import Any

from regard.decoding.rules.automata import Automaton
from regard.errors import UserError

LARGEST = 10_000  # states
Test = Callable[[str], bool]
CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_NOT_DIGIT: r"\D", codes.CATEGORY_SPACE: r"\s", codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w", codes.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


class Pattern(Automaton):
    """The whole text matches, as `re.fullmatch` says. A state is the set of places in the expression where a text may be."""

    def __init__(self, expression: str) -> None:
        self.arcs, self.free = list[tuple[Test, int] | None](), list[list[int]]()  # by a character; by none
        try:
            tree = parser.parse(expression)
        except (re.error, RecursionError, OverflowError) as error:
            raise UserError(f"decoding.pattern: {expression!r:.80} is no regular expression: {error}") from None
        if tree.state.flags & ~re.UNICODE:
            raise UserError("decoding.pattern: flags such as (?i) are not known here")
        first = self.place()
        self.last = self.add_all(tree, first)
        self.start = self.closure([first])

    def place(self) -> int:
        if len(self.arcs) >= LARGEST:
            raise UserError(f"decoding.pattern: this regular expression has more than {LARGEST:,} places")
        self.arcs.append(None)
        self.free.append([])
        return len(self.arcs) - 1

    def closure(self, places: Iterable[int]) -> frozenset[int]:
        found, stack = set[int](), list(places)
        while stack:
            place = stack.pop()
            if place not in found:
                found.add(place)
                stack += self.free[place]
        return frozenset(found)

    def step(self, state: frozenset[int], character: str) -> frozenset[int] | None:
        arcs = (self.arcs[place] for place in state)
        return self.closure(arc[1] for arc in arcs if arc is not None and arc[0](character)) or None

    def accepts(self, state: frozenset[int]) -> bool:
        return self.last in state

    def add_all(self, tree: Any, place: int) -> int:
        """What `re` has parsed, one after the other; the place behind them."""
        for code, value in tree:
            place = self.add(code, value, place)
        return place

    def add(self, code: Any, value: Any, place: int) -> int:
        if code is codes.SUBPATTERN and not value[1] and not value[2]:
            return self.add_all(value[3], place)
        if code is codes.BRANCH:
            return self.add_branches(value[1], place)
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, tree = value
            return self.add_repeat(least, most, tree, place)
        behind = self.place()
        self.arcs[place] = (test_of(code, value), behind)
        return behind

    def add_branches(self, branches: Iterable[Any], place: int) -> int:
        behind = self.place()
        for branch in branches:
            first = self.place()
            self.free[place].append(first)
            self.free[self.add_all(branch, first)].append(behind)
        return behind

    def add_repeat(self, least: int, most: Any, tree: Any, place: int) -> int:
        for _ in range(least):
            place = self.add_all(tree, place)
        if most is codes.MAXREPEAT:  # once more, or behind it
            first, behind = self.place(), self.place()
            self.free[place] += [first]
            self.free[first] += [behind]
            inner = self.place()
            self.free[first] += [inner]
            self.free[self.add_all(tree, inner)] += [first]
            return behind
        behind = self.place()
        for _ in range(most - least):
            self.free[place].append(behind)
            first = self.place()
            self.free[place].append(first)
            place = self.add_all(tree, first)
        self.free[place].append(behind)
        return behind


def test_of(code: Any, value: Any) -> Test:
    """Whether a character is one that this part of an expression stands for."""
    if code is codes.LITERAL:
        return lambda character: ord(character) == value
    if code is codes.NOT_LITERAL:
        return lambda character: ord(character) != value
    if code is codes.ANY:
        return lambda character: character != "\n"
    if code is codes.RANGE:
        return lambda character: value[0] <= ord(character) <= value[1]
    if code is codes.CATEGORY and value in CATEGORIES:
        category = re.compile(CATEGORIES[value])
        return lambda character: category.match(character) is not None
    if code is codes.IN:
        negated = value[0][0] is codes.NEGATE
        tests = [test_of(*one) for one in value[negated:]]
        return lambda character: any(test(character) for test in tests) != negated
    name = {codes.AT: r"^, $ and \b", codes.GROUPREF: "a reference to a group"}.get(code, str(code).lower())
    raise UserError(f"decoding.pattern: {name} is not known here; the whole output must match in any case")
