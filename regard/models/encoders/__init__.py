"""The encoders, by name. Adding one: a file here and a line in ENCODERS."""

from regard.models.encoders.recurrent import RecurrentEncoder

ENCODERS = {"recurrent": RecurrentEncoder}
