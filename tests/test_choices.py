"""What is chosen for files of pairs: each rule with data that call for it, and data that just do not."""

import json
import random

import numpy as np
import pytest

from regard import preflight
from regard.choices import CHOICES, Machine, choose_recipe
from regard.choices.tasks import TASKS
from regard.choices.telling import survey_lines
from regard.data import survey as surveys
from regard.data.remarks import REMARKS, remarks
from regard.data.store import held_out
from regard.data.survey import survey
from regard.drafting import Files, draft, in_time
from regard.errors import DataError, UserError
from regard.models import configure
from regard.overrides import override
from regard.planning import minutes
from regard.recipe import Pairs, Recipe, parse

LAPTOP, GPU = Machine(gpu=False, threads=2), Machine(gpu=True, threads=16)
WORDS = [f"{a}{b}{c}" for a in "bcdfgklmnp" for b in "aeiou" for c in "rstvwxz"]


def write(path, rows):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    return {"pairs": str(path)}


def drawn(rows, make, seed=1):
    chance = random.Random(seed)
    return [make(chance) for _ in range(rows)]


def sentence(chance, length=9):
    """Words of an open vocabulary: there is always a new one."""
    return " ".join(chance.choice(WORDS) + chance.choice(WORDS) for _ in range(length))


def sentences(chance):
    return sentence(chance), sentence(chance)


def spelling(chance):
    word = chance.choice(WORDS) + chance.choice(WORDS)
    return word, " ".join(word.upper())


def stems(chance):
    word = chance.choice(WORDS) + chance.choice(WORDS)
    return word, word + "ed"


def commands(chance):
    length = chance.randint(2, 6)
    return " ".join(chance.choice(["walk", "jump", "look", "run"]) for _ in range(length)), "GO " * length + "END"


def chosen(tmp_path, rows, machine=LAPTOP):
    return choose_recipe(write(tmp_path / "pairs.tsv", rows), machine)


def kinds(choice):
    data = choice.values["data"]
    own = {name: field["tokenizer"]["kind"] for name, field in data.get("fields", {}).items()}
    return own or data["tokenizer"]["kind"]


