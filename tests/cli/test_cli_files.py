"""Whole files: the same bytes whatever number of processes and size of batches, in constant memory, and what happens when
something ends them."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from calling import forked, refused, regard
from capitals import WORDS

from regard.decoding.files import parts
from regard.decoding.load import load
from regard.decoding.trained import Answers
from regard.decoding.workers import Workers
from regard.errors import UserError


def some_lines(count, seed=1):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(0, 6))) for _ in range(count)]


def raw(lines):
    return "".join(f"{line}\n" for line in lines).encode()


def outputs(run, lines):
    """What Python gives, all lines at once."""
    return load(run).generate(lines, beam=1)


@pytest.fixture(
    params=[["--beam", "1"], ["--sample", "--n-best", "2"], ["--n-best", "3", "--moses"]], ids=["greedy", "sample", "beam"]
)
def how(request):
    return request.param


def test_the_same_bytes_for_any_number_of_processes_and_size_of_batches(trained, how, tmp_path, monkeypatch):
    """Text, scores and links; a window ends in the middle of the file."""
    monkeypatch.setattr("regard.cli.asking.BLOCK", 90)
    stdin, found = raw(some_lines(200)), {}
    for name, words in {
        "1": ["--processes", 1],
        "3": ["--processes", 3],
        "small": ["--processes", 2, "batch_tokens=40"],
    }.items():
        links = tmp_path / "links"
        result = regard("generate", trained, *words, *how, "--alignments", links, stdin=stdin)
        assert result.code == 0
        found[name] = result.out, links.read_text()
    assert found["1"] == found["3"]
    texts = [[row.split(" ||| ")[:2] for row in out.split("\n")] for out, _ in (found["1"], found["small"])]
    assert texts[0] == texts[1]  # scores may differ in the last digit
    assert found["1"][1] == found["small"][1]


def test_a_line_in_is_a_line_out_in_order(trained):
    lines = some_lines(300)
    assert regard("generate", trained, "--processes", 2, "--beam", 1, stdin=raw(lines)).lines == outputs(trained, lines)


def test_lines_that_are_alike_are_answered_once(trained, monkeypatch):
    from regard.decoding.generator import TrainedGenerator

    original, asked = TrainedGenerator.answer, []

    def answer(self, texts, **more):
        asked.extend(texts)
        return original(self, texts, **more)

    monkeypatch.setattr(TrainedGenerator, "answer", answer)
    lines = ["amicus", "canis", "amicus", "", "amicus", "canis"] * 20
    assert regard("generate", trained, "--processes", 1, stdin=raw(lines)).lines == [line.upper() for line in lines]
    assert sorted(asked) == ["", "amicus", "canis"]


def test_files_by_name(trained, tmp_path):
    lines = some_lines(50)
    (tmp_path / "in.gz").write_bytes(gzip.compress(raw(lines)))
    (tmp_path / "in").write_bytes(raw(lines)[:-1])  # no line feed at the end
    for name in ("in", "in.gz"):
        assert regard("generate", trained, "--input", tmp_path / name, "--output", tmp_path / "out", "--beam", 1) == (0, "", "")
        assert (tmp_path / "out").read_bytes() == raw(outputs(trained, lines))
    (tmp_path / "empty").touch()
    assert regard("generate", trained, "--input", tmp_path / "empty") == (0, "", "")
    assert (
        refused("generate", trained, "--input", tmp_path / "no")
        == f"{tmp_path / 'no'}: cannot be read: No such file or directory"
    )
    assert refused("generate", trained, "--input", tmp_path) == f"{tmp_path}: a directory; name a file of text"
    same = refused("generate", trained, "--input", tmp_path / "in", "--output", tmp_path / "in")
    assert same == f"{tmp_path / 'in'}: --input and --output are the same file"
    assert (tmp_path / "in").read_bytes() == raw(lines)[:-1]


def test_wrong_lines_are_named_by_their_numbers(trained, tmp_path, monkeypatch):
    """Over windows, and over processes."""
    monkeypatch.setattr("regard.cli.asking.BLOCK", 40)
    monkeypatch.setattr("regard.data.lines.LONGEST", 1 << 10)
    rows = [line.encode() for line in some_lines(100)]
    rows[50], rows[60], rows[70] = b"a" * 5000, b"amicus \xff", b"amicus\0 canis"
    (tmp_path / "in").write_bytes(b"\n".join(rows) + b"\n")
    result = regard("generate", trained, "--input", tmp_path / "in", "--processes", 2, "--beam", 1)
    assert result.code == 2
    assert result.err.split("\n") == [
        f"warning: {tmp_path / 'in'}:61: not UTF-8: byte 0xff at byte 8 of the line is read as U+FFFD",
        f"error: {tmp_path / 'in'}:51: longer than 0 MB; is this a text file?; its output is empty",
        "",
    ]
    assert len(result.lines) == 100
    assert result.lines[50] == ""
    assert all(result.lines[at] for at in (60, 70))
    others = [at for at in range(100) if at not in (50, 60, 70)]
    assert [result.lines[at] for at in others] == outputs(trained, [rows[at].decode() for at in others])


def test_many_lines_that_are_not_utf8_are_counted(trained):
    result = regard("generate", trained, "--beam", 1, stdin=b"canis \xe9\n" * 12)
    assert result.err.count("not UTF-8: byte 0xe9 at byte 7") == 5
    assert "warning: 7 more lines are not UTF-8\n" in result.err


def test_an_object_tells_all_that_is_known(trained):
    stdin = b'"amicus bellum"\n""\n'
    one, nothing = map(json.loads, regard("generate", trained, "--jsonl", "--details", stdin=stdin).lines)
    assert (one["output"], one["tokens"], one["alignment"], one["end"]) == (
        "AMICUS BELLUM", ["▁AMICUS", "▁BELLUM"], "0-0 1-1", "end mark",
    )  # fmt: skip
    assert sum(one["token_scores"]) == pytest.approx(one["log_prob"], abs=1e-5)
    assert len(one["token_scores"]) == 3
    assert nothing == {"source": "", "output": "", "score": 0.0}
    (listed,) = map(json.loads, regard("generate", trained, "--jsonl", "--details", "--n-best", 2, stdin=b'"canis"').lines)
    assert [sorted(each) for each in listed["n_best"]] == [
        ["alignment", "end", "log_prob", "output", "score", "token_scores", "tokens"]
    ] * 2
    plain = regard("generate", trained, "--token-scores", stdin=b"amicus bellum\n\n").out
    text, scores = plain.split("\n")[0].split("\t")
    assert (text, [float(score) for score in scores.split()]) == ("AMICUS BELLUM", one["token_scores"])
    assert plain.split("\n")[1] == "\t"


def test_lists_for_moses(trained):
    rows = [row.split(" ||| ") for row in regard("generate", trained, "--n-best", 2, "--moses", stdin=b"amicus canis\n").lines]
    for number, text, features, total in rows:
        name, log_prob, other, length = features.split(" ")
        assert (number, name, other) == ("0", "LogProb=", "Length=")
        assert int(length) == len(text.split()) + 1
        assert float(total) == pytest.approx(float(log_prob) / int(length), abs=1e-5)  # length_penalty is 1


def test_options_that_do_not_go_together(trained):
    assert refused("generate", trained, "--details") == "--details are the keys of an object: add --jsonl"
    assert "add --n-best" in refused("generate", trained, "--moses")
    assert "add --jsonl" in refused("generate", trained, "--token-scores", "--n-best", 2)


def test_parts_have_each_text_once_and_the_longest_first():
    items = [(text, "") for text in ["aaa", "a", "", "aaa", "bb"] * 3 + [f"{number}" * 4 for number in range(40)]]
    found = parts([*items, ("aaa", '{"ban": "x"}')])
    assert sorted(item for part in found for item in part) == sorted({*items, ("aaa", '{"ban": "x"}')})
    lengths = [sum(map(len, item)) for part in found for item in part]
    assert lengths == sorted(lengths, reverse=True)
    assert max(map(len, found)) == 16


def test_what_an_object_asks_of_its_output_is_its_own(trained):
    """Equal texts are answered together where nothing else is asked of them."""
    rows = [{"source": "amicus canis", **more} for more in ({}, {"prefix": "LIBER"}, {}, {"prefix": "DOMUS"})]
    out = regard("generate", trained, "--jsonl", stdin=raw(map(json.dumps, rows))).lines
    found = [json.loads(line)["output"] for line in out]
    assert found[0] == found[2] == "AMICUS CANIS"
    assert (found[1].split()[0], found[3].split()[0]) == ("LIBER", "DOMUS")


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_killed_process_is_an_error_and_no_hang():
    def work(job):
        if job == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return job

    with Workers(2, work) as workers, pytest.raises(UserError, match=r"one of 2 processes .* was ended by SIGKILL"):
        list(workers.each(range(6)))
    assert all(process.exitcode is not None for process in workers.processes.values())
    with Workers(2, lambda job: Answers([job / 0], {})) as workers, pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(workers.each([1, 2]))


def alive(pid):
    """Not gone, and not only waiting to be counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("signals", ["interrupt", "kill"])
