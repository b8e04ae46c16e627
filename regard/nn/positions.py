"""What a model without recurrence knows of places. One class per kind; POSITIONS names them.

Some kinds are part of what is read (`embed`), some turn queries and keys (`turn`), some add to scores (`bias`).
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import UserError
from regard.nn.kernels.layers.words import entered
from regard.nn.linear import Linear

Words = Float[Tensor, "batch time size"]
Places = Int[Tensor, "#batch time"]
Heads = Float[Tensor, "batch heads time part"]
Bias = Float[Tensor, "#batch heads time source"]
JOINS = ("added", "concatenated")


class Positions(nn.Module):
    """Nothing: a sentence is a bag of words, but for what a causal mask gives away."""

    absolute: ClassVar[bool] = False  # whether it is part of what is read
    turns: ClassVar[bool] = False  # whether queries and keys are turned
    relative: ClassVar[bool] = False  # whether pairs of places count

    def __init__(
        self, size: int, heads: int = 1, part: int | None = None, *, join: str = "added", longest: int = 512,
        distance: int = 32, causal: bool = False,
    ) -> None:  # fmt: skip
        """`part`: the size of a head's queries; `distance`: beyond it all places are equally far."""
        super().__init__()
        self.size, self.heads, self.part = size, heads, part or size // heads
        self.longest, self.distance, self.causal = longest, distance, causal
        self.merge = Linear(size + self.width, size) if self.absolute and join == "concatenated" else None
        self.build()

    def build(self) -> None:
        """Its parameters."""

    @property
    def width(self) -> int:
        """Elements that describe one place."""
        return self.size

    @property
    def known_places(self) -> int | None:
        """How many it knows; None: all of them."""
        return None

    def check(self, length: int) -> None:
        """UserError if there are places that it does not know."""

    def encode(self, places: Places) -> Float[Tensor, "#batch time width"]:
        """The vectors of places."""
        raise NotImplementedError

    def embed(self, words: Words, places: Places) -> Words:
        """Words that know where they stand: w + p, or W [w; p] where they are concatenated."""
        return self.enter(words, places, 1.0, 0.0)

    def enter(self, words: Words, places: Places, scale: float, rate: float) -> Words:
        """The same of words that are scaled, thinned out by dropout at this rate."""
        found = self.encode(places) if self.absolute else None
        if found is None or self.merge is None:
            whole = None if found is None else found.expand(*found.shape[:2], self.size)
            return entered(words, whole, scale=scale, rate=rate)
        both = torch.cat([words * scale, found.expand(*words.shape[:2], -1).to(words.dtype)], dim=-1)
        return entered(self.merge(both), None, scale=1.0, rate=rate)

    def turn(self, vectors: Heads, places: Places) -> Heads:
        """Queries or keys that know where they stand."""
        return vectors

    def bias(self, queries: Heads, places: Places, source: int) -> Bias | None:
        """What is added to the score of each query with the keys at places 0 to source - 1."""
        return None


class Sinusoid(Positions):
    """p_2i = sin(t / 10000^(2i/d)), p_2i+1 = cos(the same)  (Vaswani et al. 2017, section 3.5)."""

    absolute = True

    def encode(self, places: Places) -> Float[Tensor, "#batch time width"]:
        angles = places[..., None] * frequencies(self.size, places.device)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., : self.size].float()


