"""Rows that look wrong are named; those that just do not are left alone."""

import pytest

from regard.data.suspicious import PROBLEMS, suspicious_rows

USUAL = [("a sentence of some words", "and what it means in others")] * 20
WRONG = {  # by how the problem begins: a row that has it, and one that just does not
    "a replacement": (("na\ufffdve", "naive"), ("na\u00efve", "naive")),
    "it looks like UTF-8": (("caf\u00c3\u00a9", "coffee"), ("caf\u00e9 \u00c3 la", "coffee")),
    "a control": (("bell\x07", "bell"), ("two\tcolumns", "two")),
    "its sides differ": (("a", "b" * 200), ("a", "b" * 17)),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_problem(problem):
    wrong, right = next(rows for begin, rows in WRONG.items() if problem.startswith(begin))
    assert suspicious_rows([*USUAL, wrong, right]) == [(20, problem)]


@pytest.mark.parametrize(("long", "named"), [(1, 1), (2, 0)])
def test_lengths_that_differ_in_many_rows_are_nothing_unusual(long, named):
    assert len(suspicious_rows([*USUAL[:19], *[("a", "b" * 200)] * long])) == named
