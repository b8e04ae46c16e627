"""A line that is too long for the model fails alone, by its number; rows that are too long are found before the first step."""

import io
import json
import sys

import pytest
from calling import refused, regard
from capitals import write_lines

LONG = " ".join(["canis"] * 30)
PLACES = [
    "data.tokenizer.kind=word", "data.batch_tokens=256", "training.updates=4", "training.validate_every=2", "decoding.beam=1",
    "model.encoder.kind=convolutional", "model.decoder.kind=convolutional",
    *(f"model.{side}.{key}" for side in ("encoder", "decoder")
      for key in ("embedding_size=8", "hidden_size=8", "layers=1", "longest=12")),
]  # fmt: skip


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "places.yaml"
    path.write_text("about: learned places\n")
    return path


def words(recipe, corpus, folder, **files):
    named = {"source": "train.source", "target": "train.target", "valid-source": "short.source", "valid-target": "short.target"}
    options = [word for name, file in named.items() for word in (f"--{name}", files.get(name, corpus / file))]
    return ["train", recipe, *PLACES, *options, "--run", folder]


@pytest.fixture(scope="module")
def places(recipe, corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("places") / "run"
    assert regard(*words(recipe, corpus, folder), "--quiet") == (0, "", "")
    return folder


def spoilt(corpus, tmp_path, name, line, text):
    rows = (corpus / name).read_text().splitlines()
    rows[line - 1] = text
    write_lines(tmp_path / name, rows)
    return tmp_path / name


TOLD = "too long: the {} has 31 tokens with its {} mark, the model has places for 12 (model.{}.longest)"


def test_generate_answers_the_other_lines(places):
    short = [b"amicus", b"bellum canis", b"", b"domus"]
    lines = [*short[:2], LONG.encode(), *short[2:]]
    code, out, err = regard("generate", places, stdin=b"\n".join(lines) + b"\n")
    alone = regard("generate", places, stdin=b"\n".join(short) + b"\n")
    assert (code, alone.code) == (2, 0)
    told = TOLD.format("source", "end", "encoder")
    assert err.splitlines()[0] == f"error: <stdin>:3: {told}; its output is empty"
    assert "error" not in err.partition("\n")[2]  # what was cut may be told too
    assert out.split("\n")[:-1] == [*alone.lines[:2], "", *alone.lines[2:]]


def test_generate_counts_lines_over_blocks_and_scores_what_failed_as_impossible(places, tmp_path):
    found = regard(
        "generate", places, "--unbuffered", "--scores", "--alignments", tmp_path / "links", stdin=f"a\n{LONG}\n".encode()
    )
    assert found.code == 2
    assert "error: <stdin>:2: too long" in found.err
    assert found.lines[1] == "-inf\t"
    assert (tmp_path / "links").read_text().count("\n") == 2
    ranked = regard("generate", places, "--n-best", "2", stdin=f"{LONG}\na\n".encode())
    assert ranked.lines[0] == "0 |||  ||| -inf"


def test_an_output_that_is_too_long_to_read_again_has_its_links(places, tmp_path, monkeypatch):
    """For they are those of the search, which saw tokens and not this text."""
    from regard.decoding.generator import TrainedGenerator

    original = TrainedGenerator.answer

    def answer(self, *given, **more):
        return original(self, *given, **more).map(lambda found: [one._replace(text=LONG) for one in found])

    args = ["generate", places, "--alignments", tmp_path / "links"]
    assert regard(*args, stdin=b"a\nb\n").code == 0
    links = (tmp_path / "links").read_text()
    monkeypatch.setattr(TrainedGenerator, "answer", answer)
    code, out, _ = regard(*args, stdin=b"a\nb\n")
    assert (code, out) == (0, f"{LONG}\n" * 2)
    assert (tmp_path / "links").read_text() == links
    assert len(links) > 5


def test_align_gives_it_no_links(places, corpus, tmp_path):
    target = spoilt(corpus, tmp_path, "short.target", 5, LONG)
    code, out, err = regard("align", places, "--source", corpus / "short.source", "--target", target)
    assert code == 2
    assert err == f"error: pair 5: {TOLD.format('target', 'start', 'decoder')}; it has no links\n"
    alone = regard("align", places, "--source", corpus / "short.source", "--target", corpus / "short.target")
    assert out.split("\n")[:4] == alone.lines[:4]
    assert out.split("\n")[4] == ""
    assert out.split("\n")[5:-1] == alone.lines[5:]


def test_align_minds_the_reverse_model_too(places, trained, corpus, tmp_path):
    target = spoilt(corpus, tmp_path, "short.target", 5, LONG)
    found = regard("align", trained, "--source", corpus / "short.source", "--target", target, "--reverse", places)
    assert found.code == 2
    assert "error: pair 5: too long: the source has 31 tokens" in found.err
    assert (len(found.lines), found.lines[4]) == (40, "")


def test_evaluate_counts_it_as_an_empty_output(places, corpus, tmp_path):
    source = spoilt(corpus, tmp_path, "short.source", 5, LONG)
    outputs = tmp_path / "out"
    files = ["--source", source, "--target", corpus / "short.target", "--alignment", corpus / "short.align"]
    code, out, err = regard("evaluate", places, *files, "--json", "--output", outputs)
    assert code == 2
    assert f"error: test: pair 5: {TOLD.format('source', 'end', 'encoder')}; " in err
    assert json.loads(out)["test"]["pairs"] == 40
    assert outputs.read_text().split("\n")[4] == ""


def test_look_shows_the_others(places):
    found = regard("look", places, "amicus", LONG)
    assert found.code == 2
    assert "error: text 2: too long" in found.err
    assert "amicus" in found.out
    assert "places for 12 (model.encoder.longest)" in refused("look", places, LONG)


@pytest.mark.parametrize(("side", "mark", "part"), [("source", "end", "encoder"), ("target", "start", "decoder")])
def test_a_long_validation_row_stops_before_the_first_step_or_is_left_out(recipe, corpus, tmp_path, side, mark, part):
    file = spoilt(corpus, tmp_path, f"short.{side}", 5, LONG)
    given = words(recipe, corpus, tmp_path / "run", **{f"valid-{side}": file})
    problem = f"{file}:5: {TOLD.format(side, mark, part)}"
    assert refused(*given) == f"{problem}\nraise the key named, or leave such rows out with data.on_bad_row=skip"
    assert not (tmp_path / "run" / "checkpoints").exists()
    code, _, err = regard(*given, "data.on_bad_row=skip")
    assert code == 0
    assert "400 training rows, 39 for validation" in err
    assert f"1 validation rows are left out: {tmp_path / 'run' / 'bad_valid_rows.txt'} lists them" in err
    assert (tmp_path / "run" / "bad_valid_rows.txt").read_text() == f"{problem}\n"


def test_a_long_training_row_too(recipe, corpus, tmp_path):
    file = spoilt(corpus, tmp_path, "train.target", 7, LONG)
    given = words(recipe, corpus, tmp_path / "run", target=file)
    problem = f"{file}:7: {TOLD.format('target', 'start', 'decoder')}"
    assert refused(*given).startswith(f"{problem}\nraise the key named, lower data.max_length, or leave such rows out")
    code, _, err = regard(*given, "data.on_bad_row=skip")
    assert code == 0
    assert "399 training rows" in err
    assert (tmp_path / "run" / "long_rows.txt").read_text() == f"{problem}\n"
    code, _, err = regard(*given, "data.max_length=20", "--run", tmp_path / "lower")
    assert code == 0
    assert "400 rows = 399 used + 1 reported" in err


def test_bad_validation_rows_follow_the_rule_of_training_rows(recipe, corpus, tmp_path):
    source = spoilt(corpus, tmp_path, "short.source", 5, "")
    given = words(recipe, corpus, tmp_path / "run", **{"valid-source": source})
    assert refused(*given) == f"{source}:5: the source is empty\nmend the file or set data.on_bad_row=skip"
    code, _, err = regard(*given, "data.on_bad_row=skip")
    assert code == 0
    assert "39 for validation" in err
    gold = [*given, "data.on_bad_row=skip", f"data.valid.alignment={corpus / 'short.align'}", "--run", tmp_path / "gold"]
    assert "mend the file: data.valid.alignment has a line for each of its rows" in refused(*gold)


def test_rows_of_a_test_set_are_never_skipped(places, corpus, tmp_path):
    source = spoilt(corpus, tmp_path, "short.source", 5, "")
    told = refused("evaluate", places, "--source", source, "--target", corpus / "short.target")
    assert told == f"{source}:5: the source is empty\nmend the file: a score over fewer rows would be another score"


def test_nothing_left_is_said(recipe, corpus, tmp_path):
    write_lines(tmp_path / "s", [LONG])
    write_lines(tmp_path / "t", ["A"])
    given = words(recipe, corpus, tmp_path / "run", **{"valid-source": tmp_path / "s", "valid-target": tmp_path / "t"})
    assert "no row is left to validate on" in refused(*given, "data.on_bad_row=skip")
    given = words(recipe, corpus, tmp_path / "run", source=tmp_path / "s", target=tmp_path / "t")
    assert "no row is left to train on" in refused(*given, "data.on_bad_row=skip")


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_a_stream_that_is_closed(places, monkeypatch, stream):
    """Python has None for it then."""
    from regard.cli import main

    for name in {"stdin", "stdout"} - {stream}:
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setattr(sys, stream, None)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys, "argv", ["regard", "generate", str(places)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert sys.stderr.getvalue().startswith(f"error: standard {stream[3:]}put is closed")


def test_a_tsv_header_among_the_pairs_is_said(recipe, corpus, tmp_path):
    sides = [(corpus / f"train.{side}").read_text().splitlines() for side in ("source", "target")]
    write_lines(tmp_path / "p.tsv", ["Source\ttarget", *map("\t".join, zip(*sides, strict=True))])
    given = ["train", recipe, *PLACES, "--pairs", tmp_path / "p.tsv", "--run"]
    code, _, err = regard(*given, tmp_path / "run")
    assert code == 0
    assert err.count(f"note: {tmp_path / 'p.tsv'}: its first row is a header (source: 'Source', target: 'target')") == 1
    named = ["data.train.source_column=Source", "data.train.target_column=target"]
    code, _, err = regard(*given, tmp_path / "named", *named)
    assert code == 0
    assert "is a header" not in err
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "named")]
    assert weights[0] == weights[1]
