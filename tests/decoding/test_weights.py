"""--precision on a GPU: the model itself in weights of that precision."""

import pytest
import torch
from test_static import TEXTS, TWO, in_use

from regard.decoding.engines import by_own
from regard.errors import UserError
from regard.models.directory import Bundle
from regard.recipe import Decoding


@pytest.mark.parametrize("name", TWO)
def test_the_model_itself_is_rounded_once(name):
    trained = in_use(name, dtype=torch.float32)
    exact = trained.model.decoder.output.weight.clone()
    bundle = Bundle(trained.model, trained.fields, Decoding())
    trained.device = torch.device("cuda")  # a stand-in: the weights stay here
    assert by_own(trained, bundle, "float32") == "regard's own engine on a GPU, in float32"
    assert torch.equal(trained.model.decoder.output.weight, exact)
    assert by_own(trained, bundle, "bfloat16") == "regard's own engine on a GPU, in bfloat16"
    trained.device = torch.device("cpu")
    assert {one.dtype for one in trained.model.parameters()} == {torch.bfloat16}
    assert torch.equal(trained.model.decoder.output.weight, exact.bfloat16())
    assert trained.engine is None
    first = [one[0].tokens[:1] for one in trained.search(TEXTS, beam=1, max_length=2)]
    assert len(first) == len(TEXTS)


def test_eight_bits_are_for_a_cpu():
    with pytest.raises(UserError, match=r"precision=int8 is for a CPU.*take float32 or bfloat16"):
        in_use(TWO[0], dtype=torch.float32).use_weights("int8")


@pytest.mark.gpu
def test_a_model_directory_on_a_gpu(tmp_path):
    """As the command line loads it; most first words are those of float32."""
    from exchanged import bundle, save
    from tiny_transformer import section

    from regard.decoding.load import load

    save(bundle(section({"output_bias": True, "tied": False}), max_length=8), tmp_path / "model")
    found = [load(tmp_path / "model", device="cuda", precision=kind).search(TEXTS, beam=1) for kind in ("float32", "bfloat16")]
    assert len(found[0]) == len(TEXTS)
    same = [one[0].tokens[:1] == other[0].tokens[:1] for one, other in zip(*found, strict=True)]
    assert sum(same) * 2 > len(same)
