"""The outputs that are worth least come first."""

import pytest

from regard.errors import UserError
from regard.evaluation.worst import worst, write_worst

SOURCES = ["s1", "s2", "s3", "s4"]
OUTPUTS = ["a b c d", "a b c x", "a x y z", "a b c d"]
REFERENCES = ["a b c d", "a b c d", "a b c d", ["no", "a b c d"]]


def test_the_worst_come_first_and_equal_ones_in_their_order():
    assert worst("wer", SOURCES, OUTPUTS, REFERENCES, 3) == [
        (0.25, "s3", "a x y z", "a b c d"),
        (0.75, "s2", "a b c x", "a b c d"),
        (1.0, "s1", "a b c d", "a b c d"),
    ]


def test_outputs_that_are_all_wrong_are_told_apart_by_their_characters():
    assert [row[:2] for row in worst("exact", SOURCES, OUTPUTS, REFERENCES, 9)] == [
        (0.0, "s3"),
        (0.0, "s2"),
        (1.0, "s1"),
        (1.0, "s4"),
    ]


def test_a_metric_that_judges_no_single_output_is_refused():
    with pytest.raises(UserError, match="the metric loss does not judge single outputs; take one of bleu, "):
        worst("loss", SOURCES, OUTPUTS, REFERENCES, 3)


def test_the_file_is_a_table_whatever_the_texts_hold(tmp_path):
    write_worst(tmp_path / "worst.tsv", worst("exact", ["a\tb\nc"], ["x\u2028y"], [["p", "q"]], 5))
    assert (tmp_path / "worst.tsv").read_text("utf-8") == ("score\tsource\toutput\treference\n0.000\ta b c\tx y\tp ||| q\n")
