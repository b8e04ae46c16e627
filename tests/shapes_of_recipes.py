"""Which recipes have which columns: laws for models that write outputs do not hold for taggers and language models."""

from regard.models import configure
from regard.recipe import built_in, read_values


def with_columns(*names):
    """Of those recipes that come with regard, those whose model has these columns and no others."""
    return [name for name in built_in() if set(configure(read_values(name)["model"]).columns) == set(names)]
