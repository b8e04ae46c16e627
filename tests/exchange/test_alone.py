"""What lies beside an exported model runs without regard and without torch, and cuts text as regard does."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from exchanged import bundle, save, sources
from test_data_lossless import CLEAN, LINES
from tiny_transformer import section

from regard.data.marian_tokenizer import MarianTokenizer
from regard.data.tokenizer_files import TOKENIZER_FILES
from regard.data.tokenizers import END, PAD, START, TOKENIZERS, UNKNOWN, fitter_of, load_tokenizer, train_tokenizer
from regard.decoding.generator import TrainedGenerator
from regard.exchange import EXPORTS, export
from regard.recipe import Tokenizer as Section

ALONE = Path(__file__).parents[2] / "regard" / "exchange" / "alone"
STRANGE = ["", " ", "Ωmega ⁇", "Hund Hund", " x\ty ", *LINES[::37]]


@pytest.fixture
def alone():
    found = importlib.util.spec_from_file_location("exported_tokenizer", ALONE / "tokenizer.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def agree(alone, tokenizer, folder, lines=STRANGE):
    tokenizer.save(folder)
    theirs, ours = alone.Tokenizer(folder), load_tokenizer(folder)
    for line in lines:
        ids = ours.encode([line])[0]
        assert theirs.encode(line) == ids, line
        for written in (ids, [START, *ids, END, PAD], [*ids, UNKNOWN]):
            assert theirs.decode(written) == ours.decode(written), line


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("options", [{"size": 400}, {"size": 1200, "lowercase": True, "longest": 3}])
def test_every_tokenizer_cuts_and_joins_as_ours(alone, kind, options, tmp_path):
    agree(alone, train_tokenizer(Section(kind=kind, **options), LINES[::5] + CLEAN), tmp_path / "one")


def test_a_file_of_sentencepiece_too(alone, tmp_path):
    from test_tokenizer_files import pieces

    pieces(tmp_path / "theirs.model", vocab_size=60)
    agree(alone, fitter_of(Section(file=tmp_path / "theirs.model")).finish(), tmp_path / "one")


def test_those_of_marian_too(alone, tmp_path):
    import opus

    pieces = [piece for piece in opus.write_tokenizers(tmp_path) if piece not in ("</s>", "<unk>", "<pad>")]
    agree(alone, MarianTokenizer((tmp_path / "source.spm").read_bytes(), pieces), tmp_path / "one", [">>deu<< old x", *STRANGE])


def test_no_kind_is_forgotten(alone):
    assert alone.KINDS.keys() == {*TOKENIZERS, MarianTokenizer.kind, *(kind.kind for kind in TOKENIZER_FILES.values())}


@pytest.mark.parametrize("to", [pytest.param(to, marks=pytest.mark.slow) if to == "onnx" else to for to in EXPORTS])
def test_the_example_writes_what_we_write(to, tmp_path):
    """In a process that cannot import regard or torch."""
    given, lines = bundle(section(), beam=1, max_length=9), [*sources(9, 6), ""]
    export(save(given, tmp_path / "model"), to, tmp_path / "out")
    code = """
import runpy, sys
sys.modules |= {"regard": None, "torch": None}
sys.path.insert(0, ".")
runpy.run_path("generate.py", run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "out",
        input="".join(f"{line}\n" for line in lines),
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    wanted = TrainedGenerator(given).generate(lines, max_ratio=1000.0)
    assert done.stdout.split("\n")[:-1] == wanted
