"""`regard evaluate` and `regard look`."""

import json
import re
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest
import sacrebleu
import torch
from calling import refused, regard
from safetensors.torch import load_file

import regard as package

TINY = [
    "data.tokenizer.kind=word", "data.batch_tokens=256", "training.updates=4", "model.encoder.embedding_size=8",
    "model.encoder.hidden_size=8", "model.decoder.embedding_size=8", "model.decoder.hidden_size=8",
]  # fmt: skip


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
        intervals = wanted.pop("intervals")
        assert intervals.keys() == wanted.keys() - {"by_length"}
        wanted |= {label: score for label, _, score in wanted.pop("by_length")}
        assert len(table.strip().split("\n")) == len(wanted)
        for label, value in wanted.items():
            between = rf" \[{', '.join(map(rounded, intervals[label]))}\]" if label in intervals else ""
            assert re.search(rf"^  {re.escape(label)} +{rounded(value)}{between}( |$)", table, flags=re.MULTILINE)


def rounded(value):
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def test_a_score_lies_in_its_interval(report):
    for result in report.values():
        for name, (low, high) in result["intervals"].items():
            assert low <= result[name] + 1e-9
            assert result[name] <= high + 1e-9
    low, high = report["long"]["intervals"]["BLEU"]
    assert high > low + 1


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


def test_a_run_without_test_sets_is_scored_on_its_validation_files(blind, corpus):
    result = regard("evaluate", blind, "--json")
    assert result.code == 0
    assert json.loads(result.out) == {"valid": as_json(blind, *files(corpus, "short"))["test"]}
    assert "names no test sets; these are the rows it was validated on, of" in result.err
    assert str(corpus / "short.source") in result.err


@pytest.fixture(scope="module")
def holding(corpus, tmp_path_factory):
    """A run that held rows out of its own."""
    folder = tmp_path_factory.mktemp("runs") / "holding"
    train = ["--source", corpus / "train.source", "--target", corpus / "train.target"]
    assert regard("train", "sutskever2014-small", *train, "--run", folder, "--quiet", *TINY) == (0, "", "")
    return folder


def test_a_run_on_own_files_is_scored_on_the_rows_that_it_held_out(holding, corpus, tmp_path):
    result = regard("evaluate", holding, "--json", "--output", tmp_path / "out")
    rows = [json.loads(line) for line in (holding / "valid.jsonl").read_text("utf-8").splitlines()]
    texts = {name: (corpus / f"train.{name}").read_text("utf-8").splitlines() for name in ("source", "target")}
    assert {(row["source"], row["target"]) for row in rows} <= set(zip(*texts.values(), strict=True))
    assert 1 <= len(rows) < 400 / 2
    assert json.loads(result.out)["held-out"]["pairs"] == len(rows)
    assert f"these are the rows that training held out of its own ({holding / 'valid.jsonl'})" in result.err
    journal = [json.loads(line) for line in (holding / "journal.jsonl").read_text().splitlines()]
    last = [row["valid_loss"] for row in journal if "valid_loss" in row][-1]
    assert json.loads(result.out)["held-out"]["loss"] == pytest.approx(last, rel=1e-4)  # the same rows, the same model
    assert len((tmp_path / "out").read_text("utf-8").splitlines()) == len(rows)


def test_a_run_that_is_given_rows_to_validate_on_keeps_none(blind):
    assert not (blind / "valid.jsonl").exists()


def test_a_model_without_test_sets_and_without_rows_asks_for_files(holding, tmp_path):
    told = refused("evaluate", holding / "model")
    assert told.endswith(
        "names no test sets, and it has no valid.jsonl of rows held out; give --source and --target (or --column)"
    )
    own = shutil.copytree(holding, tmp_path / "own")
    (own / "valid.jsonl").write_text("{}\nnothing\n")
    assert refused("evaluate", own) == f"{own / 'valid.jsonl'}: damaged: not one JSON object per line"


@pytest.fixture
def wrong(corpus, tmp_path):
    """Targets that no model writes."""
    path = tmp_path / "wrong"
    path.write_text("nobody writes this\n" * 40)
    return ["--source", corpus / "short.source", "--target", path]