BASES = str.maketrans("ACGT", "TGCA")
# what calls for a choice, and how it shows
CASES = {
    "characters in, symbols out": (spelling, 300, lambda it: kinds(it) == {"source": "character", "target": "word"}),
    "closed vocabularies": (commands, 300, lambda it: kinds(it) == {"source": "word", "target": "word"}),
    "sentences": (sentences, 300, lambda it: kinds(it) == "bpe" and it.values["data"]["tokenizer"]["shared"]),
    "labels that are numbers to be counted out are no labels": (
        lambda chance: (sentence(chance), str(chance.randint(1, 25))), 300,
        lambda it: kinds(it) == {"source": "bpe", "target": "word"},
    ),
    "code: names and signs": (
        lambda chance: (one := sentence(chance, 5), f"{one.replace(' ', '.')} = {chance.choice(WORDS)}()"), 300,
        lambda it: kinds(it) == "code",
    ),
    "names of code are hidden, so that copying is learned": (
        lambda chance: (one := sentence(chance, 5), f"{one.replace(' ', '.')} = {chance.choice(WORDS)}()"), 600,
        lambda it: (it.values["training"]["unknown_words"], it.values["training"]["label_smoothing"]) == (0.05, 0.0),
    ),
    "words that are copied are not": (
        lambda chance: (one := sentence(chance, 12), f"{one} {sentence(chance, 1)}"), 3200,
        lambda it: it.values["model"]["decoder"]["copy_words"] == "gated" and "unknown_words" not in it.values["training"],
    ),
    "as many signs, but names that the source has not": (
        lambda chance: (sentence(chance, 5), " = ".join(sentence(chance, 3).replace(" ", ".") for _ in range(2)) + "()"), 300,
        lambda it: kinds(it) == "bpe",
    ),
    "code of a closed set of names": (
        lambda chance: (f"load {(one := chance.choice(WORDS[:9]))} and {(two := chance.choice(WORDS[:9]))} then go",
                        f"def load({one}, {two}): go({one})"), 300,
        lambda it: kinds(it) == "code",
    ),
    "queries, of which few signs are no letters": (
        lambda chance: (one := sentence(chance, 4), "SELECT MAX({}) FROM {} WHERE {} > {}".format(*one.split())), 300,
        lambda it: kinds(it) == "code",
    ),
    "the same with a point": (
        lambda chance: (one := sentence(chance, 4), "SELECT {} FROM {} WHERE {} IS {}.".format(*one.split())), 300,
        lambda it: kinds(it) == "bpe",
    ),
    "the same with other names": (
        lambda chance: (f"load {chance.choice(WORDS[:9])} and {chance.choice(WORDS[:9])} then go",
                        f"def {chance.choice(WORDS[9:18])} ({chance.choice(WORDS[9:18])}): run it"), 300,
        lambda it: kinds(it) == {"source": "word", "target": "word"},
    ),
    "letters between signs": (
        lambda chance: (one := " ".join(chance.choice("abcdefgh") for _ in range(9)), one.replace("a", "( )")), 300,
        lambda it: kinds(it) == {"source": "word", "target": "word"},
    ),
    "names of the source, but few signs": (
        lambda chance: (one := sentence(chance, 12), f"{one} ( )"), 300, lambda it: kinds(it) == "bpe",
    ),
    "one word of an open set is spelled": (
        lambda chance: (sentence(chance), chance.choice(WORDS) + chance.choice(WORDS)), 300,
        lambda it: kinds(it) == {"source": "bpe", "target": "character"},
    ),
    "one long word is spelled": (
        lambda chance: (one := "".join(chance.choices("ACGT", k=chance.randint(60, 300))), one.translate(BASES)), 300,
        lambda it: kinds(it) == {"source": "character", "target": "character"},
    ),
    "and so it is with short ones after it": (
        lambda chance: (f"{''.join(chance.choices('kqrbnp/8', k=60))} w KQkq - 0 1", sentence(chance)), 300,
        lambda it: kinds(it) == {"source": "character", "target": "bpe"},
    ),
    "long words among others are not": (
        lambda chance: (f"{''.join(chance.choices('kqrbnp/8', k=60))} {sentence(chance, 7)}", sentence(chance)), 300,
        lambda it: kinds(it) == "bpe",
    ),
    "nor are very long ones": (
        lambda chance: ("".join(chance.choices("ACGT", k=600)), sentence(chance)), 40,
        lambda it: kinds(it) == "bpe",
    ),
    "numbers are spelled where there are many of them": (
        lambda chance: (f"{(one := chance.randint(1, 250))} km {(two := chance.randint(1, 250))} m", f"{two} m {one} km"), 3000,
        lambda it: kinds(it) == {"source": "character", "target": "character"},
    ),
    "few numbers are symbols": (
        lambda chance: (f"{(one := chance.randint(1, 180))} km {(two := chance.randint(1, 180))} m", f"{two} m {one} km"), 3000,
        lambda it: kinds(it) == {"source": "word", "target": "word"},
    ),
    "numbers among more words are not spelled": (
        lambda chance: (f"{chance.randint(1, 400)} {sentence(chance)}", sentence(chance)), 3000, lambda it: kinds(it) == "bpe",
    ),
    "identifiers are spelled on both sides": (
        lambda chance: (f"the number of {sentence(chance, 3)} is {(one := str(chance.getrandbits(40)))}", one), 300,
        lambda it: kinds(it) == {"source": "character", "target": "character"},
    ),
    "what does not stand in the source is spelled alone": (
        lambda chance: (f"the number of {sentence(chance, 3)} is {chance.getrandbits(40)}", str(chance.getrandbits(40))), 300,
        lambda it: kinds(it) == {"source": "bpe", "target": "character"},
    ),
    "copying": (stems, 300, lambda it: it.values["model"]["decoder"].get("copy_words") == "gated"),
    "made-up stems": (stems, 300, lambda it: it.values["training"].get("made_up_stems") == 0.66),
    "no made-up stems where there are more": (stems, 600, lambda it: "made_up_stems" not in it.values["training"]),
    "copying of subwords, however many rows": (
        lambda chance: (one := sentence(chance), f"f ( {one} )"), 3200,
        lambda it: it.values["model"]["decoder"].get("copy_words") == "gated",
    ),
    "no copying of other subwords": (sentences, 3200, lambda it: "copy_words" not in it.values["model"]["decoder"]),
    "no copying of other letters": (spelling, 300, lambda it: "copy_words" not in it.values["model"]["decoder"]),
    "no copying with many rows": (stems, 3200, lambda it: "copy_words" not in it.values["model"]["decoder"]),
    "BLEU for sentences": (sentences, 300, lambda it: it.values["training"]["validate_by"] == "bleu"),
    "WER for symbols": (spelling, 300, lambda it: it.values["training"]["validate_by"] == "wer"),
    "CER for words": (stems, 300, lambda it: it.values["training"]["validate_by"] == "cer"),
    "chrF for short code": (
        lambda chance: (one := sentence(chance), f"sum({one.replace(' ', '.')}) + 7"), 300,
        lambda it: it.values["training"]["validate_by"] == "chrf",
    ),
    "small batches for few rows": (spelling, 300, lambda it: it.values["data"]["batch_tokens"] == 256),
    "a larger model for more rows": (stems, 10_100, lambda it: it.values["model"]["encoder"]["hidden_size"] == 256),
    "a small model for few rows": (stems, 9_900, lambda it: it.values["model"]["encoder"]["hidden_size"] == 128),
    "small batches of letters": (spelling, 9_900, lambda it: it.values["data"]["batch_tokens"] == 256),
    "larger ones of subwords": (sentences, 3200, lambda it: it.values["data"]["batch_tokens"] == 1024),
    "updates of letters that take minutes": (spelling, 9_900, lambda it: it.values["training"]["updates"] == 8_000),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "hidden", "tokens"), [(2_900, 128, 256), (9_900, 256, 1024)])
