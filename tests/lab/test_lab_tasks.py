"""What the tasks ask, and that the tables go together."""

import dataclasses

import pytest

from regard.errors import DataError
from regard.lab.lecture import LECTURE
from regard.lab.settings import SETTINGS
from regard.lab.tasks import SYMBOLS, TASKS
from regard.lab.texts import Texts, from_files, generated
from regard.lab.windows import IGNORE

SMOKE = SETTINGS["smoke"]
TEXTS = Texts("a few lines", ["a b a", "", "a c <unk>"], ["b b d"], ["a"])


def problems(rows):
    """(what was read up to `=`, what is asked after it) of each row."""
    for inputs, targets in zip(rows.inputs.tolist(), rows.targets.tolist(), strict=True):
        begin = next(place for place, target in enumerate(targets) if target != IGNORE)
        asked = [target for target in targets if target != IGNORE]
        assert targets[begin : begin + len(asked)] == asked
        assert inputs[begin + 1 : begin + len(asked)] == asked[:-1]  # the true past is read, whatever was foretold
        yield "".join(SYMBOLS[token] for token in inputs[: begin + 1]), "".join(SYMBOLS[token] for token in asked)


@pytest.mark.parametrize("distractors", [0, 2])
def test_arith_asks_for_the_answer_only(distractors):
    loaded = TASKS["arith"].load(dataclasses.replace(SMOKE, distractors=distractors), None)
    read = [(text, answer) for rows in (loaded.train, loaded.valid, loaded.test) for text, answer in problems(rows)]
    for text, answer in read:
        bare = "".join(symbol for symbol in text if not symbol.isalpha())
        assert bare.endswith("=")
        assert answer == f"{sum(map(int, bare[:-1].replace('-', '+-').split('+')))}."
    noise = [sum(map(str.isalpha, text)) / (len(text) - sum(map(str.isalpha, text)) - 1) for text, _ in read]
    assert sum(noise) / len(noise) == pytest.approx(distractors / 2, abs=0.05)


def test_no_problem_is_in_two_splits():
    loaded = TASKS["arith"].load(SMOKE, None)
    train, valid, test = ({text for text, _ in problems(rows)} for rows in (loaded.train, loaded.valid, loaded.test))
    assert not train & valid | train & test | valid & test
    assert len(loaded.train.inputs) == SMOKE.problems
    assert 0 <= len(valid) - len(test) <= 1
    assert len(valid) > 0.9 * SMOKE.problems / 20


def test_words_have_a_cap_an_unknown_and_an_end():
    loaded = TASKS["words"].load(dataclasses.replace(SMOKE, vocabulary=4), TEXTS)
    unknown, end, a, b = range(4)
    assert loaded.vocabulary == 4
    assert loaded.train.tokens.tolist() == [a, b, a, end, end, a, unknown, unknown, end]
    assert loaded.valid.tokens.tolist() == [b, b, unknown, end]
    assert TASKS["words"].load(SMOKE, TEXTS).vocabulary == 5


@pytest.mark.parametrize("task", TASKS)
def test_tokens_are_within_the_vocabulary(task):
    loaded = TASKS[task].load(SMOKE, generated(50))
    seen = set()
    for windows in (loaded.train, loaded.valid, loaded.test):
        for window in windows.once(8, 16):
            assert set(window["source"].values.flatten().tolist()) <= set(range(loaded.vocabulary))
            assert set(window["target"].values.flatten().tolist()) <= {IGNORE, *range(loaded.vocabulary)}
            seen |= set(window["source"].values.flatten().tolist())
    assert len(seen) > 0.3 * loaded.vocabulary


def test_every_setting_has_a_size_for_every_task():
    for setting in SETTINGS.values():
        assert setting.sizes.keys() == TASKS.keys()
        assert all(size.search <= size.updates for size in setting.sizes.values())


def test_the_lecture_has_figures_for_every_task():
    assert all(hasattr(row, task) for row in LECTURE.values() for task in TASKS)
    order = sorted(LECTURE, key=lambda cell: LECTURE[cell].arith)
    assert (order[0], order[-1]) == ("lstm_f", "mut1")
    assert LECTURE["lstm_b"].words == min(row.words for row in LECTURE.values())


def test_bad_texts_are_named(tmp_path):
    good, bad, empty = (tmp_path / name for name in ("good", "bad", "empty"))
    good.write_text("a b\nc\n")
    bad.write_bytes(b"a\nb \xff\n")
    empty.write_text("\n \n")
    assert from_files(good, good, good).train == ["a b", "c"]
    with pytest.raises(DataError, match="bad:2: not UTF-8"):
        from_files(good, bad, good)
    with pytest.raises(DataError, match="empty: there is no word in it"):
        from_files(good, good, empty)


def test_the_digest_tells_texts_apart():
    assert TEXTS.digest == dataclasses.replace(TEXTS, name="other").digest
    for part in ("train", "valid", "test"):
        assert dataclasses.replace(TEXTS, **{part: ["other"]}).digest != TEXTS.digest
    moved = dataclasses.replace(TEXTS, train=["a b a", ""], valid=["a c <unk>", "b b d"])
    assert moved.digest != TEXTS.digest


def test_tasks_are_the_same_every_time():
    for task in TASKS.values():
        one, two = (list(task.load(SMOKE, TEXTS).train.once(8, 16)) for _ in range(2))
        assert all(
            (a[name].values == b[name].values).all() for name in ("source", "target") for a, b in zip(one, two, strict=True)
        )
