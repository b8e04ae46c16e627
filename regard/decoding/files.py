"""Whole files: lines come in windows, so that memory does not depend on how many there are. In a window, lines of like length
are answered together, and each text once; the answers come back in the order of the lines."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from regard.decoding.trained import Answers
from regard.decoding.workers import Workers
from regard.memory import is_shortage, tell_shortage

PARTS, SMALLEST, LARGEST = 8, 16, 256  # a window is cut into so many parts of at least and at most so many texts
Item = tuple[str, ...]  # a text and what is asked of its output, or a pair of texts


@runtime_checkable
class Window(Protocol):
    """Lines that are answered together."""

    @property
    def items(self) -> Sequence[Item]: ...


W = TypeVar("W", bound=Window)
Result = TypeVar("Result")
Answer = Callable[[Sequence[Item]], Answers[Result]]
One = tuple[Result | None, str | None, str | None]  # what there is of one input: its result, its problem, what cut it


def answered(
    windows: Iterable[W], answer: Answer[Result], processes: int = 1, whole: bool = False
) -> Iterator[tuple[W, Answers[Result]]]:
    """Each window with its answers. `answer` must be a function of each item alone, as searches and samples are; one process
    may be asked for `whole` windows at once."""
    cut = one_part if whole and processes == 1 else parts
    with Workers(processes, Careful(answer)) as workers:
        for window in windows:
            found = dict[Item, One[Result]]()
            for items, answers in workers.each(cut(window.items)):
                for item, one in zip(items, apart(answers), strict=True):
                    found[item] = one
            yield window, together([found[item] for item in window.items])


def parts(items: Sequence[Item]) -> list[list[Item]]:
    """Those that differ, of like length together, the longest first. How they are cut is a function of the window alone, so
    that the answers are the same bytes whatever number of processes there are."""
    each = sorted(dict.fromkeys(items), key=lambda item: sum(map(len, item)), reverse=True)
    size = min(max(-(-len(each) // PARTS), SMALLEST), LARGEST)
    return [each[begin : begin + size] for begin in range(0, len(each), size)]


def one_part(items: Sequence[Item]) -> list[list[Item]]:
    return [[*dict.fromkeys(items)]] if items else []


def apart(answers: Answers[Any]) -> list[One[Any]]:
    return [(one, answers.problems.get(at), answers.cuts.get(at)) for at, one in enumerate(answers.results)]


def together(each: Sequence[One[Result]]) -> Answers[Result]:
    problems = {at: problem for at, (_, problem, _) in enumerate(each) if problem is not None}
    cuts = {at: cut for at, (*_, cut) in enumerate(each) if cut is not None}
    return Answers([result for result, *_ in each], problems, cuts)


class Careful(Generic[Result]):
    """A part for which there is too little memory is answered one by one, and an item that alone is too long for it fails."""

    def __init__(self, answer: Answer[Result]) -> None:
        self.answer = answer

    def __call__(self, items: list[Item]) -> tuple[list[Item], Answers[Result]]:
        try:
            return items, self.answer(items)
        except (MemoryError, RuntimeError) as error:
            if not is_shortage(error):
                raise
            problem = tell_shortage(error, "generate")
        if len(items) == 1:
            return items, Answers([None], {0: problem})
        return items, together([apart(self([item])[1])[0] for item in items])
