"""The built-in recipes by the shape of their model: laws for models that write do not hold for taggers and language models."""

from regard.models import configure
from regard.recipe import built_in, read_values


def with_columns(*names):
    """Those whose model has these columns and no others."""
    return [name for name in built_in() if set(configure(read_values(name)["model"]).columns) == set(names)]


def reads_images(name):
    return read_values(name)["data"].get("fields", {}).get("source", {}).get("kind") == "image"


WRITERS = [name for name in with_columns("source", "target") if not reads_images(name)]
DESCRIBERS = [name for name in with_columns("source", "target") if reads_images(name)]
TEXTS = with_columns("target")
LABELLERS = [*with_columns("source", "tags"), *with_columns("source", "label")]
CHAINS = [name for name in LABELLERS if name.startswith("markov")]  # of generated rows
LABELLERS = [name for name in LABELLERS if name not in CHAINS]
