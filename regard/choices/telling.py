"""What was found in the data and chosen for it, in words."""

from regard.choices import Choice
from regard.data.remarks import remarks
from regard.data.survey import ColumnFacts, Survey
from regard.training.display import Display


def survey_lines(found: Survey) -> list[str]:
    if found.alone:
        return [f"{found.rows:,} lines, {found.letters:,} characters, and no other column beside them"]
    looked = "" if found.looked_at == found.rows else f", {found.looked_at:,} of them looked into"
    return [
        f"{found.rows:,} rows{looked}",
        *(f"{name}: {column_line(facts)}" for name, facts in found.columns.items()),
        f"a target has {found.ratio.mean:.2f} characters for one of its source (99 of 100: up to {found.ratio.most:.2f}; "
        f"the most: {found.ratio.longest:.2f})",
        f"{found.copied_words:.0%} of the target's words and {found.copied_letters:.0%} of its letters stand in the source",
        *(f"note: {remark}" for remark in remarks(found)),
    ]


def column_line(facts: ColumnFacts) -> str:
    told = [f"{name.lower()} {part:.0%}" for name, part in facts.scripts.items() if part >= 0.005][:2]
    scripts = ", ".join(told) or "no letters"
    white = f", white space of its own in {facts.white:.0%} of the rows" if facts.white > 0.01 else ""
    return (
        f"{facts.characters.mean:.1f} characters (up to {facts.characters.longest:,.0f}) in {facts.words.mean:.1f} words; "
        f"{facts.vocabulary:,} different words, {facts.new_words:.1%} new in unseen rows; {facts.alphabet} different "
        f"characters, {scripts}{white}"
    )


def choice_lines(chosen: Choice) -> list[str]:
    """Each line can be typed: what it chose are overrides."""
    lines = ["chosen (an override KEY=VALUE chooses otherwise):"]
    for rule, values, reason in chosen.told:
        lines += [f"  {rule}: {reason}" if reason else f"  {rule}", f"      {values}"]
    return lines


def tell_choice(chosen: Choice) -> None:
    """Before the first step, on standard error."""
    display = Display(0, 0, None, True)
    for line in (*survey_lines(chosen.found), *choice_lines(chosen)):
        display.say(line)
