"""Two directions made one: against the published procedure on a full matrix, by hand, and by laws."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.data.links import Links, flip, flip_gold
from regard.data.symmetrise import SYMMETRISATIONS, agree, agreement

SIZE = 6
LINKS = st.frozensets(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=12)
AROUND = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def matrix(links):
    cells = np.zeros((SIZE, SIZE), dtype=bool)
    for link in links:
        cells[link] = True
    return cells


def by_matrix(forward, backward, final=None):
    """GROW-DIAG and FINAL as Koehn et al. (2003) and the Moses manual give them, cell by cell over all cells."""
    there, back = matrix(forward), matrix(backward)
    found, either = there & back, there | back
    added = True
    while added:
        added = False
        for source, target in np.ndindex(SIZE, SIZE):
            if not found[source, target]:
                continue
            for new in [(source + down, target + right) for down, right in AROUND]:
                inside = 0 <= new[0] < SIZE and 0 <= new[1] < SIZE
                if inside and either[new] and not found[new] and not (found[new[0]].any() and found[:, new[1]].any()):
                    found[new] = added = True
    for direction in (there, back) if final else ():
        for new in np.ndindex(SIZE, SIZE):
            free = [not found[new[0]].any(), not found[:, new[1]].any()]
            if direction[new] and final(free):
                found[new] = True
    return frozenset((int(source), int(target)) for source, target in np.argwhere(found))


ORACLES = {
    "intersection": lambda forward, backward: {link for link in forward if link in backward},
    "union": lambda forward, backward: {*forward, *backward},
    "grow_diag": by_matrix,
    "grow_diag_final": lambda forward, backward: by_matrix(forward, backward, any),
    "grow_diag_final_and": lambda forward, backward: by_matrix(forward, backward, all),
}


def test_every_symmetrisation_has_an_oracle():
    assert ORACLES.keys() == SYMMETRISATIONS.keys()


@pytest.mark.parametrize("name", SYMMETRISATIONS)
@given(LINKS, LINKS)
@example(frozenset({(0, 0), (1, 0), (2, 1), (1, 1)}), frozenset({(0, 0), (1, 2)}))  # the order of the sweep decides
def test_a_symmetrisation_is_what_its_definition_says(name, forward, backward):
    assert SYMMETRISATIONS[name](forward, backward) == ORACLES[name](forward, backward)


def test_by_hand():
    """`das haus ist klein` beside `the house is rather small`; 3-3 touches 2-2 diagonally, 5-0 and 4-5 touch nothing."""
    forward = {(0, 0), (1, 1), (2, 2), (3, 3), (5, 0)}
    backward = {(0, 0), (1, 1), (2, 2), (3, 4), (4, 5)}
    both = {(0, 0), (1, 1), (2, 2)}
    assert SYMMETRISATIONS["intersection"](forward, backward) == both
    assert SYMMETRISATIONS["union"](forward, backward) == both | {(3, 3), (3, 4), (5, 0), (4, 5)}
    grown = both | {(3, 3), (3, 4), (4, 5)}  # 3-3 beside 2-2, then 3-4 beside 3-3, then 4-5 beside 3-4
    assert SYMMETRISATIONS["grow_diag"](forward, backward) == grown
    assert SYMMETRISATIONS["grow_diag_final"](forward, backward) == grown | {(5, 0)}  # 0 is linked, 5 is not
    assert SYMMETRISATIONS["grow_diag_final_and"](forward, backward) == grown
    assert SYMMETRISATIONS["grow_diag_final_and"]({(0, 0), (5, 3)}, {(0, 0), (4, 0)}) == {(0, 0), (5, 3)}


@pytest.mark.parametrize("name", SYMMETRISATIONS)
@given(LINKS, LINKS)
def test_laws_of_all(name, forward, backward):
    found = SYMMETRISATIONS[name](forward, backward)
    assert forward & backward <= found <= forward | backward
    assert SYMMETRISATIONS[name](forward, forward) == forward


@given(LINKS, LINKS)
def test_the_last_step_leaves_no_word_that_a_direction_links(forward, backward):
    found = SYMMETRISATIONS["grow_diag_final"](forward, backward)
    for side in (0, 1):
        assert {link[side] for link in found} == {link[side] for link in forward | backward}
    found = SYMMETRISATIONS["grow_diag_final_and"](forward, backward)
    sources, targets = ({link[side] for link in found} for side in (0, 1))
    assert all(source in sources or target in targets for source, target in forward | backward)


@given(LINKS, LINKS)
def test_flipped_twice_is_as_before(sure, possible):
    assert flip(sure) == {(link[1], link[0]) for link in sure}
    gold = Links(sure, sure | possible)
    assert flip_gold(flip_gold(gold)) == gold
    assert flip_gold(gold).possible == flip(sure) | flip(possible)


def test_agreement_by_hand():
    forward = np.array([[0.9, 0.1, 0.0], [0.2, 0.4, 0.4]])  # two target words look at three source words
    backward = np.array([[0.4, 0.6], [0.9, 0.1], [0.0, 1.0]])
    wanted = [[0.6, 0.3, 0.0], [0.12**0.5, 0.2, 0.4**0.5]]
    np.testing.assert_allclose(agreement(forward, backward), wanted)
    assert agree(forward, backward, 0.5) == {(0, 0), (2, 1)}
    assert agree(forward, backward, 0.25) == {(0, 0), (2, 1), (1, 0)}  # source 1 agrees best with target 0
    assert agree(forward, backward, 0.0) == {(0, 0), (2, 1), (1, 0)}  # 0-1 is the best of neither word, 2-0 has no weight
    assert agree(forward, backward, 0.64) == frozenset()
    assert agree(np.array([[0.0, 1.0]]), np.array([[1.0], [0.0]]), 0.0) == frozenset()  # each looks where the other does not


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 999), st.floats(0, 1))
def test_agreed_links_by_loops(sources, targets, seed, threshold):
    random = np.random.default_rng(seed)
    forward, backward = random.random((targets, sources)), random.random((sources, targets))
    wanted = set()
    for source in range(sources):
        for target in range(targets):
            product = forward[target, source] * backward[source, target]
            row = max(forward[target, other] * backward[other, target] for other in range(sources))
            column = max(forward[other, source] * backward[source, other] for other in range(targets))
            if product in (row, column) and math.sqrt(product) >= threshold:
                wanted.add((source, target))
    assert agree(forward, backward, threshold) == wanted
    assert flip(agree(backward, forward, threshold)) == wanted
