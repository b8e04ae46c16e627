import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.links import Links, format_links, links_from_weights, merge_pieces, parse_links, read_links
from regard.errors import DataError, UserError
from regard.evaluation.alignment import alignment_error_rate

LINK_SETS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)
GOLD = st.builds(lambda sure, possible: Links(sure, sure | possible), LINK_SETS, LINK_SETS)


def test_parse_links_knows_both_ways_to_write_possible_links():
    links = parse_links("0-0 1?2 10p3 1-2\n", "gold:1")
    assert links == Links(frozenset({(0, 0), (1, 2)}), frozenset({(0, 0), (1, 2), (10, 3)}))
    assert parse_links(" \n", "gold:1") == Links(frozenset(), frozenset())


@pytest.mark.parametrize("token", ["0", "0-", "-1-0", "a-b", "0-0-0", "0:0", "1-2:0.5", "0.-1", "٣-٣", "0—0"])
def test_bad_links_are_refused_with_their_place(token, tmp_path):
    path = tmp_path / "gold.align"
    path.write_text(f"0-0\n1-1 {token}\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_links(path)
    assert str(caught.value).startswith(f"{path}:2: {token!r} is not a link")


@pytest.mark.parametrize("content", [None, b"\xff\xfe0-0\n"])
def test_files_that_cannot_be_read_are_named(content, tmp_path):
    path = tmp_path / "gold.align"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"gold\.align: cannot be read"):
        read_links(path)


def test_a_damaged_gzip_file_is_named(tmp_path):
    path = tmp_path / "gold.gz"
    path.write_bytes(gzip.compress(b"0-0 " * 1000)[:-12])
    with pytest.raises(DataError, match=r"gold\.gz: cannot be read"):
        read_links(path)


def test_read_links_keeps_empty_lines_in_place(tmp_path):
    expected = [parse_links("0-0", ""), parse_links("", ""), parse_links("1?1", "")]
    (tmp_path / "gold").write_text("0-0\n\n1?1\n")
    (tmp_path / "gold.gz").write_bytes(gzip.compress(b"0-0\n\n1?1\n"))
    assert read_links(tmp_path / "gold") == read_links(tmp_path / "gold.gz") == expected


def test_format_links_sorts_by_number():
    assert format_links({(10, 0), (2, 5), (2, 1), (0, 0)}) == "0-0 2-1 2-5 10-0"
    assert format_links(frozenset()) == ""


@given(GOLD)
def test_links_survive_writing_and_reading(gold):
    assert parse_links(format_links(*gold), "line") == gold


def test_links_from_weights_are_source_then_target():
    weights = np.array([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.0, 0.0, 0.0]])
    assert links_from_weights(weights) == {(2, 0), (0, 1)}  # the last row has no weight, so no link
    assert links_from_weights(np.zeros((0, 3))) == links_from_weights(np.zeros((3, 0))) == frozenset()


def test_merge_pieces_by_hand():
    weights = np.array([[0.5, 0.2, 0.2, 0.1], [0.1, 0.0, 0.8, 0.1], [0.3, 0.3, 0.3, 0.1], [0.0, 0.0, 0.0, 1.0]])
    merged = merge_pieces(weights, source_words=[0, 1, 1, -1], target_words=[0, 0, 1, -1])
    np.testing.assert_allclose(merged, [[0.3, 0.6], [0.3, 0.6]])


@given(st.data())
def test_merge_pieces_matches_loops(data):
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    source, target = (data.draw(st.lists(st.integers(-1, 3), max_size=6)) for _ in range(2))
    weights = generator.random((len(target), len(source)), dtype=np.float32)
    merged = merge_pieces(weights, source, target)
    assert merged.shape == (max(target, default=-1) + 1, max(source, default=-1) + 1)
    assert merged.dtype == np.float32
    for (target_word, source_word), weight in np.ndenumerate(merged):
        rows = [row for row, word in enumerate(target) if word == target_word]
        columns = [column for column, word in enumerate(source) if word == source_word]
        sums = [sum(float(weights[row, column]) for column in columns) for row in rows]
        assert weight == pytest.approx(sum(sums) / len(sums) if sums else 0.0, rel=1e-5)


def test_merge_pieces_keeps_the_mass_of_a_row():
    weights = np.random.default_rng(1).dirichlet(np.ones(7), size=5)
    merged = merge_pieces(weights, [0, 0, 1, 2, 2, 2, 3], [0, 1, 1, 1, 2])
    np.testing.assert_allclose(merged.sum(axis=1), 1.0)


def test_merge_pieces_refuses_words_for_other_tokens():
    with pytest.raises(AssertionError):
        merge_pieces(np.ones((2, 3)), [0, 1], [0, 1])


def test_error_rate_by_hand():
    gold = [parse_links("0-0 1-1 2?2 2?3", ""), parse_links("0-0", "")]
    found = [{(0, 0), (2, 2), (3, 3)}, {(0, 0), (1, 0)}]
    # A = 5, S = 3; in S: (0,0) (0,0) = 2; in P: (0,0) (2,2) (0,0) = 3
    score = alignment_error_rate(found, gold)
    assert score.error_rate == pytest.approx(1 - (2 + 3) / (5 + 3))
    assert score.precision == pytest.approx(3 / 5)
    assert score.recall == pytest.approx(2 / 3)


def test_error_rate_is_zero_when_all_sure_and_only_possible_links_are_found():
    gold = [parse_links("0-0 1?1 2?2", "")]
    assert alignment_error_rate([{(0, 0), (1, 1)}], gold) == (0.0, 1.0, 1.0)  # Och & Ney 2003, section 4
    assert alignment_error_rate([set()], gold) == (1.0, 0.0, 0.0)


@given(st.lists(st.tuples(LINK_SETS, GOLD), min_size=1, max_size=4))
def test_error_rate_counts_over_the_whole_corpus(pairs):
    sure = {(row, link) for row, (_, gold) in enumerate(pairs) for link in gold.sure}
    possible = {(row, link) for row, (_, gold) in enumerate(pairs) for link in gold.possible}
    found = {(row, link) for row, (links, _) in enumerate(pairs) for link in links}
    arguments = [links for links, _ in pairs], [gold for _, gold in pairs]
    if not sure:
        with pytest.raises(UserError, match="no sure link"):
            alignment_error_rate(*arguments)
        return
    score = alignment_error_rate(*arguments)
    assert score.error_rate == pytest.approx(1 - (len(found & sure) + len(found & possible)) / (len(found) + len(sure)))
    assert score.recall * len(sure) == pytest.approx(len(found & sure))
    assert score.precision * len(found) == pytest.approx(len(found & possible))


def test_error_rate_needs_one_alignment_for_each_sentence():
    with pytest.raises(UserError, match="2 alignments found but 1 gold"):
        alignment_error_rate([set(), set()], [parse_links("0-0", "")])