def test_a_gpu_takes_more_letters_at_a_time(rows, hidden, tokens, tmp_path):
    values = chosen(tmp_path, drawn(rows, spelling), GPU).values
    assert (values["model"]["encoder"]["hidden_size"], values["data"]["batch_tokens"]) == (hidden, tokens)


@pytest.mark.parametrize("name", CASES)
def test_what_data_call_for(name, tmp_path):
    make, rows, holds = CASES[name]
    assert holds(chosen(tmp_path, drawn(rows, make)))


@pytest.mark.parametrize(
    ("rows", "machine", "kind"), [(10_000, GPU, "transformer"), (9_990, GPU, "recurrent"), (10_000, LAPTOP, "recurrent")]
)
def test_a_transformer_wants_rows_and_a_gpu(rows, machine, kind, tmp_path):
    values = chosen(tmp_path, drawn(rows, sentences), machine).values
    assert values["model"]["encoder"]["kind"] == kind
    assert values["training"].get("precision", "float32") == ("bfloat16" if kind == "transformer" else "float32")


@pytest.mark.parametrize("make", [spelling, stems, commands, sentences])
@pytest.mark.parametrize("rows", [3, 40, 700])
@pytest.mark.parametrize("machine", [LAPTOP, GPU])
def test_every_choice_is_a_recipe(make, rows, machine, tmp_path):
    recipe = parse(Recipe, chosen(tmp_path, drawn(rows, make), machine).values)
    configure(recipe.model)


def test_the_same_files_give_the_same_recipe(tmp_path):
    rows = drawn(500, stems)
    assert chosen(tmp_path, rows).values == chosen(tmp_path, rows).values


@pytest.mark.parametrize(("most", "kind"), [(900, "character"), (9, "word")])
def test_short_words_that_are_always_new_are_no_letters(most, kind, tmp_path):
    """Of sixty rows of weights, numbers of up to three digits are mostly new, and nine digits are known."""

    def weight(chance):
        return f"{chance.randint(1, most)} kg {chance.randint(1, most)}", sentence(chance)

    assert kinds(chosen(tmp_path, drawn(60, weight)))["source"] == kind


def test_every_rule_says_what_made_us_write_it():
    assert all(rule.evidence for rule in CHOICES.values())


def test_long_targets_are_not_cut(tmp_path):
    values = chosen(tmp_path, [(f"{word}", "a " * 900 + "z") for word in WORDS]).values
    assert values["decoding"]["max_length"] > 900
    assert values["decoding"]["max_ratio"] * 4 + 10 > 900
    assert values["data"]["max_length"] > 901


@pytest.mark.parametrize("rows", [20, 1000, 3000])
def test_rows_that_are_held_out_are_never_looked_into(rows, tmp_path, monkeypatch):
    files = write(tmp_path / "pairs.tsv", [(f"s{line}", f"t{line}") for line in range(1, rows + 1)])
    seen = []
    facts = surveys.facts_of_pairs
    monkeypatch.setattr(surveys, "facts_of_pairs", lambda pairs: seen.extend(pairs) or facts(pairs))
    survey(parse(Pairs, files))
    aside = {f"s{line + 1}" for line in held_out(np.arange(1, rows + 1), None, 1).nonzero()[0]}
    assert seen
    assert aside
    assert not aside & {source for source, _ in seen}


def test_large_files_are_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(surveys, "SAMPLE", 50)
    files = write(tmp_path / "pairs.tsv", [(f"s{line}", f"t{line}") for line in range(1000)])
    found = survey(parse(Pairs, files))
    assert (found.rows, found.looked_at) == (1000, 50)


