"""Settings of decoding on the command line, and rules that outputs keep to."""

import json

import pytest
from calling import refused, regard

LINE = b"amicus bellum canis\n"


def test_settings_are_written_as_in_a_recipe(trained):
    assert regard("generate", trained, "beam=1", stdin=LINE) == regard("generate", trained, "--beam", "1", stdin=LINE)
    assert len(regard("generate", trained, "decoding.min_length=5", "beam=3", stdin=LINE).lines[0].split()) >= 5
    twice = regard("generate", trained, "no_repeat_ngram=1", stdin=b"amicus amicus amicus\n").lines[0].split()
    assert len(set(twice)) == len(twice)
    assert regard("generate", trained, "pattern=[A-Z]{3}: no", "max_length=20", stdin=LINE).lines == [""]
    assert regard("generate", trained, "prefix=[A]: b", "min_length=3", stdin=LINE).lines == [""]
    assert regard("generate", trained, "pattern=CANIS( DOMUS)?", stdin=LINE).lines[0] in ("CANIS", "CANIS DOMUS")
    assert "CANIS" not in regard("generate", trained, "ban=CANIS", stdin=LINE).out
    assert "EQUUS" in regard("generate", trained, "must=[EQUUS]", "decoding.ban=CANIS", stdin=LINE).out
    drawn = regard("generate", trained, "--sample", "temperature=3.0", "seed=5", stdin=LINE)
    assert drawn == regard("generate", trained, "--sample", "--temperature", "3.0", "--seed", "5", stdin=LINE)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["min_lenth=5"], "unknown key 'decoding.min_lenth'; did you mean 'min_length'?"),
        (["min_length=-1"], "decoding.min_length: input should be greater than 0"),
        (["min_length=9", "max_length=9"], "min_length=9 must be less than max_length=9"),
        (["5"], "'5' is no override"),
        (["temperature=0.5"], "add --sample"),
    ],
)
def test_wrong_settings_are_named(trained, words, told):
    assert told in refused("generate", trained, *words)


def test_an_input_whose_rules_cannot_be_kept_fails_alone(trained):
    lines = b'"amicus"\n"amicus bellum canis domus"\n'
    result = regard("generate", trained, "--jsonl", "min_ratio=12", "max_length=30", stdin=lines)
    assert result.code == 2
    first, second = map(json.loads, result.lines)
    assert len(first["output"].split()) == 12
    assert second["output"] is None
    assert "keeps to all rules" in second["error"]
