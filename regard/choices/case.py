"""What rules look at: the survey, the machine, and what was chosen before."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from regard.data.pictures import Sizes
from regard.data.survey import Survey

Values = dict[str, Any]  # dotted keys of a recipe


class Machine(NamedTuple):
    """What a choice may count on."""

    gpu: bool
    threads: int


class Case(NamedTuple):
    """What rules look at. Rules further down see what those above have chosen."""

    found: Survey
    machine: Machine
    chosen: Values
    images: Sequence[Sizes] = ()  # of the images that the sources name, if they do

    def unit(self, column: str) -> str:
        """What the tokens of a column are, as the rule `tokenizer` chose."""
        own = self.chosen.get(f"data.fields.{column}", {}).get("tokenizer")
        kind = (own or self.chosen["data.tokenizer"])["kind"]
        return {"character": "characters", "word": "words", "code": "names and signs"}.get(kind, "subwords")

    def tokens(self, column: str) -> float:
        """Of a row, on average; a subword has about four characters where vocabularies are of a usual size."""
        facts, unit = self.found.columns[column], self.unit(column)
        known = {"characters": facts.characters.mean, "words": facts.words.mean}
        return known.get(unit, facts.characters.mean / 4) + 1

    @property
    def small_symbols(self) -> bool:
        """Letters, phonemes, commands: a closed set of symbols on both sides."""
        return {self.unit("source"), self.unit("target")} <= {"words", "characters"}

    @property
    def epoch(self) -> float:
        """Tokens of all rows, on the longer side."""
        return self.found.rows * max(self.tokens("source"), self.tokens("target"))
