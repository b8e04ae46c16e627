"""The built-in recipes by the shape of their model."""

from regard.recipe import built_in, read_values


def recipes(*kinds):
    return [name for name in built_in() if read_values(name)["model"].get("kind", "sequence_to_sequence") in kinds]


WRITERS = recipes("sequence_to_sequence", "decoder_alone")  # a target for a source
LABELLERS = recipes("tagger", "classifier")
