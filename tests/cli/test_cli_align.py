"""`regard align`, and the reading of the attention that runs and models keep."""

import json
import random
import re
import shutil

import numpy as np
import pytest
from calling import refused, regard
from capitals import RECIPE, TINY

import regard as package
from regard.data.links import flip_gold, read_links
from regard.data.symmetrise import SYMMETRISATIONS, agree
from regard.evaluation.alignment import alignment_error_rate, choose_reading
from regard.models.directory import Reading, load_model

NAMES = ("error_rate", "precision", "recall")


@pytest.fixture(scope="module")
def backward(corpus, tmp_path_factory):
    """A run from capitals to small letters. Not to be written to."""
    folder = tmp_path_factory.mktemp("backward")
    recipe = RECIPE.replace(".source", ".x").replace(".target", ".source").replace(".x", ".target")
    (folder / "small.yaml").write_text(recipe.format(corpus))
    assert regard("train", folder / "small.yaml", "--run", folder / "run", "--quiet") == (0, "", "")
    return folder / "run"


def files(corpus, name="short"):
    return ["--source", corpus / f"{name}.source", "--target", corpus / f"{name}.target"]


def pairs_of(corpus, name="short"):
    sides = [(corpus / f"{name}.{side}").read_text("utf-8").splitlines() for side in ("source", "target")]
    return list(zip(*sides, strict=True))


def parsed(lines):
    return [{tuple(map(int, link.split("-"))) for link in line.split()} for line in lines]


def test_one_line_a_pair_is_printed_in_order(trained, corpus, monkeypatch):
    monkeypatch.setattr("regard.cli.align.BLOCK", 19)  # of 20 pairs
    result = regard("align", trained, *files(corpus, "long"))
    assert (result.code, result.err) == (0, "")
    found = package.load(trained).align(pairs_of(corpus, "long"))
    assert parsed(result.lines) == [one.links for one in found]
    assert all(
        line == " ".join(sorted(line.split(), key=lambda link: list(map(int, link.split("-"))))) for line in result.lines
    )


def test_empty_lines_stay_in_place(trained, tmp_path):
    (tmp_path / "s").write_text("amicus bellum\n\n  \nliber\ncanis\n")
    (tmp_path / "t").write_text("AMICUS BELLUM\n\nCANIS\n\nCANIS\n")
    result = regard("align", trained, "--source", tmp_path / "s", "--target", tmp_path / "t")
    assert result.lines == ["0-0 1-1", "", "", "", "0-0"]
    (tmp_path / "s").write_text("")
    assert regard("align", trained, "--source", tmp_path / "s", "--target", tmp_path / "s") == (0, "", "")


def test_head_and_shift_are_those_asked_for(trained, corpus):
    model, pairs = package.load(trained), pairs_of(corpus)
    shifted = regard("align", trained, *files(corpus), "--shift", "1", "--head", "0").lines
    assert parsed(shifted) == [one.links for one in model.align(pairs, Reading(head=0, shift=1))]
    assert parsed(shifted) != [one.links for one in model.align(pairs)]
    told = refused("align", trained, *files(corpus), "--head", "7")
    assert told == "this model has no head 7: its 1 are counted from 0, over all layers"


@pytest.mark.parametrize("name", SYMMETRISATIONS)
def test_both_directions_are_symmetrised(trained, backward, corpus, name):
    result = regard("align", trained, *files(corpus, "long"), "--reverse", backward, "--symmetrise", name)
    assert (result.code, result.err) == (0, "")
    pairs = pairs_of(corpus, "long")
    there = package.load(trained).align(pairs)
    back = package.load(backward).align([(target, source) for source, target in pairs])
    turned = [{(source, target) for target, source in one.links} for one in back]
    joined = [SYMMETRISATIONS[name](one.links, other) for one, other in zip(there, turned, strict=True)]
    assert parsed(result.lines) == joined
    if name == "grow_diag":
        assert regard("align", trained, *files(corpus, "long"), "--reverse", backward) == result
        agreed = regard("align", trained, *files(corpus, "long"), "--reverse", backward, "--agree", "0.4").lines
        assert parsed(agreed) == [agree(one.weights, other.weights, 0.4) for one, other in zip(there, back, strict=True)]


