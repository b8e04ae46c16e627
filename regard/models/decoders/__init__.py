"""The decoders, by name. Adding one: a file here and a line in DECODERS."""

from typing import Any

from regard.models.decoders.bytenet import ByteNetDecoder
from regard.models.decoders.convolutional import ConvolutionalDecoder
from regard.models.decoders.recurrent import RecurrentDecoder
from regard.models.decoders.transformer import TransformerDecoder

DECODERS: dict[str, Any] = {
    "recurrent": RecurrentDecoder,
    "convolutional": ConvolutionalDecoder,
    "bytenet": ByteNetDecoder,
    "transformer": TransformerDecoder,
}