ODD = {
    "suspicious rows": lambda: [*drawn(60, stems), ("caf\u00c3\u00a9", "cafe")],
    "bad rows": lambda: [*drawn(60, stems), ("only", "")],
    "repeated rows": lambda: [("a", "b"), ("c", "d")] * 40,
    "one input, several outputs": lambda: [(f"{word}", f"{word}{number}") for word in WORDS[:60] for number in range(2)],
    "equal columns": lambda: [(word, word) for word in WORDS[:80]],
    "one target": lambda: [(word, "yes") for word in WORDS[:80]],
    "labels": lambda: drawn(300, lambda chance: (sentence(chance), chance.choice(["good", "bad"]))),
    "one label for nearly all": lambda: drawn(
        300, lambda chance: (sentence(chance), "ham" if chance.random() < 0.9 else "spam")
    ),
    "tags": lambda: drawn(300, lambda chance: (sentence(chance, 5), " ".join(chance.choice("NVD") for _ in range(5)))),
    "swapped columns": lambda: drawn(
        300, lambda chance: (f"{chance.choice(['good', 'bad'])}{' and so on' * 4}", sentence(chance))
    ),
    "numbers": lambda: drawn(300, lambda chance: (sentence(chance), str(chance.randint(1, 10**6)))),
    "few rows": lambda: drawn(20, stems),
}


@pytest.mark.parametrize("name", REMARKS)
def test_odd_data_are_remarked_on(name, tmp_path):
    found = survey(parse(Pairs, write(tmp_path / "pairs.tsv", ODD[name]())))
    assert REMARKS[name].holds(found)
    assert REMARKS[name].text(found) in remarks(found)


def test_good_data_are_not_remarked_on(tmp_path):
    assert remarks(survey(parse(Pairs, write(tmp_path / "pairs.tsv", drawn(300, spelling))))) == []


def test_labels_that_stand_first_are_nothing_odd(tmp_path):
    rows = drawn(300, lambda chance: (chance.choice(["good", "bad"]), sentence(chance)))
    assert remarks(survey(parse(Pairs, write(tmp_path / "pairs.tsv", rows)))) == []


def test_a_file_without_pairs(tmp_path):
    path = tmp_path / "text.tsv"
    path.write_text("just a line\nand another\n")
    with pytest.raises(DataError, match=r"no row can be used; bad rows: 2; the first: .*text\.tsv:1"):
        choose_recipe({"pairs": str(path)})


@pytest.mark.parametrize(("good", "bad", "usable"), [(7, 6, True), (6, 6, False)])
def test_a_file_whose_rows_are_mostly_bad_is_another_kind_of_file(good, bad, usable, tmp_path):
    path = tmp_path / "prose.csv"
    path.write_text("".join(f"one{row}, two\n" for row in range(good)) + "no comma\n" * bad)
    if usable:
        assert choose_recipe({"pairs": str(path)}).found.bad == bad
    else:
        with pytest.raises(DataError, match=r"prose\.csv: only 6 rows can be used; bad rows: 6; the first: .*prose\.csv:7"):
            choose_recipe({"pairs": str(path)})


@pytest.mark.parametrize(
    ("source", "target", "policy"),
    [
        ("".join(f"{word}\n" for word in WORDS[:90]) + "\n" * 10, "word\n" * 100, "skip"),
        ("".join(f"{word}\n" for word in WORDS[:88]) + "\n" * 12, "word\n" * 100, "stop"),
        ("".join(f"{word}\n" for word in WORDS[:90]), "word\n" * 91, "stop"),
        ("".join(f"{word}\n" for word in WORDS[:90]), "word\n" * 90 + "\n", "skip"),
        ("".join(f"{word}\n" for word in WORDS[:90]), "word\n" * 90, "stop"),
    ],
    ids=["a tenth is empty", "more than a tenth", "a line more", "a blank line at the end", "all can be used"],
)
def test_few_bad_rows_are_left_out_if_all_others_belong_together(source, target, policy, tmp_path):
    (tmp_path / "source").write_text(source)
    (tmp_path / "target").write_text(target)
    choice = choose_recipe({"source": str(tmp_path / "source"), "target": str(tmp_path / "target")}, LAPTOP)
    assert choice.values["data"].get("on_bad_row", "stop") == policy
    assert ("bad rows" in [rule for rule, *_ in choice.told]) == (policy == "skip")


def test_few_bad_rows_are_left_out_for_labels_too(tmp_path):
    rows = [{"text": f"{word} {word}", "label": "xy"[at % 2]} for at, word in enumerate(WORDS[:90])]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"text": "none", "label": None}]))
    choice = choose_recipe({"pairs": str(path)}, LAPTOP)
    assert (shape(choice), choice.values["data"]["on_bad_row"]) == ("classifier", "skip")


@pytest.mark.parametrize(("words", "kind"), [(40, "character"), (4, "word")])
def test_rows_that_come_again_do_not_make_their_words_a_closed_set(words, kind, tmp_path):
    """Forty words, each in as many rows: another word is to be expected. Rows of four words in many orders: none is."""
    if words == 40:
        rows = [(f"{word}a", f"{word}o") for word in WORDS[:words]] * 30
    else:
        rows = drawn(1200, lambda chance: (" ".join(chance.choice(WORDS[:words]) for _ in range(5)), chance.choice(WORDS[:9])))
    assert kinds(chosen(tmp_path, rows))["source"] == kind


