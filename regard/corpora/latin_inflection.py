"""How Latin words change their endings, from the forms a dictionary gives; and how English ones do."""

import re
from typing import Literal, get_args

Case = Literal["nominative", "genitive", "dative", "accusative", "ablative"]
Number = Literal["singular", "plural"]
Gender = Literal["m", "f", "n"]
Tense = Literal["present", "imperfect", "perfect"]
CASES: tuple[Case, ...] = get_args(Case)
NUMBERS: tuple[Number, ...] = get_args(Number)
GENDERS: tuple[Gender, ...] = get_args(Gender)
TENSES: tuple[Tense, ...] = get_args(Tense)

NounForms = dict[tuple[Case, Number], str]
AdjectiveForms = dict[tuple[Gender, Case, Number], str]
VerbForms = dict[tuple[Tense, Number], str]

# nominative genitive dative accusative ablative, first singular then plural; "=" stands for the nominative as it is
ENDINGS: dict[str, str] = {
    "1": "= ae ae am a  ae arum is as is",
    "2": "= i o um o  i orum is os is",
    "2n": "= i o um o  a orum is a is",
    "3": "= is i em e  es um ibus es ibus",
    "3n": "= is i = e  a um ibus a ibus",
    "3i": "= is i em e  es ium ibus es ibus",
    "3 adjective": "= is i em i  es ium ibus es ibus",
    "3n adjective": "= is i = i  ia ium ibus ia ibus",
}
SLOTS = [(case, number) for number in NUMBERS for case in CASES]


def decline(nominative: str, stem: str, endings: str) -> NounForms:
    """servus, serv, 2 -> servus servi servo servum servo, servi servorum servis servos servis."""
    forms = (nominative if ending == "=" else stem + ending for ending in ENDINGS[endings].split())
    return dict(zip(SLOTS, forms, strict=True))


def declension(genitive: str) -> int:
    """1, 2 or 3, as the genitive singular ends."""
    return 1 if genitive.endswith("ae") else 2 if genitive.endswith("i") else 3


def decline_noun(nominative: str, genitive: str, gender: Gender, i_stem: bool = False) -> NounForms:
    number = declension(genitive)
    stem = genitive.removesuffix({1: "ae", 2: "i", 3: "is"}[number])
    neuter = "n" if gender == "n" and number > 1 else ""
    return decline(nominative, stem, f"{number}{neuter}{'i' if i_stem else ''}")


def decline_adjective(masculine: str, second: str) -> AdjectiveForms:
    """bonus bona, pulcher pulchra (nominatives) or fortis fortis, ingens ingentis (nominative, genitive)."""
    paradigms = first_second(masculine, second) if second.endswith("a") else third(masculine, second)
    return {(gender, *slot): form for gender, forms in paradigms.items() for slot, form in forms.items()}


def first_second(masculine: str, feminine: str) -> dict[Gender, NounForms]:
    stem = feminine.removesuffix("a")
    neuter = decline(stem + "um", stem, "2n")
    return {"m": decline(masculine, stem, "2"), "f": decline(feminine, stem, "1"), "n": neuter}


def third(nominative: str, genitive: str) -> dict[Gender, NounForms]:
    stem = genitive.removesuffix("is")
    common = decline(nominative, stem, "3 adjective")
    neuter = stem + "e" if nominative == genitive else nominative
    return {"m": common, "f": common, "n": decline(neuter, stem, "3n adjective")}


# (how the first person ends, how the infinitive ends): present singular, present plural, what comes before -bat
CONJUGATIONS: dict[tuple[str, str], tuple[str, str, str]] = {
    ("o", "are"): ("at", "ant", "a"),
    ("eo", "ere"): ("et", "ent", "e"),
    ("io", "ere"): ("it", "iunt", "ie"),
    ("io", "ire"): ("it", "iunt", "ie"),
    ("o", "ere"): ("it", "unt", "e"),
}


def conjugate(first: str, infinitive: str, perfect: str) -> VerbForms:
    """porto portare portavi -> portat portant, portabat portabant, portavit portaverunt. Perfect `-`: left out."""
    stem = infinitive[:-3]
    singular, plural, theme = CONJUGATIONS[first.removeprefix(stem), infinitive[-3:]]
    forms: VerbForms = {
        ("present", "singular"): stem + singular,
        ("present", "plural"): stem + plural,
        ("imperfect", "singular"): stem + theme + "bat",
        ("imperfect", "plural"): stem + theme + "bant",
    }
    if perfect != "-":
        forms["perfect", "singular"] = perfect[:-1] + "it"
        forms["perfect", "plural"] = perfect[:-1] + "erunt"
    return forms


PRONOUNS: dict[tuple[Case, Number], str] = {
    ("nominative", "singular"): "qui quae quod",
    ("accusative", "singular"): "quem quam quod",
    ("nominative", "plural"): "qui quae quae",
    ("accusative", "plural"): "quos quas quae",
}
RELATIVE: AdjectiveForms = {
    (gender, *slot): form for slot, forms in PRONOUNS.items() for gender, form in zip(GENDERS, forms.split(), strict=True)
}


def add_s(word: str) -> str:
    """slave slaves, city cities, teach teaches: plural of a noun, third person of a verb."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|sh|ch|x|o)$", word) else "s")


def add_ing(word: str) -> str:
    """carry carrying, give giving, see seeing, run running."""
    if re.search(r"[^e]e$", word):
        return word[:-1] + "ing"
    return doubled(word) + "ing"


def add_ed(word: str) -> str:
    """greet greeted, love loved, carry carried, beg begged."""
    if word.endswith("e"):
        return word + "d"
    return word[:-1] + "ied" if re.search(r"[^aeiou]y$", word) else doubled(word) + "ed"


def doubled(word: str) -> str:
    return word + word[-1] if re.fullmatch(r"[^aeiou]*[aeiou][bdgmnprt]", word) else word