def test_gold_gives_the_rates_of_each_direction_and_of_both(trained, backward, corpus):
    words = ["align", trained, *files(corpus), "--reverse", backward, "--gold", corpus / "short.align"]
    result = regard(*words, "--json")
    rates = json.loads(result.err)
    assert list(rates) == ["forward", "backward", "both"]
    gold = read_links(corpus / "short.align")
    assert list(rates["both"].values()) == pytest.approx(alignment_error_rate(parsed(result.lines), gold))
    alone = json.loads(regard(*words[:-4], "--gold", corpus / "short.align", "--json").err)
    assert alone == {"forward": rates["forward"]}
    assert 0.5 < rates["both"]["precision"] <= 1.0  # or the test would show little
    table = regard(*words)
    assert table.out == result.out
    for name, values in rates.items():
        numbers = " +".join(re.escape(f"{values[key]:.3f}") for key in NAMES)
        assert re.search(rf"^{name} +{numbers}$", table.err, flags=re.MULTILINE)


def test_the_best_reading_is_chosen_and_stored(own, corpus, tmp_path):
    """Gold one word to the left of the truth: what the next step looks at fits it better."""
    gold = tmp_path / "early.align"
    rows = [len(source.split()) for source, _ in pairs_of(corpus)]
    gold.write_text("".join(" ".join(f"{i + 1}-{i}" for i in range(size - 1)) + "\n" for size in rows))
    words = ["align", own, *files(corpus), "--gold", gold]
    before = json.loads(regard(*words, "--json").err)["forward"]
    chosen = regard(*words, "--choose")
    assert chosen.err.startswith(f"{own}: alignments are read from the mean of all heads, shift 1\n")
    assert load_model(own).reading == Reading(shift=1)
    after = regard(*words, "--json")
    assert after.out == chosen.out
    assert json.loads(after.err)["forward"]["error_rate"] < before["error_rate"]
    told = json.loads(regard("evaluate", own, *files(corpus), "--alignment", gold, "--json").out)["test"]
    assert told["alignment error_rate"] == json.loads(after.err)["forward"]["error_rate"]


def test_the_reverse_model_s_reading_is_chosen_the_other_way_round(own, backward, corpus, tmp_path):
    copy = shutil.copytree(backward, tmp_path / "backward")
    gold = tmp_path / "late.align"
    rows = [len(source.split()) for source, _ in pairs_of(corpus)]
    gold.write_text("".join(" ".join(f"{i}-{i + 1}" for i in range(size - 1)) + "\n" for size in rows))
    result = regard("align", own, *files(corpus), "--reverse", copy, "--gold", gold, "--choose")
    assert result.code == 0
    turned = [(target, source) for source, target in pairs_of(corpus)]
    wanted = choose_reading(package.load(backward), turned, [flip_gold(links) for links in read_links(gold)])
    assert load_model(copy).reading == wanted == Reading(shift=1)
    assert load_model(own).reading == Reading()


def test_a_run_with_gold_for_validation_chooses_and_keeps_the_reading(corpus, tmp_path, monkeypatch):
    asked = []

    def choose(model, pairs, gold):
        asked.append((model.align(pairs[:3])[2].weights, pairs, gold, choose_reading(model, pairs, gold)))
        return Reading(head=0, shift=1)

    monkeypatch.setattr("regard.run.choose_reading", choose)
    valid = [f"data.valid.alignment={corpus / 'short.align'}", *TINY, "training.updates=2"]
    assert regard("train", corpus / "capitals.yaml", "--run", tmp_path / "run", "--quiet", *valid).code == 0
    ((weights, pairs, gold, best),) = asked
    assert (pairs, gold) == (pairs_of(corpus), read_links(corpus / "short.align"))
    model = package.load(tmp_path / "run")
    assert model.reading == Reading(head=0, shift=1)
    assert json.loads((tmp_path / "run" / "model" / "config.json").read_text())["reading"] == {"head": 0, "shift": 1}
    assert (model.align(pairs[:3], Reading())[2].weights == weights).all()  # it was chosen for the weights that were saved
    assert best == choose_reading(model, pairs, gold)


def test_a_run_refuses_gold_that_does_not_fit_before_it_trains(corpus, tmp_path):
    valid = [f"data.valid.alignment={corpus / 'long.align'}", *TINY]
    told = refused("train", corpus / "capitals.yaml", "--run", tmp_path / "run", "--quiet", *valid)
    assert told == f"{corpus / 'long.align'}: 20 lines of gold alignments for 40 pairs"
    assert not list(tmp_path.glob("run/checkpoints/*"))