def test_scripts_that_nearly_nothing_is_written_in_are_not_told(tmp_path):
    rows = [*drawn(300, sentences), ("\N{MASCULINE ORDINAL INDICATOR}", "a")]
    found = survey(parse(Pairs, write(tmp_path / "pairs.tsv", rows)))
    assert "masculine" not in survey_lines(found)[1]
    assert "latin 100%" in survey_lines(found)[1]


def test_more_columns_want_a_recipe(tmp_path):
    files = write(tmp_path / "pairs.tsv", drawn(30, stems))
    with pytest.raises(UserError, match="name a recipe"):
        choose_recipe({**files, "source_column": 0, "target_column": 1, "columns": {"label": 1}})


def test_overlap_by_hand(tmp_path):
    found = survey(parse(Pairs, write(tmp_path / "pairs.tsv", [("a b c", "a b x y"), ("d", "d")] * 30)))
    assert found.copied_words == pytest.approx(3 / 5, abs=0.02)
    assert found.longest_ratio["words"] == pytest.approx(5 / 4)


@pytest.mark.parametrize(("rows", "cut"), [(1200, True), (999, False)])
def test_one_row_in_a_thousand_sets_no_limit(rows, cut, tmp_path):
    """It may be no pair at all, and outputs that go astray would be written to its length."""
    values = chosen(tmp_path, [*drawn(rows - 1, stems), ("a", "b" * 999)]).values
    assert (values["decoding"]["max_ratio"] < 10) is cut
    assert values["decoding"]["max_length"] > 999


def test_what_the_user_says_of_the_data_counts(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"la": f"rex {row}", "en": f"king {row}"}) + "\n" for row in range(40)))
    files = {"pairs": str(path), "columns": {"source": "la", "target": "en"}}
    chosen = choose_recipe(files, LAPTOP, tokenizer={"kind": "byte"})
    assert chosen.values["data"]["tokenizer"]["kind"] == "byte"
    assert "fields" not in chosen.values["data"]
    assert "tokenizer" not in [name for name, *_ in chosen.told]


def test_a_transformer_gets_enough_updates_of_a_size_that_fits_them(tmp_path):
    values = chosen(tmp_path, drawn(10_000, sentences), GPU).values
    assert values["training"]["updates"] >= 4_000
    assert values["data"]["batch_tokens"] <= 4_096
    assert values["model"]["encoder"]["kind"] == "transformer"


def test_the_first_validation_comes_early(tmp_path):
    training = chosen(tmp_path, drawn(3000, sentences)).values["training"]
    assert training["validate_first"] == training["validate_every"] // 4


def labelled(chance):
    return sentence(chance), chance.choice(["very good", "bad"])


NOUNS = [f"{word}a" for word in WORDS[:150]]
VERBS = [f"{word}o" for word in WORDS[:150]]


def tagged(chance):
    words = [chance.choice(NOUNS if chance.random() < 0.6 else VERBS) for _ in range(chance.randint(3, 9))]
    return " ".join(words), " ".join("N" if word.endswith("a") else "V" for word in words)


def shape(choice):
    return choice.values["model"].get("kind", "sequence_to_sequence")


# rows, what is chosen for them, and how their columns are called then
SHAPES = {
    "labels": (labelled, "classifier", {"source": 0, "label": 1}),
    "labels first": (lambda chance: labelled(chance)[::-1], "classifier", {"source": 1, "label": 0}),
    "tags": (tagged, "tagger", {"source": 0, "tags": 1}),
    "tags turned round": (
        lambda chance: (one := tagged(chance), (one[0], " ".join(one[1].split()[::-1])))[1], "sequence_to_sequence", None,
    ),
    "copied": (lambda chance: (one := tagged(chance)[0], one), "sequence_to_sequence", None),
    "turned round": (
        lambda chance: (one := tagged(chance)[0], " ".join(one.split()[::-1])), "sequence_to_sequence", None,
    ),
    "one of its own words": (
        lambda chance: (one := " ".join(chance.sample(["cat", "dog", "cow", "hen"], 3)) + sentence(chance), one.split()[0]),
        "sequence_to_sequence", None,
    ),
    "commands": (commands, "sequence_to_sequence", None),
    "long labels": (
        lambda chance: (sentence(chance), chance.choice(["news of the world and of trade", "all that is played by teams"])),
        "classifier", {"source": 0, "label": 1},
    ),
    "replies that are too long for labels": (
        lambda chance: (sentence(chance), chance.choice(["one two three four five six seven eight nine ten eleven", "no"])),
        "sequence_to_sequence", None,
    ),
    "several labels for a row": (
        lambda chance: (sentence(chance), " ".join(sorted(chance.sample("abcdef", chance.randint(1, 3))))),
        "sequence_to_sequence", None,
    ),
    "labels of two parts": (
        lambda chance: (sentence(chance), f"{chance.choice(['get', 'set'])} {chance.choice(['song', 'trip', 'bell'])}"),
        "classifier", {"source": 0, "label": 1},
    ),
    "one value for all": (lambda chance: (sentence(chance), "yes"), "sequence_to_sequence", None),
}  # fmt: skip


