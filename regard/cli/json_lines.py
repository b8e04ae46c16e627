"""`--jsonl`: texts of any number of lines, each a JSON value in a line of its own, with whatever else their objects hold."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from regard.decoding.hypothesis import Hypothesis


class Asked(NamedTuple):
    """Texts, the objects they came in, and the lines (from 0) that hold none."""

    texts: list[str]
    rows: Sequence[dict[str, Any]] = ()
    problems: Mapping[int, str] = {}

    @property
    def constraints(self) -> list[dict[str, Any]]:
        """What each object asks of its output: `prefix`, `must` and their kin."""
        from regard.recipe import Constraints

        return [{key: row[key] for key in Constraints.model_fields if key in row} for row in self.rows]


def asked(lines: Sequence[str]) -> Asked:
    """A JSON string is short for {"source": it}."""
    from regard.data.jsonl import BadValue, json_object, json_text, json_value

    texts, rows, problems = list[str](), list[dict[str, Any]](), dict[int, str]()
    for index, line in enumerate(lines):
        texts.append("")
        rows.append({})
        try:
            value = json_value(line)
            rows[index] = {"source": value} if isinstance(value, str) else json_object(value)
            texts[index] = json_text(rows[index], "source")
        except BadValue as problem:
            problems[index] = str(problem)
    return Asked(texts, rows, problems)


def answered(
    rows: Sequence[dict[str, Any]], results: Sequence["Sequence[Hypothesis] | None"], problems: Mapping[int, str],
    n_best: int | None, scores: bool,
) -> Iterator[str]:  # fmt: skip
    """Each object with its `output`; null and the `error` where there is none. The output of an empty text is empty."""
    from regard.data.jsonl import json_line

    for index, (row, found) in enumerate(zip(rows, results, strict=True)):
        if index in problems:
            yield json_line({**row, "output": None, **({"score": None} if scores else {}), "error": problems[index]})
            continue
        outputs = [{"output": one.text, "score": round(one.score, 6)} for one in found or ()] or [{"output": "", "score": 0.0}]
        best = outputs[0] if scores else {"output": outputs[0]["output"]}
        yield json_line({**row, **best, **({} if n_best is None else {"n_best": outputs[:n_best]})})
