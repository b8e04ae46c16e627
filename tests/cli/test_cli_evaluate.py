"""`regard evaluate` and `regard look`."""

import json
import re
from xml.etree import ElementTree

import pytest
import sacrebleu
from calling import refused, regard


def as_json(*words):
    result = regard("evaluate", *words, "--json")
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out)


@pytest.fixture(scope="module")
def report(trained):
    return as_json(trained, "--by-length")


def files(corpus, name):
    return ["--source", corpus / f"{name}.source", "--target", corpus / f"{name}.target"]


def test_the_table_says_what_the_json_says(trained, report):
    result = regard("evaluate", trained, "--by-length")
    assert result.code == 0
    sets = re.split(r"^(\S+): ([\d,]+) pairs\n", result.out, flags=re.MULTILINE)[1:]
    assert sets[::3] == list(report) == ["short", "long"]
    for name, pairs, table in zip(sets[::3], sets[1::3], sets[2::3], strict=True):
        wanted = dict(report[name])
        assert int(pairs) == wanted.pop("pairs")
        assert all(signature in table for signature in wanted.pop("signatures"))
        wanted |= {label: score for label, _, score in wanted.pop("by_length")}
        assert len(table.strip().split("\n")) == len(wanted)
        for label, value in wanted.items():
            assert re.search(rf"^  {re.escape(label)} +{value:.3f}( |$)", table, flags=re.MULTILINE)


def test_test_sets_of_the_recipe_equal_files_given(trained, corpus, report):
    again = as_json(trained, *files(corpus, "short"), "--alignment", corpus / "short.align", "--by-length")
    assert again == {"test": report["short"]}


def test_a_model_directory_alone_is_enough(trained, report):
    assert as_json(trained / "model", "--by-length") == report


def test_bleu_is_what_sacrebleu_says_of_the_output(trained, corpus, tmp_path, report):
    as_json(trained, *files(corpus, "long"), "--output", tmp_path / "out")
    outputs, references = ((file).read_text("utf-8").splitlines() for file in (tmp_path / "out", corpus / "long.target"))
    assert len(outputs) == len(references)
    assert report["long"]["BLEU"] == pytest.approx(sacrebleu.corpus_bleu(outputs, [references]).score)
    assert report["long"]["chrF2"] == pytest.approx(sacrebleu.corpus_chrf(outputs, [references]).score)
    assert 10 < report["long"]["BLEU"] < 100  # or the test would show little
    equal = sum(output == reference for output, reference in zip(outputs, references, strict=True))
    assert report["long"]["exact"] == pytest.approx(100 * equal / len(outputs))


def test_outputs_are_those_of_generate_and_each_test_set_has_its_own_file(trained, corpus, tmp_path):
    as_json(trained, "--output", tmp_path / "out", "--beam", "1")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out.long", "out.short"]
    generated = regard("generate", trained, "--beam", "1", stdin=(corpus / "long.source").read_bytes()).out
    assert (tmp_path / "out.long").read_text("utf-8") == generated


def test_lengths_add_up(report):
    for result in report.values():
        assert sum(count for _, count, _ in result["by_length"]) == result["pairs"]
    assert [label for label, _, _ in report["short"]["by_length"]] == ["up to 5 words", "up to 10 words"]


def test_alignments_are_judged_only_against_gold(report, blind, corpus):
    assert report["short"]["alignment error_rate"] < 0.3
    assert not [name for name in report["long"] if name.startswith("alignment")]
    result = as_json(blind, *files(corpus, "short"), "--alignment", corpus / "short.align")["test"]
    assert not [name for name in result if name.startswith("alignment")]


def test_gold_of_another_length_is_refused(trained, corpus):
    told = refused("evaluate", trained, *files(corpus, "short"), "--alignment", corpus / "long.align")
    assert told == "20 lines of gold alignments for 40 pairs"


def test_a_run_without_test_sets_asks_for_files(blind):
    assert "names no test sets; give --source and --target" in refused("evaluate", blind)


def upright(picture):
    """Words above the columns are written from top to bottom."""
    rows = picture.split("\n")
    return ["".join(column).strip() for column in zip(*(row.ljust(80) for row in rows), strict=True)]


def test_look_shows_all_words_of_both_sides(trained):
    result = regard("look", trained, "amicus bellum hortus")
    assert (result.code, result.err) == (0, "")
    assert "\x1b" not in result.out  # no colours: this is no terminal
    for word in ("AMICUS", "BELLUM", "HORTUS"):
        assert re.search(rf"^ *{word} .* -> {word.lower()}$", result.out, flags=re.MULTILINE)
    translation, picture = result.out.split("\n\n", 1)
    assert translation == "AMICUS BELLUM HORTUS"
    columns = upright(picture[: picture.index("AMICUS")])
    assert [column for column in columns if len(column) > 4][:3] == ["amicus", "bellum", "hortus"]


def test_look_at_a_given_target(trained):
    out = regard("look", trained, "amicus bellum", "--target", "LIBER CANIS LIBER").out
    assert [line.split()[0] for line in out.split("\n") if " -> " in line] == ["LIBER", "CANIS", "LIBER"]
    assert "AMICUS" not in out


def test_look_writes_pictures(trained, tmp_path):
    png, svg, html = (tmp_path / f"a.{kind}" for kind in ("png", "svg", "html"))
    result = regard("look", trained, "amicus fīnis", "--png", png, "--svg", svg, "--html", html)
    assert (result.code, result.err) == (0, "".join(f"written: {path}\n" for path in (png, svg, html)))
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert png.read_bytes().endswith(b"IEND\xaeB`\x82")
    drawn = "".join(ElementTree.parse(svg).getroot().itertext())
    for words in (drawn, html.read_text("utf-8")):
        assert all(word in words for word in ("amicus", "fīnis", "AMICUS", "FĪNIS"))


def test_look_at_many(trained, tmp_path):
    result = regard("look", trained, "amicus", "bellum <b>", "", "--html", tmp_path / "page.html")
    assert result.code == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<figure") == 3
    assert "<b>" not in page
    assert page.rstrip().endswith("</html>")