@pytest.mark.parametrize(("most", "metric"), [(84, "macro_f1"), (76, None)])
def test_labels_of_which_one_is_nearly_all_are_judged_by_all_of_them(most, metric, tmp_path):
    rows = [(sentence(random.Random(row)), "ham" if row % 100 < most else "spam") for row in range(600)]
    assert chosen(tmp_path, rows).values["training"].get("validate_by") == metric
    told = any("look at macro F1" in line for line in survey_lines(survey(parse(Pairs, write(tmp_path / "pairs.tsv", rows)))))
    assert told == (metric is not None)


@pytest.mark.parametrize("machine", [LAPTOP, GPU])
@pytest.mark.parametrize("name", SHAPES)
def test_rows_say_what_kind_of_model_they_are_for(name, machine, tmp_path):
    make, kind, columns = SHAPES[name]
    files = write(tmp_path / "pairs.tsv", drawn(400, make))
    choice = choose_recipe(files, machine)
    assert shape(choice) == kind
    assert ("task" in [rule for rule, *_ in choice.told]) == (kind != "sequence_to_sequence")
    named = choice.task.columns(files)
    assert named == (files if columns is None else {**files, "columns": columns})
    recipe = parse(Recipe, {**choice.values, "data": {**choice.values["data"], "train": named}})
    preflight.check(recipe)
    assert choose_recipe(files, machine, labels=False).values["model"].get("kind") is None


@pytest.mark.parametrize(("rows", "labels", "kind"), [(8_000, 140, "classifier"), (8_000, 150, "sequence_to_sequence"),
                                                      (30, 2, "classifier"), (18, 2, "sequence_to_sequence")])  # fmt: skip
def test_many_rows_may_have_many_labels_and_few_rows_have_some(rows, labels, kind, tmp_path):
    made = drawn(rows, lambda chance: (sentence(chance, 4), f"to-{chance.choice(WORDS[:labels])}"))
    assert shape(chosen(tmp_path, made)) == kind


