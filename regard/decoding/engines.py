"""What writes a model's outputs: ENGINES names the ways, most of them for a CPU. Each says what it uses, or why it cannot."""

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from regard.engine.products import PRECISIONS
from regard.errors import UserError
from regard.models import configure
from regard.models.directory import Bundle, model_in
from regard.nn.rounding import make_whole
from regard.tables import choose

if TYPE_CHECKING:
    from regard.decoding.generator import TrainedGenerator

Use = Callable[["TrainedGenerator", Bundle, str], str]
OPERATORS, OWN = "PyTorch's operators", "regard's own engine"


def by_operators(trained: "TrainedGenerator", bundle: Bundle, precision: str) -> str:
    if precision != "float32" and bundle.precision == "float32":
        raise UserError(f"{OPERATORS} write in float32: leave out --precision {precision}, or take --engine native")
    trained.engine = None
    make_whole(trained.model)
    return f"{OPERATORS}, in float32"


def by_own(trained: "TrainedGenerator", bundle: Bundle, precision: str) -> str:
    if trained.device.type == "cuda":
        trained.use_weights(precision)
        return f"{OWN} on a GPU, in {precision}"
    if trained.engine is None or trained.engine.pack is not PRECISIONS.get(precision):  # what is stored rounded has it already
        trained.use_engine(precision)
    return f"{OWN}, in {precision}"


def by_ctranslate2(trained: "TrainedGenerator", bundle: Bundle, precision: str, strict: bool = True) -> str:
    from regard.decoding.translator import Translator  # which would make every start of ours wait
    from regard.exchange import kept_beside

    if (problem := not_for_ctranslate2(trained, bundle, precision)) is not None:
        raise UserError(problem)
    assert bundle.path is not None
    directory, facts = kept_beside(bundle.path, precision)
    places = facts["source_places"], facts["target_places"]
    trained.translator, trained.engine = Translator(directory, precision, trained.fields, places, strict), None
    return f"CTranslate2, in {precision}, from {directory}"


def not_for_ctranslate2(trained: "TrainedGenerator", bundle: Bundle, precision: str) -> str | None:
    from regard.exchange.ctranslate2 import refusal

    if importlib.util.find_spec("ctranslate2") is None:
        return "CTranslate2 is not installed: pip install 'regard[export]'"
    if (problem := refusal(configure(bundle.config))) is not None:
        return problem
    if trained.device.type != "cpu":
        return f"CTranslate2 is used on a CPU, and this model is on {trained.device}: load it with device=cpu"
    if precision == "bfloat16":
        return "CTranslate2 has no bfloat16 on a CPU: take float32 or int8"
    if bundle.path is None or model_in(bundle.path) is None:
        return "CTranslate2 is for models whose training has ended"
    return None


def best(trained: "TrainedGenerator", bundle: Bundle, precision: str) -> str:
    """Our own where it is the faster one; else CTranslate2 where it can, and for settings that it does not have our own."""
    told = by_own(trained, bundle, precision)
    if (spare := trained.engine) is not None and spare.is_compiled and torch.get_num_threads() == 1:
        return f"{told}, compiled for this processor"  # up to 3.4 times CTranslate2's rate (2026-11-20; docs/speed.md)
    if (problem := not_for_ctranslate2(trained, bundle, precision)) is not None:
        return f"{told} ({problem})"
    told = by_ctranslate2(trained, bundle, precision, strict=False)
    trained.engine = spare
    return told


ENGINES: dict[str, Use] = {"auto": best, "ctranslate2": by_ctranslate2, "native": by_own, "torch": by_operators}


def use(name: str, trained: "TrainedGenerator", bundle: Bundle, precision: str | None) -> str:
    """What writes its outputs from now on, in words."""
    return choose(ENGINES, name, "engine")(trained, bundle, precision or bundle.precision)