def test_further_references_are_right_too(trained, corpus, wrong, report, tmp_path):
    right = (corpus / "short.target").read_text("utf-8").splitlines()
    (tmp_path / "even").write_text("".join(f"{text if row % 2 == 0 else ''}\n" for row, text in enumerate(right)), "utf-8")
    (tmp_path / "odd").write_text("".join(f"{text if row % 2 else ''}\n" for row, text in enumerate(right)), "utf-8")
    assert as_json(trained, *wrong)["test"]["exact"] == 0
    found = as_json(trained, *wrong, "--reference", tmp_path / "even", "--reference", tmp_path / "odd")["test"]
    for name in ("exact", "WER", "CER", "GLEU"):
        assert found[name] == pytest.approx(report["short"][name])
    assert any("nrefs:2" in signature for signature in found["signatures"])
    assert found["loss"] == as_json(trained, *wrong)["test"]["loss"]  # of the target


def test_references_must_fit_the_rows(trained, corpus, wrong, tmp_path):
    (tmp_path / "few").write_text("one\n")
    assert refused("evaluate", trained, *wrong, "--reference", tmp_path / "few") == (
        f"{tmp_path / 'few'}: 1 lines of references for 40 rows; give each row a line (an empty one for none)"
    )
    (tmp_path / "bad").write_bytes(b"one\n\xff\n" + b"\n" * 38)
    assert refused("evaluate", trained, *wrong, "--reference", tmp_path / "bad").startswith(f"{tmp_path / 'bad'}:2: not UTF-8")
    assert refused("evaluate", trained, "--reference", tmp_path / "few").startswith(
        "--reference goes with --source and --target"
    )


def test_rows_of_the_same_source_are_one_input(trained, corpus, tmp_path, report):
    """Every source twice, once with a wrong target: all that is right stays right, and each source is written once."""
    sources, targets = ((corpus / f"short.{side}").read_text("utf-8").splitlines() for side in ("source", "target"))
    rows = [*zip(sources, targets, strict=True), *((source, "wrong") for source in sources)]
    (tmp_path / "twice.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows), "utf-8")
    words = ["--pairs", tmp_path / "twice.tsv", "--same-source", "--output", tmp_path / "out"]
    found = as_json(trained, *words)["test"]
    assert (found["pairs"], found["inputs"]) == (80, len(set(sources)))
    outputs = dict(zip(dict.fromkeys(sources), (tmp_path / "out").read_text("utf-8").splitlines(), strict=True))
    right = {(source, target) for source, target in rows}
    assert found["exact"] == pytest.approx(100 * sum(pair in right for pair in outputs.items()) / len(outputs))
    assert found["exact"] > as_json(trained, *words[:2])["test"]["exact"]


def test_only_the_metrics_asked_for(trained, corpus):
    found = as_json(trained, *files(corpus, "short"), "--metric", "ter", "--metric", "per")["test"]
    assert found.keys() == {"pairs", "TER", "PER", "intervals", "signatures"}
    assert "did you mean 'wer'?" in refused("evaluate", trained, *files(corpus, "short"), "--metric", "werr")
    assert "accuracy needs what this model" in refused("evaluate", trained, "--metric", "accuracy")
    told = refused("evaluate", trained, *files(corpus, "short"), "--metric", "loss", "--worst", corpus / "none.tsv")
    assert told == "--by-length, --output and --worst need outputs, and loss judges none: add --metric exact"


def test_the_worst_outputs_come_first(trained, corpus, tmp_path):
    words = [*files(corpus, "long"), "--output", tmp_path / "out", "--worst", tmp_path / "worst.tsv", "--number", "7"]
    as_json(trained, *words)
    header, *rows = [line.split("\t") for line in (tmp_path / "worst.tsv").read_text("utf-8").splitlines()]
    assert header == ["score", "source", "output", "reference"]
    sources, targets = ((corpus / f"long.{side}").read_text("utf-8").splitlines() for side in ("source", "target"))
    outputs = (tmp_path / "out").read_text("utf-8").splitlines()
    everything = list(zip(sources, outputs, targets, strict=True))
    bleu = sacrebleu.BLEU(effective_order=True)  # the metric that decides here
    worth = sorted(bleu.sentence_score(output, [target]).score / 100 for _, output, target in everything)
    assert [float(row[0]) for row in rows] == pytest.approx(worth[:7], abs=6e-4)
    assert all(tuple(row[1:]) in everything for row in rows)


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
    translation, caption, picture = result.out.split("\n\n", 2)
    assert translation == "AMICUS BELLUM HORTUS"
    assert caption.startswith(f"{trained}"[:60])
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
    assert (result.code, "text 3: there is nothing to look at: the text is empty" in result.err) == (2, True)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<figure") == 2
    assert "<b>" not in page
    assert page.rstrip().endswith("</html>")


def test_look_at_a_file_beside_its_true_links(trained, corpus, tmp_path):
    sources, targets = ((corpus / f"short.{side}").read_text("utf-8").splitlines() for side in ("source", "target"))
    given = ["--target-file", corpus / "short.target", "--gold", corpus / "short.align", "--json", tmp_path / "look.jsonl"]
    result = regard("look", trained, "--file", corpus / "short.source", *given, "--svg", tmp_path / "a.svg")
    assert result.code == 0
    rows = [json.loads(line) for line in (tmp_path / "look.jsonl").read_text("utf-8").splitlines()]
    assert [(row["text"], row["output"]) for row in rows] == list(zip(sources, targets, strict=True))
    links = [set(line.split()) for line in (corpus / "short.align").read_text("utf-8").splitlines()]
    assert [{f"{column}-{line}" for column, line in row["gold"]} for row in rows] == links
    names = [tmp_path / f"a-{number}.svg" for number in range(1, len(rows) + 1)]
    assert all(f"written: {name}\n" in result.err for name in names)
    outlines = [ElementTree.parse(name).getroot().findall(".//*[@class='gold']/*") for name in names]
    assert list(map(len, outlines)) == list(map(len, links))


def test_look_at_a_run_as_it_learned_and_beside_another(trained, tmp_path):
    steps = sorted((trained / "checkpoints").glob("step-*"))
    files = ["--json", tmp_path / "look.jsonl", "--png", tmp_path / "a.png", "--html", tmp_path / "a.html"]
    result = regard("look", trained, "amicus bellum", "--checkpoints", "--beside", trained, "--beam", "2", *files)
    assert result.code == 0
    rows = [json.loads(line) for line in (tmp_path / "look.jsonl").read_text("utf-8").splitlines()]
    *earlier, last = rows
    assert [row["title"].partition(": ")[0] for row in earlier] == [f"{trained}, step {int(path.name[5:])}" for path in steps]
    assert {row["output"] for row in rows} == {last["output"]}
    alone = package.load(trained, device="cpu").look("amicus bellum")
    np.testing.assert_allclose(np.array(last["weights"])[:, :-1], alone.weights, atol=1e-6)
    assert (tmp_path / "a.html").read_text("utf-8").count("<figure>") == len(rows)
    told = re.findall(r"^\S+ +(\d\.\d{3})  ", result.out, re.MULTILINE)
    assert told == [f"{one.probability:.3f}" for one in alone.chances]
    assert "output of the beam" in result.out  # which the run that was named has found, not its first step
    assert "it has kept no checkpoints" in refused("look", trained / "model", "amicus", "--checkpoints")


def test_a_checkpoint_is_used_as_a_model_is(trained):
    (*_, step) = sorted((trained / "checkpoints").glob("step-*"))
    model = package.load(step, device="cpu").model
    for name, tensor in load_file(step / "model.safetensors").items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=0, atol=0)
    assert regard("generate", step, stdin=b"amicus\n").code == 0


