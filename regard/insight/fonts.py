"""Fonts for the characters of a picture: which are installed, which characters none of them has, and what to install."""

import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

PREFERRED = (  # the first ones installed are asked in turn for each character
    *("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei"),
    *("Noto Sans", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Emoji", "Arial Unicode MS"),
)
NO_FONT = "Last Resort"  # matplotlib's own, whose every character is a box
# Debian's packages, by the first word of a character's Unicode name
PACKAGES = dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC", "BOPOMOFO"), "fonts-noto-cjk")
OTHERS = "fonts-noto-core"


@cache
def installed() -> dict[str, str]:
    """The file of each font that matplotlib can use, the preferred ones first."""
    from matplotlib.font_manager import fontManager

    found = {entry.name: entry.fname for entry in fontManager.ttflist if not entry.name.startswith(NO_FONT)}
    first = {name: found[name] for name in PREFERRED if name in found}
    return {**first, **found}


@cache
def characters_of(path: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    return frozenset(get_font(path).get_charmap())


def fonts_for(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The fonts to draw these texts with, and the characters that none of those installed has."""
    wanted = {ord(one) for text in texts for one in text if is_drawn(one)}
    chosen = []
    for name, path in installed().items():
        if wanted & characters_of(path):
            chosen.append(name)
            wanted -= characters_of(path)
    return chosen or list(PREFERRED[:1]), sorted(map(chr, wanted))


def is_drawn(character: str) -> bool:
    """Spaces, joiners and variation selectors need no glyph."""
    selector = unicodedata.name(character, "").startswith("VARIATION SELECTOR")
    return not character.isspace() and unicodedata.category(character) != "Cf" and not selector


@contextmanager
def boxes_untold() -> Iterator[None]:
    """While matplotlib draws: it warns of each glyph that no font has, `advice` tells of all at once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        warnings.filterwarnings("ignore", message=".*does not support .* natively.*")
        yield


def advice(missing: Iterable[str]) -> str | None:
    """What to say of characters that are drawn as boxes; nothing where there are none."""
    unknown = list(missing)
    if not unknown:
        return None
    packages = dict.fromkeys(PACKAGES.get(unicodedata.name(one, "").split("-")[0].split(" ")[0], OTHERS) for one in unknown)
    named = [f"\N{DOTTED CIRCLE}{one}" if unicodedata.combining(one) else one for one in unknown[:20]]  # marks need a letter
    shown = " ".join(named) + (f" and {len(unknown) - 20} more" if len(unknown) > 20 else "")
    return (
        f"no installed font has {shown}: drawn as boxes; on Debian and Ubuntu: apt install {' '.join(packages)}, "
        "then try again (SVG and HTML use the fonts of whoever looks at them)"
    )