def test_parallel_files_and_names_of_columns_are_kept(tmp_path):
    rows = drawn(300, labelled)
    for name, values in zip(("text", "label"), zip(*rows, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{value}\n" for value in values))
    files = {"source": str(tmp_path / "text"), "target": str(tmp_path / "label")}
    choice = choose_recipe(files, LAPTOP)
    assert choice.task.columns(files) == {"source": files["source"], "columns": {"label": files["target"]}}
    assert choice.task.columns({}) == {}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": label, "id": 3}) + "\n" for text, label in rows))
    choice = choose_recipe({"pairs": str(path)}, LAPTOP)
    assert choice.task.columns({"pairs": str(path)})["columns"] == {"source": "text", "label": "label"}


def test_a_column_that_is_named_says_what_it_is(tmp_path):
    """Whatever its values are; and a tokenizer that does not leave words whole makes no tagger."""
    files = write(tmp_path / "pairs.tsv", drawn(60, sentences))
    named = {**files, "columns": {"source": 0, "label": 1}}
    choice = choose_recipe(named, LAPTOP)
    assert shape(choice) == "classifier"
    assert choice.told[0] == ("task", "model.kind=classifier", "you named a column 'label'")
    assert choice.task.columns(named) == named
    tags = write(tmp_path / "tags.tsv", drawn(400, tagged))
    assert shape(choose_recipe(tags, LAPTOP)) == "tagger"
    assert shape(choose_recipe(tags, LAPTOP, tokenizer={"kind": "bpe"})) == "sequence_to_sequence"


def test_overrides_that_only_a_generator_has_ask_for_one(tmp_path):
    files = Files(write(tmp_path / "pairs.tsv", drawn(300, labelled)), {}, {})
    assert configure(draft(None, files, talk=False).model).kind == "classifier"
    for change in ("model.decoder.hidden_size=64", "decoding.beam=2", "model.kind=sequence_to_sequence"):
        assert configure(draft(None, files, [change], talk=False).model).kind == "sequence_to_sequence"
    assert configure(draft(None, files, labels=False, talk=False).model).kind == "sequence_to_sequence"


def test_new_words_are_read_by_their_characters(tmp_path):
    def open_words(chance):
        words = [chance.choice(WORDS) + chance.choice(WORDS) + chance.choice(["ing", "ed"]) for _ in range(6)]
        return " ".join([*words, "the"]), " ".join(["V" if word.endswith("ing") else "P" for word in words] + ["D"])

    found = survey(parse(Pairs, write(tmp_path / "pairs.tsv", drawn(400, open_words))))
    assert found.source.new_words > 0.5
    choice = choose_recipe({"pairs": str(tmp_path / "pairs.tsv"), "columns": {"source": 0, "tags": 1}}, LAPTOP)
    assert choice.values["data"]["fields"]["source"]["kind"] == "spelled"
    assert choice.values["model"]["encoder"]["input"]["kind"] == "characters"
    closed = choose_recipe(write(tmp_path / "closed.tsv", drawn(400, tagged)), LAPTOP)
    assert "fields" not in closed.values["data"]


@pytest.mark.parametrize(("known", "kind"), [(True, "word"), (False, "character")])
def test_short_texts_of_words_that_come_again_are_read_by_words(known, kind, tmp_path):
    def phrase(chance):
        text = " ".join(chance.choice(WORDS) for _ in range(3)) if known else sentence(chance, 1) + chance.choice(WORDS)
        return text, chance.choice(["good", "bad"])

    choice = chosen(tmp_path, drawn(2000, phrase))
    assert (shape(choice), kinds(choice)) == ("classifier", kind)


def test_what_words_in_the_same_place_tell_by_hand():
    """Of ten rows the first is asked about: the most frequent tag X gets 2 of 4 wrong, companions get 1 of these right."""
    rows = [(["a", "b", "c", "new"], ["X", "Y", "Z", "X"])] + [(["a", "b", "c", "a"], ["X", "Y", "X", "X"])] * 9
    assert surveys.told_by_place(rows) == pytest.approx(1 - 1 / 2)
    assert surveys.told_by_place([]) == 0


@pytest.mark.parametrize("gpu", [False, True])
def test_one_text_alone_is_a_language_model_of_its_characters(tmp_path, gpu):
    (tmp_path / "text.txt").write_text("to be or\n\nnot to be\n" * 50)
    chosen = choose_recipe({"text": str(tmp_path / "text.txt")}, Machine(gpu, 2))
    values, told = chosen.values, {rule: reason for rule, _, reason in chosen.told}
    assert values["model"]["kind"] == "language_model"
    assert values["data"]["tokenizer"]["kind"] == "character"
    assert values["training"]["label_smoothing"] == 0
    assert values["training"]["precision"] == ("bfloat16" if gpu else "float32")
    assert values["training"]["updates"] == (6000 if gpu else 300)
    assert survey_lines(chosen.found) == ["150 lines, 1,000 characters, and no other column beside them"]
    assert told["task"] == "one text alone (150 lines): a language model of its characters"
    assert ("no GPU is here" in told.get("model", "")) != gpu
    preflight.check(parse(Recipe, {**values, "data": {**values["data"], "train": {"text": str(tmp_path / "text.txt")}}}))


def test_more_updates_for_more_text_up_to_a_limit(tmp_path):
    for characters, updates in ((100_000, 781), (1_000_000, 3_000)):
        (tmp_path / "text.txt").write_text("to be or not\n" * (characters // 13))
        assert choose_recipe({"text": str(tmp_path / "text.txt")}, LAPTOP).values["training"]["updates"] == updates


@pytest.fixture
def pictures(tmp_path):
    """Names of images of these sizes, written as bytes."""

    def write_all(*sizes):
        for number, (height, width) in enumerate(sizes):
            np.save(tmp_path / f"{number}.npy", np.zeros((height, width, 3), np.uint8))
        return [f"{number}.npy" for number in range(len(sizes))]

    return write_all


def image_of(choice):
    return choice.values["data"]["fields"]["source"]


@pytest.mark.parametrize(("sizes", "height", "width"), [([(20, 30)] * 8, 20, 30), ([(20, 30)] * 7 + [(90, 30)], 20, 30),
                                                        ([(100, 300)] * 8, 64, 192)])  # fmt: skip
def test_names_of_images_call_for_captions(sizes, height, width, pictures, tmp_path):
    rows = [(name, "a " + " ".join(WORDS[at : at + 5])) for at, name in enumerate(pictures(*sizes))]
    choice = chosen(tmp_path, rows)
    assert image_of(choice) == {"kind": "image", "height": height, "width": width}
    assert choice.values["model"]["decoder"]["context"] == "gated"
    assert choice.values["decoding"]["max_length"] == 2 * 6 + 10
    assert choice.values["training"]["updates"] == 500
    assert choice.told[0][0] == "images"
    assert choice.values["training"]["validate_by"] == "bleu"
    own = choose_recipe({"pairs": str(tmp_path / "pairs.tsv")}, LAPTOP, tokenizer={"kind": "character"})
    assert own.values["data"]["tokenizer"]["kind"] == "character"
    assert own.values["decoding"]["max_length"] == 2 * len(rows[0][1]) + 10


@pytest.mark.parametrize(("words", "metric"), [(5, "wer"), (6, "bleu")])
def test_a_few_words_of_an_image_are_not_judged_by_bleu(words, metric, pictures, tmp_path):
    rows = [(name, " ".join(["a", "red", "cat", "sat", "on", "mats"][:words])) for name in pictures(*[(20, 30)] * 8)]
    assert chosen(tmp_path, rows).values["training"]["validate_by"] == metric


def test_names_that_end_like_images_but_are_none(tmp_path, pictures):
    """Files that are not there, or one name in five that is none."""
    assert image_of(chosen(tmp_path, [(f"no{row}.npy", WORDS[row]) for row in range(20)]))["kind"] == "text"
    names = pictures(*[(20, 30)] * 8)
    rows = [(name, "a cat") for name in [*names, "a dog", "a cow"]]
    assert image_of(chosen(tmp_path, rows))["kind"] == "text"


def test_every_task_has_rules_with_evidence():
    assert all(rule.evidence for task in TASKS.values() for rule in task.rules.values())


@pytest.mark.parametrize(
    ("possible", "updates", "told"),
    [(20.4, 20, "20 updates instead of"), (19.9, 20, "20 updates are the least, and take 1 minutes or more: rows are long"),
     (2.5, 20, "20 updates are the least, and take 8 minutes or more: rows are long")],
)  # fmt: skip
def test_a_time_that_is_too_short_for_long_rows_is_said(possible, updates, told, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(minutes, "updates_in", lambda minutes, recipe: possible)
    monkeypatch.setattr(minutes, "halved", lambda recipe: None)
    recipe = minutes.within(1, parse(Recipe, chosen(tmp_path, drawn(300, stems)).values))
    assert recipe.training.updates == updates
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wanted", "own", "batch", "hidden"),
    [(0.31, (), 2048, 256), (0.29, (), 1024, 256), (0.04, (), 256, 256), (0.01, (), 256, 128),
     (0.29, ("data.batch_tokens=2048",), 2048, 128)],
)  # fmt: skip
def test_in_a_short_time_batches_and_then_the_model_are_smaller(wanted, own, batch, hidden, tmp_path, monkeypatch, capsys):
    """A share of the updates is possible, twice as many in a batch or with a model of half the size."""
    recipe = parse(Recipe, override(chosen(tmp_path, drawn(3000, stems), GPU).values, ["data.batch_tokens=2048"]))

    def updates_in(minutes, one):
        sizes = recipe.data.batch_tokens / one.data.batch_tokens, 256 / one.model["encoder"]["hidden_size"]
        return wanted * recipe.training.updates * sizes[0] * sizes[1]

    monkeypatch.setattr(minutes, "updates_in", updates_in)
    found = minutes.within(1, recipe, own)
    assert (found.data.batch_tokens, found.model["encoder"]["hidden_size"]) == (batch, hidden)
    assert ("model.encoder.hidden_size=128" in capsys.readouterr().err) == (hidden == 128)
    assert found.model["decoder"]["hidden_size"] == 2 * hidden


def test_a_language_model_is_made_to_fit_too(tmp_path, monkeypatch, capsys):
    (tmp_path / "text.txt").write_text("to be or\n\nnot to be\n" * 50)
    monkeypatch.setattr(minutes, "updates_in", lambda minutes, recipe: 25)
    values = choose_recipe({"text": str(tmp_path / "text.txt")}, LAPTOP).values
    found = minutes.within(1, parse(Recipe, override(values, ["model.decoder.embedding_size=128"])))
    assert (found.training.updates, found.data.batch_tokens) == (25, 256)
    assert "model.decoder.hidden_size=96" in capsys.readouterr().err


@pytest.mark.parametrize(("fitted", "room", "warmup"), [(100, 200, 20), (600, 1000, 100), (1000, 1000, 100)])
def test_a_run_with_minutes_comes_down_from_up_to_twice_what_seemed_possible(fitted, room, warmup, tmp_path):
    """The first updates are slow where something else runs beside them. Never more than was chosen."""
    values = chosen(tmp_path, drawn(300, stems)).values
    wanted = parse(Recipe, override(values, ["training.updates=1000", "training.warmup=100"]))
    less = parse(Recipe, override(values, [f"training.updates={fitted}", f"training.warmup={fitted // 10}"]))
    training = in_time(wanted, less, 2, ()).training
    assert (training.minutes, training.updates, training.warmup) == (2, room, warmup)
    assert in_time(wanted, less, 2, [f"training.updates={fitted}"]) == less