class SinusoidHalves(Sinusoid):
    """The same, all sines before all cosines: as Marian lays them (Junczys-Dowmunt et al. 2018)."""

    def encode(self, places: Places) -> Float[Tensor, "#batch time width"]:
        angles = places[..., None] * frequencies(self.size, places.device)
        return torch.cat([angles.sin(), angles[..., : self.size // 2].cos()], dim=-1).float()


class Learned(Positions):
    """A vector for each place, up to `longest`  (Gehring et al. 2017)."""

    absolute = True

    def build(self) -> None:
        self.vectors = nn.Parameter(torch.randn(self.longest, self.size) * self.size**-0.5)

    @property
    def known_places(self) -> int | None:
        return self.longest

    def check(self, length: int) -> None:
        if length > self.longest:
            raise UserError(
                f"learned positions know {self.longest} places, and a sequence has {length} tokens: raise `longest` of the "
                "encoder or decoder in the recipe's model section, or take positions without a limit, such as 'sinusoid'"
            )

    def encode(self, places: Places) -> Float[Tensor, "#batch time width"]:
        return self.vectors[places]


class Index(Positions):
    """t itself, in hundreds: the naive way, which generalises to no other length."""

    absolute = True

    @property
    def width(self) -> int:
        return 1

    def encode(self, places: Places) -> Float[Tensor, "#batch time width"]:
        return places[..., None] / 100


class Shaw(Positions):
    """q_i · a_{j-i}, a vector for each distance up to `distance`, shared by heads and layers  (Shaw et al. 2018, eq. 4).

    What the paper adds to values as well makes no difference in its own table 2, and is left out.
    """

    relative = True

    def build(self) -> None:
        self.vectors = nn.Parameter(torch.randn(2 * self.distance + 1, self.part) * self.part**-0.5)

    def bias(self, queries: Heads, places: Places, source: int) -> Bias | None:
        """Scaled by 1/√d as dot products are."""
        each = queries @ (self.vectors.to(queries.dtype) / math.sqrt(self.part)).T
        steps = apart(places, source).clamp(-self.distance, self.distance) + self.distance
        index = steps[:, None].expand(*queries.shape[:2], -1, -1)
        return each.gather(-1, index)


class Buckets(Positions):
    """A value per head for each bucket of distances, which grow like powers  (Raffel et al. 2020, T5)."""

    relative = True

    COUNT = 32

    def build(self) -> None:
        self.numbers = nn.Parameter(torch.randn(self.COUNT, self.heads) * 0.1)

    def bias(self, queries: Heads, places: Places, source: int) -> Bias | None:
        found = self.numbers[bucket(apart(places, source), self.COUNT, self.distance, both=not self.causal)]
        return found.permute(0, 3, 1, 2).to(queries.dtype)


class Rotary(Positions):
    """Pairs of elements turned by t / 10000^(2i/d): q_i · k_j then knows i - j alone  (Su et al. 2021)."""

    relative = True
    turns = True

    def build(self) -> None:
        if self.part % 2:
            raise UserError(f"rotary positions turn pairs of numbers, and a head has {self.part}: take an even number a head")

    def turn(self, vectors: Heads, places: Places) -> Heads:
        angles = (places[..., None] * frequencies(vectors.shape[-1], places.device))[:, None]
        sin, cos = angles.sin().to(vectors.dtype), angles.cos().to(vectors.dtype)
        even, odd = vectors[..., 0::2], vectors[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class Linearly(Positions):
    """-m |i - j|, a slope m for each head, none of them learned  (Press et al. 2022, ALiBi)."""

    relative = True

    def bias(self, queries: Heads, places: Places, source: int) -> Bias | None:
        steps = torch.arange(1, self.heads + 1, device=places.device)
        slopes = torch.exp2(-8 * steps / self.heads)
        return (-slopes[:, None, None] * apart(places, source).abs()[:, None]).to(queries.dtype)


def frequencies(size: int, device: torch.device) -> Float[Tensor, "half"]:
    """1 / 10000^(2i/d), in float64: float32 knows an angle of 11,000 to a thousandth."""
    return 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64, device=device) / size)


def apart(places: Places, source: int) -> Int[Tensor, "#batch time source"]:
    """j - i"""
    return torch.arange(source, device=places.device) - places[..., None]


def bucket(steps: Int[Tensor, "*any"], count: int, distance: int, both: bool) -> Int[Tensor, "*any"]:
    """Half of the buckets hold one distance each, the rest grow like powers up to `distance`; half of all for each side if
    keys lie on `both`."""
    side = torch.zeros_like(steps)
    if both:
        count //= 2
        side = (steps > 0) * count
    far = steps.abs() if both else (-steps).clamp(min=0)
    exact = count // 2
    ratio = (far.clamp(min=1) / exact).log() / math.log(max(distance, exact + 1) / exact)
    grown = (exact + ratio * (count - exact)).long().clamp(max=count - 1)
    return side + torch.where(far < exact, far, grown)


POSITIONS: dict[str, type[Positions]] = {
    "sinusoid": Sinusoid,
    "sinusoid_halves": SinusoidHalves,
    "learned": Learned,
    "index": Index,
    "shaw": Shaw,
    "buckets": Buckets,
    "rotary": Rotary,
    "alibi": Linearly,
    "none": Positions,
}
