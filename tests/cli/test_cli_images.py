"""Images by the commands that people type: trained on, captioned, judged by boxes, looked at."""

import re

import numpy as np
import pytest
from calling import refused
from calling import regard as command

from regard.corpora import CORPORA, write
from regard.insight.panels import Panels

pillow = pytest.importorskip("PIL.Image")
SMALL = [
    "data.corpus.size=24", "training.updates=6", "training.validate_every=6", "training.log_every=3", "training.save_every=3",
    "model.encoder.input.channels=[4,4,4]", "model.encoder.embedding_size=8", "model.decoder.hidden_size=8",
    "model.decoder.feedforward_size=8", "training.device=cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    code, out, err = command("train", "scenes", "--run", folder / "run", *SMALL)
    assert (code, out) == (0, ""), err
    assert "source: image of 48 x 48 x 3" in err
    assert "    pointing " in err  # beside the metric that decides
    return folder / "run"


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    """Sixty pictures in a folder, with their texts and a table."""
    folder = tmp_path_factory.mktemp("shots")
    paths = write(CORPORA["scenes"], folder / "corpus", size=60)["train"]
    captions = paths["target"].read_text().splitlines()
    (folder / "shots").mkdir()
    for row, (pixels, caption) in enumerate(zip(np.load(paths["source"]), captions, strict=True)):
        pillow.fromarray(pixels).save(folder / "shots" / f"{row:02}.png")
        (folder / "shots" / f"{row:02}.txt").write_text(f"{caption}\n")
    (folder / "t.tsv").write_text("".join(f"shots/{row:02}.png\t{caption}\n" for row, caption in enumerate(captions)))
    return folder


def test_a_picture_is_captioned_and_a_bad_name_is_told(run):
    array = run / "corpus" / "test.npy"
    code, out, err = command("generate", run, stdin=f"{array}#1\nnone.png\n{array}#501\n".encode())
    assert (code, out.count("\n")) == (2, 3)
    assert "<stdin>:2: none.png: no such file" in err
    assert f"<stdin>:3: {array}#501: the array has 500 rows, counted from 1, and no row 501" in err


def test_pointing_is_judged_where_boxes_are_known(run):
    code, out, err = command("evaluate", run, "--metric", "pointing", "--metric", "exact")
    assert code == 0, err
    assert out.count("  pointing") == 2
    assert "test-new: 300 pairs" in out
    told = refused("evaluate", run, "--source", run / "corpus" / "test.npy", "--target", run / "corpus" / "test.caption",
                   "--metric", "pointing")  # fmt: skip
    assert "the metric pointing needs what this model or this test set does not give (boxes)" in told


def test_a_look_is_laid_over_the_picture(run, tmp_path):
    name = f"{run / 'corpus' / 'test.npy'}#3"
    files = {kind: tmp_path / f"look.{kind}" for kind in ("png", "svg", "pdf", "html")}
    options = [word for kind, path in files.items() for word in (f"--{kind}", path)]
    code, out, err = command("look", run, name, "--target", "a red circle", *options)
    assert code == 0, err
    assert [line.split(" ")[0] for line in out.splitlines() if "at the most" in line] == ["a", "red", "circle"]
    assert sum(line.startswith("  |") for line in out.splitlines()) == 3 * 12
    with pillow.open(files["png"]) as picture:
        assert picture.width > 3 * picture.height > 600  # four panels in a row
    assert "<svg" in files["svg"].read_text()
    assert "a red circle" in files["html"].read_text()
    assert "data:image/png;base64," in files["html"].read_text()
    assert files["pdf"].read_bytes().startswith(b"%PDF")


def test_several_pictures_have_numbers_and_one_page(run, tmp_path):
    names = [f"{run / 'corpus' / 'test.npy'}#{number}" for number in (1, 2)]
    code, out, err = command("look", run, *names, "--png", tmp_path / "a.png", "--html", tmp_path / "a.html")
    assert code == 0, err
    assert all((tmp_path / f"a-{number}.png").is_file() for number in (1, 2))
    page = (tmp_path / "a.html").read_text("utf-8")
    assert page.count("<figure>") == page.count("<img") == 2
    largest = re.findall(r"^(\S+) \((\d\.\d\d) at the most\)", out, flags=re.MULTILINE)
    told = re.findall(r"<li>(\S+): row \d+ of 12, column \d+ of 12, (\d\.\d+)</li>", page)
    assert [word for word, _ in told] == [word for word, _ in largest]
    np.testing.assert_allclose([float(weight) for _, weight in told], [float(weight) for _, weight in largest], atol=0.006)


def test_what_cannot_be_looked_at_is_said(run):
    assert "none.png: no such file" in refused("look", run, "none.png")
    assert "--past is about texts" in refused("look", run, f"{run / 'corpus' / 'test.npy'}#1", "--past")


def test_images_are_recognised_without_a_recipe(shots, tmp_path):
    small = ["training.updates=1", "model.encoder.input.channels=[4,4,4,4]", "model.decoder.hidden_size=8"]
    for number, rows in enumerate((shots / "t.tsv", shots / "shots")):
        code, _, err = command("train", "--pairs", rows, "--run", tmp_path / f"run{number}", *small)
        assert code == 0, err
        assert "the sources name images (48 x 48 pixels): a model for captions, as the recipe xu2015-small has it" in err
        assert "data.fields.source={kind: image, height: 48, width: 48}" in err


def test_a_word_that_looks_like_a_file_is_no_image(tmp_path):
    """Sources that end as images do, and are none."""
    (tmp_path / "t.tsv").write_text("".join(f"word{row}.png\tw o r d {row % 7}\n" for row in range(60)))
    code, _, err = command("train", "--pairs", tmp_path / "t.tsv", "--run", tmp_path / "run", "training.updates=1")
    assert code == 0, err
    assert "name images" not in err


def test_augmentations_are_checked(run, tmp_path):
    told = refused("train", "scenes", "--run", tmp_path / "run", "training.augment={flip: 1}")
    assert "unknown change of images in training.augment 'flip'" in told
    told = refused("train", "demo", "--run", tmp_path / "run", "training.augment={shift: 1}")
    assert "training.augment changes images, and this model reads none" in told


def test_a_pixel_glows_where_its_region_was_looked_at():
    """The peak of a map is at the middle of its cell, and between two cells half way lies half of each."""
    weights = np.zeros((2, 3, 4), np.float32)
    weights[0, 1, 2] = 0.7
    weights[1, 0, :2] = [0.2, 0.4]
    maps = Panels(np.zeros((30, 40, 3), np.uint8), ["a", "b"], weights).maps
    assert maps.shape == (2, 30, 40)
    peaks = np.argwhere(maps[0] > 0.9)
    assert (peaks.min(axis=0).tolist(), peaks.max(axis=0).tolist()) == ([14, 24], [15, 25])
    assert maps[0, :5].max() == 0
    assert maps[1, 0, 9] == pytest.approx((0.2 * 0.55 + 0.4 * 0.45) / (0.2 * 0.05 + 0.4 * 0.95), abs=1e-6)


@pytest.fixture(scope="module")
def classifier(shots):
    """Of what the first thing in a picture is."""
    rows = [line.split("\t") for line in (shots / "t.tsv").read_text().splitlines()]
    (shots / "labels.tsv").write_text("".join(f"{name}\t{caption.split()[2]}\n" for name, caption in rows))
    (shots / "classifier.yaml").write_text("""
data: {fields: {source: {kind: image}}, batch_tokens: 64, held_out: 10}
model:
  kind: classifier
  encoder: {kind: identity, embedding_size: 8, input: {kind: convolutions, channels: [4, 4], strides: [4, 2], norm: group}}
training: {updates: 2, warmup: 1, validate_every: 2, label_smoothing: 0}
""")
    words = ["--pairs", shots / "labels.tsv", "--column", "source=0", "--column", "label=1", "--run", shots / "classifier"]
    assert command("train", shots / "classifier.yaml", *words, "--quiet") == (0, "", "")
    return shots / "classifier"


def test_pictures_are_labelled_and_a_bad_one_says_what_is_wrong(classifier, shots):
    (shots / "no.png").write_bytes(b"no picture")
    names = [shots / "shots" / "00.png", shots / "none.png", shots / "no.png", shots / "shots" / "01.png"]
    code, out, err = command("predict", classifier, stdin="".join(f"{name}\n" for name in names).encode())
    lines = out.split("\n")
    assert (code, lines[1:3], bool(lines[0] and lines[3])) == (2, ["", ""], True)
    assert f"<stdin>:2: {names[1]}: no such file; it has no labels" in err
    assert f"<stdin>:3: {names[2]}: not an image that can be read" in err
    code, out, _ = command("evaluate", classifier, "--pairs", shots / "labels.tsv")
    assert (code, out.startswith("test: 60 rows")) == (0, True)
