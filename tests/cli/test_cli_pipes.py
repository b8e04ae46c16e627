"""Pipes are read once and copied; the log's reader may go away; what is no file is refused."""

import gzip
import os
import pty
import shutil
import socket
import subprocess
import sys
from threading import Thread

import pytest
from calling import forked, refused, regard
from capitals import TINY

from regard.data.formats import SIGNS
from regard.data.readers import READERS
from regard.data.sealed import verify
from regard.recipe import read


def fifo(path, content):
    """A pipe that somebody writes to once."""
    os.mkfifo(path)
    Thread(target=lambda: path.write_bytes(content), daemon=True).start()
    return path


def digest(run):
    return {name: (run / "model" / name).read_bytes() for name in ("model.safetensors", "config.json")}


@pytest.fixture
def texts(corpus):
    return {side: (corpus / f"train.{side}").read_bytes() for side in ("source", "target")}


@pytest.fixture(scope="module")
def plain(corpus, tmp_path_factory):
    """A run on the files themselves."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    files = ["--source", corpus / "train.source", "--target", corpus / "train.target"]
    assert regard("train", *files, "--run", folder, "--quiet", *TINY) == (0, "", "")
    return folder


def test_two_pipes_train_as_files_do_and_the_run_keeps_what_came(plain, texts, tmp_path):
    pipes = [fifo(tmp_path / "source", texts["source"]), fifo(tmp_path / "target.gz", gzip.compress(texts["target"]))]
    run = tmp_path / "run"
    code, _, err = regard("train", "--source", pipes[0], "--target", pipes[1], "--run", run, *TINY)
    assert code == 0
    assert err.count(f"a copy of the rows is kept in {run / 'spooled'}") == 1
    assert digest(run) == digest(plain)
    verify(run / "spooled")
    assert (run / "spooled" / "source").read_bytes() == texts["source"]
    assert gzip.decompress((run / "spooled" / "target.gz").read_bytes()) == texts["target"]


def test_a_run_from_a_pipe_goes_on_without_it_and_refuses_another_text(texts, tmp_path):
    run, words = tmp_path / "run", [*TINY, "training.validate_every=4"]
    pipes = {side: fifo(tmp_path / side, texts[side]) for side in texts}
    files = ["--source", pipes["source"], "--target", pipes["target"]]
    assert regard("train", *files, "--run", run, "--quiet", *words) == (0, "", "")
    shutil.rmtree(run / "data")  # so that it reads the text again
    assert regard("train", "--run", run, "--resume", "--quiet", "training.updates=6").code == 0
    for side, path in pipes.items():
        path.unlink()
        fifo(path, texts[side])
    assert regard("train", *files, "--run", run, "--resume", "--quiet", *words, "training.updates=8").code == 0
    for path in pipes.values():
        path.unlink()
        fifo(path, b"a\nb\nc\n")
    assert "began with other text than is given now" in refused("train", *files, "--run", run, "--resume", *words)


def test_a_pipe_of_pairs_shows_its_kind(corpus, texts, tmp_path):
    assert SIGNS.keys() == READERS.keys()
    sides = (texts[side].decode().splitlines() for side in texts)
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True))
    tsv, plain = tmp_path / "pairs.tsv", tmp_path / "plain"
    tsv.write_text(rows)
    assert regard("train", "--pairs", tsv, "--run", plain, "--quiet", *TINY) == (0, "", "")
    piped = fifo(tmp_path / "63", gzip.compress(rows.encode()))
    assert regard("train", "--pairs", piped, "--run", tmp_path / "run", "--quiet", *TINY) == (0, "", "")
    assert (tmp_path / "run" / "spooled" / "pairs.tsv.gz").exists()
    assert digest(tmp_path / "run") == digest(plain)
    told = refused("train", "--pairs", fifo(tmp_path / "64", b"no tab\n"), "--run", tmp_path / "other")
    assert told.startswith(
        f"{tmp_path / '64'}: not a table: its first line is not JSON and has no tab and no |||, and commas do not"
    )


def test_evaluate_and_align_read_pipes(trained, corpus, tmp_path):
    names = {"source": "short.source", "target": "short.target", "alignment": "short.align", "gold": "short.align"}

    def both(verb, *wanted):
        files = [word for name in wanted for word in (f"--{name}", corpus / names[name])]
        for name in wanted:
            (tmp_path / name).unlink(missing_ok=True)
        pipes = [word for name in wanted for word in (f"--{name}", fifo(tmp_path / name, (corpus / names[name]).read_bytes()))]
        return regard(verb, trained, *files, "--json"), regard(verb, trained, *pipes, "--json")

    for verb, *wanted in (["evaluate", "source", "target", "alignment"], ["align", "source", "target", "gold"]):
        plain, piped = both(verb, *wanted)
        assert plain == piped
        assert plain.code == 0


def test_tables_for_validation_and_tests_come_through_pipes_too(corpus, tmp_path):
    tables, run = {}, tmp_path / "run"
    for name in ("train", "short", "long"):
        sides = [(corpus / f"{name}.{side}").read_text(encoding="utf-8").splitlines() for side in ("source", "target")]
        tables[name] = "".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True)).encode()
    pipes = {"pairs": "train", "valid-pairs": "short", "test-pairs": "long"}
    words = [word for option, name in pipes.items() for word in (f"--{option}", fifo(tmp_path / name, tables[name]))]
    assert regard("train", *words, "--run", run, "--quiet", *TINY) == (0, "", "")
    data = read(run / "recipe.yaml").data
    for pairs, name in ((data.train, "train"), (data.valid, "short"), (data.test["test"], "long")):
        assert pairs.pairs.parent == run / "spooled"
        assert pairs.pairs.read_bytes() == tables[name]


def test_standard_input_as_a_source(corpus, texts, tmp_path):
    words = ["train", "--source", "/dev/stdin", "--target", corpus / "train.target", *TINY]
    with (corpus / "train.source").open("rb") as file:
        for name, stdin, text in (("pipe", subprocess.PIPE, texts["source"]), ("file", file, None)):
            process = forked(*words, "--run", tmp_path / name, "--quiet", stdin=stdin)
            assert process.communicate(text, timeout=120)[1] == b""
            assert process.returncode == 0
            assert (tmp_path / name / "spooled" / "source").read_bytes() == texts["source"]


def test_what_is_no_file_is_refused_in_one_sentence(corpus, tmp_path, monkeypatch):
    pipe, name = fifo(tmp_path / "pipe", b""), str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        for path, told in ((tmp_path, "a directory"), ("/dev/null", "a device"), (name, "a socket")):
            words = ["train", "--source", path, "--target", corpus / "train.target", "--run", tmp_path / "run"]
            assert refused(*words) == f"{path}: {told}; name a file of text"
    recipe = ["train", "demo", "data.corpus=null", f"data.train.source={pipe}", f"data.train.target={corpus / 'train.target'}"]
    assert "a pipe, which can be read only once: write it to a file" in refused(*recipe, "--run", tmp_path / "run")
    twice = ["train", "--source", pipe, "--target", pipe, "--run", tmp_path / "run"]
    assert "the same pipe twice" in refused(*twice)
    monkeypatch.setenv("WORLD_SIZE", "2")
    one = ["train", "--source", pipe, "--target", corpus / "train.target", "--run", tmp_path / "run"]
    assert "a pipe, which several processes cannot read" in refused(*one)


def logged(corpus, run, **options):
    files = ["--source", corpus / "train.source", "--target", corpus / "train.target"]
    return forked("train", *files, "--run", run, *TINY, "training.log_every=1", **options)


def test_training_goes_on_when_the_reader_of_its_log_goes_away(corpus, plain, tmp_path):
    process = logged(corpus, tmp_path / "run", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout.readline()
    process.stdout.close()
    process.stdin.close()
    assert process.wait(timeout=120) == 0
    assert digest(tmp_path / "run") == digest(plain)


def test_training_goes_on_when_its_log_is_full(corpus, plain, tmp_path):
    with open("/dev/full", "w") as full:
        process = logged(corpus, tmp_path / "run", stderr=full)
        assert process.communicate(timeout=120)[0] == b""
    assert process.returncode == 0
    assert digest(tmp_path / "run") == digest(plain)


def test_training_goes_on_when_its_terminal_is_closed(corpus, plain, tmp_path):
    ours, theirs = pty.openpty()
    process = logged(corpus, tmp_path / "run", stderr=theirs)
    os.close(theirs)
    assert os.read(ours, 1)
    os.close(ours)
    assert process.communicate(timeout=120)[0] == b""
    assert process.returncode == 0
    assert digest(tmp_path / "run") == digest(plain)


def test_training_without_standard_error_and_a_mistake_with_a_full_one(corpus, plain, tmp_path):
    files = ["--source", corpus / "train.source", "--target", corpus / "train.target", "--run", tmp_path / "run"]
    words = " ".join(map(str, [sys.executable, "-m", "regard", "train", *files, *TINY]))
    assert subprocess.run(["bash", "-c", f"{words} 2>&-"]).returncode == 0
    assert digest(tmp_path / "run") == digest(plain)
    assert subprocess.run(["bash", "-c", f"{words} 2> /dev/full"]).returncode == 2  # there is a run already
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m regard generate {plain} <&-"], capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: standard input is closed")