def test_a_run_without_attention_has_no_reading_to_choose(corpus, tmp_path):
    valid = [f"data.valid.{side}={corpus}/short.{side}" for side in ("source", "target")]
    words = ["sutskever2014-small", "--source", corpus / "train.source", "--target", corpus / "train.target", *valid, *TINY]
    words += [f"data.valid.alignment={corpus / 'short.align'}", "training.updates=1", "--run", tmp_path / "run", "--quiet"]
    assert regard("train", *words).code == 0
    assert load_model(tmp_path / "run").reading == Reading()


def test_look_shows_the_reading_asked_for(trained):
    own = regard("look", trained, "amicus bellum hortus").out
    assert regard("look", trained, "amicus bellum hortus", "--shift", "0", "--head", "-1").out == own
    assert regard("look", trained, "amicus bellum hortus", "--shift", "1").out != own


def test_what_is_refused(trained, blind, backward, corpus, tmp_path):
    def told(*words):
        return refused("align", trained, *words)

    unequal = ["--source", corpus / "short.source", "--target", corpus / "long.target"]
    message = f"{corpus / 'short.source'}:21: no line to go with it: {corpus / 'long.target'} has only 20 lines"
    assert told(*unequal) == message
    (tmp_path / "gold").write_text("0-0\n" * 7 + "0-0 1:1\n")
    assert told(*files(corpus), "--gold", tmp_path / "gold").startswith(f"{tmp_path / 'gold'}:8: '1:1' is not a link")
    wrong = f"{corpus / 'long.align'}: 20 lines of gold alignments for 40 pairs"
    assert told(*files(corpus), "--gold", corpus / "long.align") == wrong
    (tmp_path / "bytes").write_bytes(b"a\nb\xff\n")
    assert told("--source", tmp_path / "bytes", "--target", corpus / "short.target").startswith(f"{tmp_path / 'bytes'}:2: not")
    assert "nothing to align by" in refused("align", blind, *files(corpus))
    assert told(*files(corpus), "--reverse", blind).startswith(f"{blind}: this model has no attention")
    assert "give --gold" in told(*files(corpus), "--choose")
    assert "--reverse" in told(*files(corpus), "--symmetrise", "union")
    assert "--reverse" in told(*files(corpus), "--agree", "0.5")
    both = ["--reverse", backward, "--agree", "0.5", "--symmetrise", "union"]
    assert "not both" in told(*files(corpus), *both)
    unknown = told(*files(corpus), "--reverse", backward, "--symmetrise", "grow-diag")
    assert unknown == "unknown symmetrisation 'grow-diag'; did you mean 'grow_diag'?"


@pytest.fixture(scope="module")
def spelled(tmp_path_factory):
    """Letters into phonemes: a source without spaces."""
    folder, letters = tmp_path_factory.mktemp("spelled"), "abdefgiklmnoprstu"
    chance = random.Random(1)
    words = ["".join(chance.choices(letters, k=chance.randint(2, 5))) for _ in range(100)]
    (folder / "g2p.tsv").write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in words))
    tiny = ["training.updates=2", "model.encoder.hidden_size=8", "model.decoder.hidden_size=8", "decoding.max_length=9"]
    assert regard("train", "--pairs", folder / "g2p.tsv", "--run", folder / "run", "--quiet", *tiny).code == 0
    return folder / "run"


def test_a_word_without_spaces_is_shown_and_aligned_by_its_letters(spelled, tmp_path):
    shown = regard("look", spelled, "kilo", "--target", "K I L O").out
    assert re.search(r"^ +k  i  l  o  >$", shown, flags=re.MULTILINE)
    found = package.load(spelled).align(("kilo", "K I L O"))
    assert (found.source, found.target) == (list("kilo"), list("KILO"))
    np.testing.assert_allclose(found.weights.sum(axis=1) + found.end, 1, rtol=1e-5)
    (tmp_path / "s").write_text("kilo\n")
    (tmp_path / "t").write_text("K I L O\n")
    result = regard("align", spelled, "--source", tmp_path / "s", "--target", tmp_path / "t")
    assert parsed(result.lines) == [found.links]
    assert {target for _, target in found.links} == set(range(4))
    assert "the source has no spaces between words: its tokens are counted" in result.err
    assert package.load(spelled).align(("kilo", "K I L O"), tokens=(False, False)).source == ["kilo"]
