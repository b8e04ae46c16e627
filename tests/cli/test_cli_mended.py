"""What was wrong once."""

import os
import pty
import signal
import stat

from calling import forked, refused, regard
from capitals import TINY

import regard as package
from regard.training import loop


def test_a_mended_file_can_be_tried_again(corpus, tmp_path):
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_bytes(b"a\n\xff\nc\n")
    target.write_bytes(b"A\nB\nC\n")
    valid = ["--valid-source", corpus / "short.source", "--valid-target", corpus / "short.target"]
    words = ["train", "--source", source, "--target", target, *valid, "--run", tmp_path / "run", "--quiet", *TINY]
    assert "not UTF-8" in refused(*words)
    source.write_bytes(b"a\nb\nc\n")
    assert regard(*words) == (0, "", "")


def test_validation_files_beside_a_generated_corpus_are_used(corpus, tmp_path):
    valid = ["--valid-source", corpus / "short.source", "--valid-target", corpus / "short.target"]
    code, _, err = regard("train", "demo", "data.corpus.size=20", *valid, "--run", tmp_path / "run", *TINY)
    assert code == 0
    assert "20 training rows, 40 for validation" in err


def test_resuming_with_fewer_updates_than_were_made_leaves_a_model(corpus, tmp_path, monkeypatch):
    def update(self, progress):
        original(self, progress)
        if progress.step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    original = loop.Trainer.update
    monkeypatch.setattr(loop.Trainer, "update", update)
    assert regard("train", corpus / "capitals.yaml", "--run", tmp_path, "--quiet") == (130, "", "")
    assert regard("train", "--run", tmp_path, "--resume", "training.updates=4", "--quiet") == (0, "", "")
    assert len(package.load(tmp_path).generate(["amicus"])) == 1


def test_an_unknown_device_is_refused(trained):
    assert "auto" in refused("generate", trained, "--device", "gpu")


def test_others_may_read_a_model(trained):
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (trained / "model").iterdir() if file.is_file()}
    assert len(modes) == 1


def test_one_bar_on_a_terminal_that_gives_the_cursor_back(corpus, tmp_path):
    ours, theirs = pty.openpty()
    process = forked("train", corpus / "capitals.yaml", "training.updates=3", "--run", tmp_path / "run", stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 1 << 16):
            shown += block
    except OSError:  # Linux: the other side was closed
        pass
    os.close(ours)
    process.communicate()
    assert process.returncode == 0
    assert b"3/3" in shown
    assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h") == 1
    assert b"0/0" not in shown
