"""regard: attention-based sequence-to-sequence models, from a file of pairs to a model that shows where it looked."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.decoding.ensemble import ensemble
    from regard.decoding.load import load
    from regard.errors import UserError as Error
    from regard.learning import train
    from regard.recipe import read as read_recipe
    from regard.tuning.from_python import tune

__version__ = "0.1.0"
__all__ = ["Error", "__version__", "ensemble", "load", "read_recipe", "train", "tune"]

LAZY = {
    "Error": ("regard.errors", "UserError"),
    "ensemble": ("regard.decoding.ensemble", "ensemble"),
    "load": ("regard.decoding.load", "load"),
    "read_recipe": ("regard.recipe", "read"),
    "train": ("regard.learning", "train"),
    "tune": ("regard.tuning.from_python", "tune"),
}


def __getattr__(name: str) -> Any:
    """torch is imported by those who need it: `regard --help` answers at once."""
    if name not in LAZY:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    module, attribute = LAZY[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
