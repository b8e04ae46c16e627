"""`--jsonl`: texts of any number of lines, each a JSON value in a line of its own, with whatever else their objects hold."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """Texts, the objects they came in, and the lines (from 0) that hold none."""

    texts: list[str]
    rows: Sequence[dict[str, Any]] = ()
    problems: Mapping[int, str] = {}
    size: int = 0  # bytes of the lines

    @property
    def items(self) -> list[tuple[str, str]]:
        """Each text, and what its object asks of the output (`prefix`, `must` and their kin) as JSON; nothing, mostly."""
        from regard.recipe import Constraints

        asked = [{key: row[key] for key in Constraints.model_fields if key in row} for row in self.rows]
        given = [json.dumps(one) if one else "" for one in asked] or [""] * len(self.texts)
        return list(zip(self.texts, given, strict=True))


def asked(lines: Sequence[str], bad: Mapping[int, str] = {}, size: int = 0) -> Asked:
    """A JSON string is short for {"source": it}; some lines may be `bad` already."""
    from regard.data.jsonl import BadValue, json_object, json_text, json_value

    texts, rows, problems = list[str](), list[dict[str, Any]](), {**bad}
    for index, line in enumerate(lines):
        texts.append("")
        rows.append({})
        if index in bad:
            continue
        try:
            value = json_value(line)
            rows[index] = {"source": value} if isinstance(value, str) else json_object(value)
            texts[index] = json_text(rows[index], "source")
        except BadValue as problem:
            problems[index] = str(problem)
    return Asked(texts, rows, problems, size)
