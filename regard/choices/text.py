"""Choices about text: how it is cut into tokens, how long it may be, how outputs are judged."""

import math
from typing import Any

from regard.choices.case import Case, Values
from regard.data.survey import ColumnFacts, Survey


def symbols(facts: ColumnFacts) -> bool:
    """Words from a closed set: phonemes, commands, labels, letters with spaces between them."""
    closed = facts.new_words <= 0.005 and facts.vocabulary <= 3000
    return (closed and not many_numbers(facts)) or letters(facts)


def many_numbers(facts: ColumnFacts) -> bool:
    """More than can be learned one by one: their digits mean something."""
    return facts.numbered > 0.5 and facts.vocabulary > 200


def letters(facts: ColumnFacts) -> bool:
    """With spaces between them; phonemes too. Numbers are as short, and always new."""
    short = facts.words.mean >= 1.5 and facts.letters_in_word < 2.5
    return short and facts.new_words <= 0.05 and not many_numbers(facts)


def spelled(facts: ColumnFacts) -> bool:
    """Short strings in which each character counts: words, names, codes, dates, numbers; or a script without spaces."""
    few = facts.words.mean <= 3.5 and facts.characters.mean <= 40
    numbers = many_numbers(facts) and facts.characters.mean <= 60
    return few or numbers or (facts.unspaced > 0.3 and facts.characters.mean <= 150)


def strand(facts: ColumnFacts) -> bool:
    """Hardly more than one long word, whose parts mean something: a molecule, DNA, a position of chess."""
    return facts.longest_word > 0.6 and facts.unspaced < 0.3 and facts.characters.mean <= STRAND


STRAND = 500  # characters; more steps than that are too slow to read one by one


def code(case: Case) -> bool:
    """Names between signs, as programs and records have them, and many of the names stand in the source; even where spaces cut
    it into a closed set of words, such as `name):`, of which the names are to be copied."""
    target = case.found.target
    formal = target.signs >= 0.1 or target.operators >= 0.03
    return not letters(target) and not spelled(target) and formal and case.found.copied_names >= 0.35


def subword_size(case: Case, column: ColumnFacts) -> int:
    """Larger vocabularies for more text; never fewer pieces than twice the letters."""
    words = case.found.rows * column.characters.mean / 5
    by_text = next(size for most, size in SUBWORDS if words <= most)
    return max(by_text, 2 * column.alphabet + 300)


# words of text, and the pieces to cut them into
SUBWORDS = [(20_000, 500), (80_000, 1000), (250_000, 2000), (700_000, 4000), (10_000_000, 8000), (math.inf, 16000)]


def tokenizer(case: Case) -> Values:
    """For each column one of its own; one vocabulary for both where both are cut into subwords of one script."""
    if "data.tokenizer" in case.chosen:
        return {}  # the user's own
    if code(case):  # names that come once are unknown: so it learns to copy them
        return {"data.tokenizer": {"kind": "code", "size": 8000, "min_count": 2}}
    found: dict[str, dict[str, Any]] = {}
    for name, facts in case.found.columns.items():
        if symbols(facts):
            found[name] = {"kind": "word", "size": 2 * facts.vocabulary + 100}
        elif spelled(facts) or strand(facts) or (name == "source" and written_from(case)):
            found[name] = {"kind": "character", "size": 2 * facts.alphabet + 100}
        else:
            found[name] = {"kind": "bpe", "size": subword_size(case, facts)}
    if all(one["kind"] == "bpe" for one in found.values()) and one_script(case.found):
        return {"data.tokenizer": {"kind": "bpe", "size": max(one["size"] for one in found.values()), "shared": True}}
    return {f"data.fields.{name}": {"kind": "text", "tokenizer": one} for name, one in found.items()}


def written_from(case: Case) -> bool:
    """Whether much of a target that is spelled stands in its source: what is to be copied, such as an identifier, is then of
    the same units on both sides."""
    source, target = case.found.source, case.found.target
    return spelled(target) and not symbols(target) and case.found.copied_letters >= 0.35 and source.characters.mean <= 150


def one_script(found: Survey) -> bool:
    first, second = (next(iter(found.columns[name].scripts), None) for name in ("source", "target"))
    return first == second


def tell_tokenizer(case: Case) -> str:
    told = []
    for name, facts in case.found.columns.items():
        why = {
            "words": f"symbols that spaces separate, {facts.vocabulary:,} of them, {facts.new_words:.1%} new in rows not seen",
            "characters": f"{facts.characters.mean:.0f} characters in {facts.words.mean:.1f} words per row",
            "names and signs": f"{facts.signs:.0%} signs, {case.found.copied_names:.0%} of the names are in the source",
            "subwords": f"sentences of {facts.words.mean:.0f} words, {facts.new_words:.1%} of them new in rows not seen",
        }[case.unit(name)]
        told.append(f"{name} as {case.unit(name)} ({why})")
    return "; ".join(told)


BAD = 0.1  # of all rows


def bad_rows(case: Case) -> Values:
    """Few rows that cannot be used are left out, unless they show that the others may not belong together."""
    found = case.found
    few = 0 < found.bad <= BAD * (found.rows + found.bad) and not found.shifted
    return {"data.on_bad_row": "skip"} if few else {}


def tell_bad_rows(case: Case) -> str:
    return f"{case.found.bad:,} rows that cannot be used are left out, and listed in bad_rows.txt of the run"


def rows_fit(case: Case) -> Values:
    """No row of the survey is too long to be trained on or to be written."""
    longest = max(longest_tokens(case, name) for name in case.found.columns)
    return {"data.max_length": min(max(512, round_up(1.5 * longest)), 8192)}


def longest_tokens(case: Case, column: str) -> float:
    facts = case.found.columns[column]
    unit = case.unit(column)
    return (facts.words if unit == "words" else facts.characters).longest / (1 if unit in ("words", "characters") else 2)


def round_up(number: float) -> int:
    return math.ceil(number / 16) * 16


def decoding(case: Case) -> Values:
    """Twice the longest output seen beside its source. Units of the two sides may differ, so their lengths are compared too."""
    pair = case.found.longest_ratio
    units = case.unit("source"), case.unit("target")
    if units == ("words", "words"):
        ratio = pair["words"]
    elif "words" not in units:
        ratio = pair["characters"] * (1 if units[0] == "characters" else 4 if units[1] == "characters" else 2)
    else:
        source, target = (case.found.columns[name] for name in ("source", "target"))
        per_word = max(source.letters_in_word + 1, target.letters_in_word + 1)
        ratio = pair["characters"] * (per_word if units[0] == "words" else 1)
    longest = longest_tokens(case, "target")
    return {
        "decoding.max_ratio": float(min(max(3, math.ceil(2 * ratio)), 1000)),
        "decoding.max_length": max(64, round_up(1.5 * longest + 10)),
        "decoding.beam": 5,
    }


def metric(case: Case) -> Values:
    """One that moves from the first validation on; ties are broken by the loss."""
    target = case.found.target
    if target.unspaced > 0.3 and target.characters.mean > 8:
        return {
            "training.validate_by": "bleu_zh"
            if set(target.scripts) & {"CJK"} and "HIRAGANA" not in target.scripts
            else "bleu_char"
        }
    if case.unit("target") == "words":
        return {"training.validate_by": "wer"}
    if case.unit("target") == "characters" or target.characters.mean < 12:
        return {"training.validate_by": "cer"}
    return {"training.validate_by": "bleu" if target.words.mean >= 4 else "chrf"}
