"""English words without their endings (Porter 1980), with the changes that NLTK's stemmer makes: ROUGE counts by it."""

from collections.abc import Callable, Mapping
from functools import lru_cache

Condition = Callable[[str], bool]  # of what is left of a word when the suffix is gone

IRREGULAR = {
    "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "innings": "inning", "outings": "outing",
    "cannings": "canning",
    **{word: word for word in ("sky", "news", "inning", "outing", "canning", "howe", "proceed", "exceed", "succeed")},
}  # fmt: skip


def kinds(word: str) -> str:
    """c for consonants, v for vowels; y is a vowel after a consonant."""
    found = ""
    for letter in word:
        found += "v" if letter in "aeiou" or (letter == "y" and found.endswith("c")) else "c"
    return found


def measure(stem: str) -> int:
    """m of [C](VC)^m[V]."""
    return kinds(stem).count("vc")


def ends_short(stem: str) -> bool:
    """*o: consonant, vowel, consonant other than w, x, y; or vowel and consonant and nothing else."""
    shape = kinds(stem)
    return (shape.endswith("cvc") and stem[-1] not in "wxy") or shape == "vc"


def first_rule(word: str, rules: Mapping[str, str], condition: Condition = lambda stem: True) -> str:
    """The first suffix that the word ends with is replaced if the condition holds of the rest, and no other is tried."""
    suffix = next((suffix for suffix in rules if word.endswith(suffix)), None)
    if suffix is None or not condition(word.removesuffix(suffix)):
        return word
    return word.removesuffix(suffix) + rules[suffix]


def plural(word: str) -> str:
    """Step 1a: ties -> tie, ponies -> poni, caresses -> caress, cats -> cat."""
    return first_rule(word, {"sses": "ss", "ies": "ie" if len(word) == 4 else "i", "ss": "ss", "s": ""})


def past(word: str) -> str:
    """Step 1b: -ied, -eed, -ed, -ing; what is left gets its e back, or loses its double consonant."""
    if word.endswith("ied"):
        return word.removesuffix("d") if len(word) == 4 else word.removesuffix("ed")
    if word.endswith("eed"):
        return first_rule(word, {"eed": "ee"}, lambda stem: measure(stem) > 0)
    stem = first_rule(word, {"ed": "", "ing": ""}, lambda stem: "v" in kinds(stem))
    if stem == word:
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if stem[-2:-1] == stem[-1] and kinds(stem).endswith("c"):
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if measure(stem) == 1 and ends_short(stem) else stem


def last_y(word: str) -> str:
    """Step 1c: y after a consonant that is not all."""
    return first_rule(word, {"y": "i"}, lambda stem: len(stem) > 1 and kinds(stem).endswith("c"))


TWICE = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "fulli": "ful",
}  # fmt: skip


def double_suffix(word: str) -> str:
    """Step 2. -alli comes before all others; of -logi the l counts as part of the stem."""
    if word.endswith("alli") and measure(word.removesuffix("alli")) > 0:
        return double_suffix(word.removesuffix("li"))
    if word.endswith("logi") and not word.endswith(tuple(TWICE)):
        return word.removesuffix("i") if measure(word.removesuffix("ogi")) > 0 else word
    return first_rule(word, TWICE, lambda stem: measure(stem) > 0)


ONCE = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
ENDINGS = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti", "ous",
    "ive", "ize",
)  # fmt: skip


def ending(word: str) -> str:
    """Step 4."""
    stem = first_rule(word, dict.fromkeys(ENDINGS, ""), lambda stem: measure(stem) > 1)
    return word if word.endswith("ion") and not stem.endswith(("s", "t")) else stem


def last_e(word: str) -> str:
    """Step 5: -e, and one of two l."""
    stem = word.removesuffix("e")
    if stem != word and (measure(stem) > 1 or (measure(stem) == 1 and not ends_short(stem))):
        word = stem
    return word[:-1] if word.endswith("ll") and measure(word[:-1]) > 1 else word


@lru_cache(1 << 16)
def stemmed(word: str) -> str:
    """Of a word in lower case; one or two letters stay as they are."""
    if word in IRREGULAR or len(word) <= 2:
        return IRREGULAR.get(word, word)
    for step in (plural, past, last_y, double_suffix):
        word = step(word)
    return last_e(ending(first_rule(word, ONCE, lambda stem: measure(stem) > 0)))
