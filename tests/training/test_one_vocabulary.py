"""A model with one table of words for both sides trains with one vocabulary, not with two that are as large as each other."""

import pytest

from regard import run
from regard.errors import UserError
from regard.recipe import Recipe, override, parse

SIZES = {"embedding_size": 8, "hidden_size": 8}
SHAPES = {
    "shared embeddings": {"share_embeddings": True, "encoder": SIZES, "decoder": SIZES},
    "a decoder alone": {
        "kind": "decoder_alone",
        "hidden_size": 16,
        "feedforward_size": 16,
        "layers": 1,
        "attention": {"heads": 2},
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_two_vocabularies_of_one_size_are_refused(tmp_path, shape):
    for name, text in (("source", "a b c d\n"), ("target", "w x y z\n")):
        (tmp_path / name).write_text(text * 20)
    files = {side: str(tmp_path / side) for side in ("source", "target")}
    data = {"train": files, "tokenizer": {"kind": "word", "size": 8}, "held_out": 4}
    values = {"data": data, "model": SHAPES[shape], "training": {"updates": 1, "validate_every": 1}}
    with pytest.raises(UserError, match=r"one table of words .* set data\.tokenizer\.shared=true"):
        run.train(parse(Recipe, values), tmp_path / "two", talk=False)
    run.train(parse(Recipe, override(values, ["data.tokenizer.shared=true"])), tmp_path / "one", talk=False)
    assert (tmp_path / "one" / "model" / "config.json").exists()
