"""A dictionary from links: the words most often linked, written and read again."""

import pytest

from regard.data.dictionary import learn_dictionary, read_dictionary, write_dictionary
from regard.errors import DataError

PAIRS = [("der Hund", "the dog"), ("der  Hund bellt", "a dog barks"), ("das", "the")]
LINKS = [{(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 2)}, {(0, 0)}]


def test_the_word_that_is_linked_most_often(tmp_path):
    found = learn_dictionary(PAIRS, LINKS)
    assert found == {"Hund": ("dog", 2), "bellt": ("barks", 1), "das": ("the", 1), "der": ("a", 1)}
    write_dictionary(tmp_path / "words.tsv", found)
    assert read_dictionary(tmp_path / "words.tsv") == {word: target for word, (target, _) in found.items()}


@pytest.mark.parametrize("line", ["Hund", "Hund\t", "\tdog", "Hund dog", ""])
def test_a_line_that_is_no_entry_is_named(tmp_path, line):
    (tmp_path / "words.tsv").write_text(f"der\tthe\n{line}\ndas\tthe\n")
    with pytest.raises(DataError, match=r"words\.tsv:2: a line has a source word, a tab and a target word"):
        read_dictionary(tmp_path / "words.tsv")
