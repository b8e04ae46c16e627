"""The lecture's column of training costs (lecture 001, after Vaswani et al. 2017, table 2), for the recipes that are its rows.

There an operation is whatever a GPU could have done meanwhile: the time of training, times the number of GPUs, times what one
sustains. Ours are the products that training needs.
"""

from typing import NamedTuple

SUSTAINED = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}  # operations a second in float32, as the paper has it


class Trained(NamedTuple):
    gpus: int
    kind: str
    days: float

    @property
    def operations(self) -> float:
        return self.gpus * SUSTAINED[self.kind] * self.days * 86_400


class Row(NamedTuple):
    """What the table says of a system; for the Transformers also the time and GPUs that give it (Vaswani et al. 2017)."""

    system: str
    german: float | None = None  # English to German
    french: float | None = None
    german_by: Trained | None = None
    french_by: Trained | None = None


ROWS: dict[str, Row] = {
    "bytenet2016": Row("ByteNet"),
    "deepatt2016": Row("Deep-Att + PosUnk", french=1.0e20),
    "gnmt2016": Row("GNMT + RL", 2.3e19, 1.4e20),
    "convs2s2017": Row("ConvS2S", 9.6e18, 1.5e20),
    "shazeer2017-moe": Row("MoE", 2.0e19, 1.2e20),
    "vaswani2017-base": Row("Transformer (base model)", 3.3e18, german_by=Trained(8, "P100", 0.5)),
    "vaswani2017-big": Row("Transformer (big)", 2.3e19, german_by=Trained(8, "P100", 3.5)),
}
