"""The decoders, by name. Adding one: a file here and a line in DECODERS."""

from regard.models.decoders.recurrent import RecurrentDecoder

DECODERS = {"recurrent": RecurrentDecoder}