def test_look_at_every_head_as_one_picture(trained, tmp_path):
    result = regard("look", trained, "amicus bellum", "--grid", "--svg", tmp_path / "a.svg", "--pdf", tmp_path / "a.pdf")
    assert result.code == 0
    assert "layer 1, head 1" in "".join(ElementTree.parse(tmp_path / "a.svg").getroot().itertext())
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_look_at_one_head_and_every_map_as_json(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # a title is as wide as the path of the run
    file = tmp_path / "look.jsonl"
    result = regard(
        "look", trained, "amicus bellum", "--map", "cross", "--layer", "1", "--head", "1", "--json", file, "--beam", "2"
    )
    assert result.code == 0
    assert "capitals: attention to the source" in result.out
    (row,) = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert (row["text"], row["source"], row["target"]) == (
        "amicus bellum", ["amicus", "bellum", "</s>"], ["AMICUS", "BELLUM", "</s>"]
    )  # fmt: skip
    assert row["title"].endswith("capitals: attention to the source, layer 1, head 1")
    (only,) = row["maps"]
    assert only["weights"] == row["weights"]
    assert [one["token"] for one in row["chances"]][-1] == "</s>"
    assert len(row["candidates"]) == 2
    assert "layers go from 1 to 1, heads from 1 to 1" in refused("look", trained, "amicus", "--layer", "7")
    assert "no map 'encoder'; it has cross" in refused("look", trained, "amicus", "--map", "encoder")
    assert "a rollout is of the self-attention of a Transformer" in refused("look", trained, "amicus", "--rollout")
