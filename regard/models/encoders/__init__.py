"""The encoders, by name. Adding one: a file here and a line in ENCODERS."""

from typing import Any

from regard.models.encoders.bytenet import ByteNetEncoder
from regard.models.encoders.convolutional import ConvolutionalEncoder
from regard.models.encoders.identity import IdentityEncoder
from regard.models.encoders.recurrent import RecurrentEncoder
from regard.models.encoders.transformer import TransformerEncoder

ENCODERS: dict[str, Any] = {
    "recurrent": RecurrentEncoder,
    "convolutional": ConvolutionalEncoder,
    "bytenet": ByteNetEncoder,
    "transformer": TransformerEncoder,
    "identity": IdentityEncoder,
}
