"""Rows that cannot be used: where each stands, what is wrong with it, and what happens then."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from regard.errors import DataError

ADVICE = "mend the file or set data.on_bad_row=skip"


class Fault(NamedTuple):
    """A row that cannot be used."""

    file: Path
    line: int
    problem: str
    alone: bool = True  # False: a line is missing somewhere, so rows before it may go wrong too

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.problem}"


class BadRows:
    """What happens to rows that cannot be used: `stop` raises, `skip` counts, keeps the first and reports them all."""

    def __init__(self, policy: Literal["stop", "skip"], report: Path | None = None, advice: str = ADVICE) -> None:
        self.policy = policy
        self.report = report
        self.advice = advice
        self.count = 0
        self.first: list[Fault] = []

    def add(self, faults: Sequence[Fault]) -> None:
        if faults and self.policy == "stop":
            listed = [str(fault) for fault in faults[:5]]
            more = [f"... and {len(faults) - 5} more up to line {faults[-1].line}"] if len(faults) > 5 else []
            raise DataError("\n".join([*listed, *more, self.advice]))
        self.skip(faults)

    def skip(self, faults: Sequence[Fault]) -> None:
        """Leave these rows out whatever the policy is."""
        if faults and self.report is not None:
            self.report.parent.mkdir(parents=True, exist_ok=True)
            with self.report.open("a" if self.count else "w", encoding="utf-8") as file:
                file.writelines(f"{fault}\n" for fault in faults)
        self.count += len(faults)
        self.first += faults[: 20 - len(self.first)]
