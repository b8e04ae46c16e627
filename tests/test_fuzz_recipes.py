"""Recipes as nobody should write them: exit 0 or 2, one message, no traceback, seconds, megabytes."""

import pytest
from fuzz_recipes import LONGEST, attempt, fuzz
from recipe_mutations import Case

from regard.errors import UserError

NAMED = {
    "training.seed=2026-13-45": "training.seed: input should be a valid integer",
    "training.seed=!!int x": "'x' is no int",
    "training.seed=1" + "0" * 30: "training.seed: input should be less than",
    "training.seed=0x" + "f" * 9000: "is no int",
    "training.betas=[1,1]": "training.betas.0: input should be less than 1",
    "training.learning_rate=1e38": "training.learning_rate: input should be less than or equal to 100",
    "training.learning_rate=.inf": "training.learning_rate: input should be a finite number",
    "training.weight_decay=1e38": "training.weight_decay: input should be less than or equal to 100",
    "training.weight_decay=.nan": "training.weight_decay: input should be a finite number",
    "training.accumulate=10000000000": "training.accumulate: input should be less than or equal to 65536",
    "decoding.max_ratio=.inf": "decoding.max_ratio: input should be a finite number",
    "decoding.length_penalty=1e9": "decoding.length_penalty: input should be less than or equal to 10",
    "decoding.beam=100000": "decoding.beam: input should be less than or equal to 1024",
    "model.kind=[a]": "unknown model ['a']",
    "model.encoder.kind={a: b}": "model.encoder.kind: unknown kind",
    "model.encoder.layers=1000000": "model.encoder.layers: input should be less than or equal to 1000",
    "model.encoder.hidden_size=10000000000": "model.encoder.hidden_size: input should be less than or equal to 1048576",
    "model.encoder.hidden_size=1048576": "lower the model's sizes (the largest are model.encoder.hidden_size=1048576",
    "data.test.x=" + "[" * 60_000: "nested more than 50 levels deep",
    "a" + ".a" * 3000 + "=1": "is no override",
    "data=5": "data: ",
    'data.train={source: "a\\0b", target: c}': "data.train.source: no file can have this name",
    "data.tokenizer.size=99999999999": "data.tokenizer.size: input should be less than or equal to 10000000",
    "training.penalties={" + "x" * 900 + ": 1}": "unknown penalty",
    "training={" + ", ".join(f"key{number}: 1" for number in range(4000)) + "}": "and 3,995 more",
}


@pytest.mark.parametrize("override", NAMED, ids=lambda text: text[:30])
@pytest.mark.parametrize("files", [True, False])
def test_named_faults(override, files, tmp_path):
    with pytest.raises(UserError) as error:
        attempt(Case("base: demo\n", [override], files), tmp_path)
    told = str(error.value)
    assert NAMED[override] in told
    assert told.isprintable()
    assert len(told) <= LONGEST


def test_what_is_right_is_accepted(tmp_path):
    assert attempt(
        Case("base: demo\nabout: 2026-11-18\n", ["training.learning_rate=1e-3", "data.tokenizer.size=500"], False), tmp_path
    )


@pytest.mark.slow
def test_hundreds_of_recipes():
    complaints = []
    row = fuzz(300, seed=7, commands=4, tell=complaints.append)
    assert (row["tracebacks"], row["hangs"]) == (0, 0), complaints
    assert row["accepted"] >= 20
    assert row["refused"] >= 100
    assert row["largest_megabytes"] < 1000
    assert row["longest_message"] <= LONGEST