def test_what_has_been_written_is_whole_when_it_is_ended(trained, tmp_path, signals):
    """Ctrl-C, which a terminal sends to all processes: whole lines in order, 130, and nobody is left."""
    lines = some_lines(200_000)
    (tmp_path / "in").write_bytes(raw(lines))
    words = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--processes", 2, "--beam", 1]
    process = forked("generate", trained, *words, start_new_session=True)
    while not (tmp_path / "out").exists() or (tmp_path / "out").stat().st_size < 1000:
        assert process.poll() is None
        time.sleep(0.02)
    workers = children(process.pid)
    assert len(workers) == 2
    if signals == "interrupt":
        os.killpg(process.pid, signal.SIGINT)
    else:
        os.kill(workers[0], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if signals == "interrupt" else 2)
    assert b"Traceback" not in err
    assert (b"was ended by SIGKILL" in err) == (signals == "kill")
    written = (tmp_path / "out").read_text().split("\n")
    assert written[-1] == ""
    assert written[:-1] == outputs(trained, lines[: len(written) - 1])
    deadline = time.monotonic() + 10
    while any(map(alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_reader_that_goes_away_ends_the_processes_quietly(trained, tmp_path):
    (tmp_path / "in").write_bytes(raw(some_lines(50_000)))
    with forked("generate", trained, "--input", tmp_path / "in", "--processes", 2, "--beam", 1) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) != 0
        assert process.stderr.read() == b""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(trained, tmp_path):
    """200,000 short lines in the memory of 5,000."""
    code = """
import re, resource, sys
from pathlib import Path
from regard.cli import main
try:
    main()
finally:
    own = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
    print(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""
    peaks = []
    for count in (5_000, 200_000):
        (tmp_path / "in").write_bytes(raw(some_lines(count)))
        words = [
            "generate",
            trained,
            "--input",
            tmp_path / "in",
            "--output",
            tmp_path / "out",
            "--beam",
            "1",
            "--processes",
            "2",
        ]
        done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=True)
        peaks.append([int(number) for number in done.stderr.split()])
        assert (tmp_path / "out").read_bytes().count(b"\n") == count
    for small, large in zip(*peaks, strict=True):
        assert large < small + 30_000  # kilobytes


def test_an_output_is_written_without_what_it_does_not_need(trained):
    """Each of these would make every call of the command wait."""
    unneeded = ["sacrebleu", "matplotlib", "torch._dynamo", "torch._inductor", "sympy", "rich.progress", "optuna", "pandas"]
    code = f"""
import sys
from regard.cli import main
sys.argv = ["regard", "generate", {str(trained)!r}]
try:
    main()
finally:
    print(*(name for name in {unneeded} if name in sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], input=b"amicus\n", capture_output=True)
    assert (done.stdout, done.stderr) == (b"AMICUS\n", b"\n")
