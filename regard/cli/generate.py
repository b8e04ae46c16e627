"""`regard generate`"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer

from regard.cli import failures
from regard.cli.asking import Incoming, lines_of, standard_input
from regard.cli.lasting import lasting
from regard.cli.outputs import Form, pharaoh
from regard.cli.progress import progress
from regard.cli.together import tell_engine, together

if TYPE_CHECKING:
    from regard.cli.json_lines import Asked
    from regard.decoding.generator import TrainedGenerator
    from regard.decoding.hypothesis import Hypothesis
    from regard.decoding.sampling import Sampling
    from regard.decoding.trained import Answers

    Ask = Callable[..., Answers[list[Hypothesis]]]


def generate(
    run: Annotated[Path, typer.Argument(help="A run or a model directory.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings of decoding, for example min_length=5 no_repeat_ngram=3."),
    ] = None,
    others: Annotated[
        list[Path] | None, typer.Option("--with", metavar="RUN", help="Write together with this run. May be repeated.")
    ] = None,
    weights: Annotated[str | None, typer.Option(metavar="W,W...", help="How much each of these runs counts: 1,1,2.")] = None,
    combine: Annotated[str | None, typer.Option(help="mean of probabilities, log_mean, or product (shallow fusion).")] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(min=0.0, help="Rank by log p / length ** penalty.")] = None,
    length_norm: Annotated[str | None, typer.Option(help="gnmt: ((5 + length) / 6) ** penalty instead; or power.")] = None,
    coverage_penalty: Annotated[float | None, typer.Option(min=0.0, help="Penalty for source words not looked at.")] = None,
    mbr: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="Of all candidates, the one most like the others by this metric (chrf)."),
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(min=2, help="How many, from a beam or with --sample; 16 unless given.")
    ] = None,
    n_best: Annotated[int | None, typer.Option(min=1, help="Print the best N as `line ||| text ||| score`.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw the output; with --n-best, N of them as drawn.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Draw by p ** (1 / temperature).")] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from the K most probable words.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the fewest words that are so probable together.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed draws other outputs.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print `score<TAB>text`.")] = False,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Write the source word looked at instead of an unknown one.")
    ] = False,
    dictionary: Annotated[
        Path | None, typer.Option(help="Or what this file of `regard align --dictionary` has for that source word.")
    ] = None,
    alignments: Annotated[Path | None, typer.Option(help="Also write word alignments (Pharaoh i-j) to this file.")] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read and write JSON, one value per line: a text, or an object with `source`.")
    ] = False,
    token_scores: Annotated[
        bool, typer.Option("--token-scores", help="Print `text<TAB>log p of each token`; with --jsonl, the tokens too.")
    ] = False,
    moses: Annotated[
        bool, typer.Option("--moses", help="N-best lists with `LogProb= x Length= n` before the score, as Moses reads them.")
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="With --jsonl: scores, tokens, why it ended, and links between words.")
    ] = False,
    file: Annotated[Path | None, typer.Option("--input", help="Read this file (.gz too) instead of standard input.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    unbuffered: Annotated[bool, typer.Option("--unbuffered", help="Answer each line at once.")] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Answer in so many processes of one thread (one per core of a CPU).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[
        str | None,
        typer.Option(help="Weights: float32, bfloat16, int8 on a CPU; the first two with --device cuda (docs/speed.md)."),
    ] = None,
    shortlist: Annotated[
        bool, typer.Option("--shortlist", help="Only words that may translate those of the source (regard shortlist RUN).")
    ] = False,
    engine: Annotated[
        str | None, typer.Option(help="What writes on a CPU: ctranslate2, native, torch, or auto (docs/speed.md).")
    ] = None,
) -> None:
    """Read lines from standard input, write one output per line to standard output, in order.

    On a terminal, type a line to get its output; Ctrl-D ends.

    A line that is too long for the model gets an empty line and is named on standard error, and the exit code is 2.

    Settings of the recipe's section `decoding` are changed as in training: regard generate RUN min_length=5 no_repeat_ngram=3

    Files may be of any size: 1,024 lines are read, answered in order of their length (each text once) and written.

    With --jsonl texts may have line feeds: {"id": 7, "source": "two\\nlines"} gets `output` beside its own keys.
    """
    with lasting():
        from regard.data.dictionary import read_dictionary
        from regard.decoding.searching import CACHES
        from regard.decoding.trace import Details
        from regard.decoding.workers import threads_for
        from regard.errors import UserError

    form = formed(Form(n_best, scores, token_scores or details, moses, details), jsonl)
    source = lines_in(file, output, unbuffered)
    number = count_processes(processes, device, source)
    with threads_for(number):
        trained = together([run, *(others or [])], weights, combine, device, precision, engine)
    if shortlist:
        trained.use_shortlist()
    if alignments is not None and not trained.has_attention:
        raise UserError(f"{run}: this model has no attention, so there is nothing to align by")
    own = changed(changes or []) | given(
        beam=beam, length_penalty=length_penalty, length_norm=length_norm, coverage_penalty=coverage_penalty,
        replace_unknown=replace_unknown or None,
    )  # fmt: skip
    sampling = sampling_of(own, given(seed=seed, temperature=temperature, top_k=top_k, top_p=top_p), sample)
    settings = trained.settings(**{**own, "beam": width_of(trained, own, sample, n_best, mbr, candidates)})
    if dictionary is not None:
        if not settings.replace_unknown:
            raise UserError("--dictionary says what unknown words are replaced by: add --replace-unknown")
        trained.dictionary = read_dictionary(dictionary)
    wanted = Details(form.token_scores, alignments is not None or (details and trained.has_attention))
    tell_engine(trained, settings, {"samples": sampling, "token scores or alignments": any(wanted)})
    ask: Ask = partial(trained.answer, settings=settings, sampling=sampling, details=wanted)
    ask = ask if mbr is None else by_risk(ask, mbr, sample)
    whole = CACHES[trained.fitting(settings, sampling, any(wanted)).cache].continuous
    with threads_for(number), opened(output, sys.stdout) as out, opened(alignments, None) as links:
        failed = write_answers(Job(trained, ask, source, number, jsonl, whole), form, out or sys.stdout, links)
    failures.leave(failed)


class Job(NamedTuple):
    """What is to be answered, and by whom."""

    trained: "TrainedGenerator"
    ask: "Ask"
    source: Incoming
    processes: int
    jsonl: bool
    whole: bool  # whether the search takes lines in as others are finished

    @property
    def windows(self) -> Iterator["Asked"]:
        from regard.cli.json_lines import Asked, asked

        for block in self.source.blocks:
            yield asked(*block) if self.jsonl else Asked(block.texts, (), block.problems, block.size)

    def answer(self, items: Sequence[tuple[str, ...]]) -> "Answers[list[Hypothesis]]":
        """Texts, and what each asks of its output as JSON."""
        constraints = [json.loads(asked or "{}") for _, asked in items]
        return self.ask([text for text, _ in items], constraints=constraints if any(constraints) else None)


def write_answers(job: Job, form: Form, out: TextIO, links: TextIO | None) -> bool:
    """In order, window by window; true if some lines have failed."""
    from regard.decoding.files import answered

    number, failed, cuts = 0, False, Counter[str]()
    told = f"{job.processes} processes" if job.processes > 1 else ""
    with progress(job.source.size, told, seen=not (out.isatty() or job.source.at_once)) as tell:
        for window, found in answered(job.windows, job.answer, job.processes, job.whole):
            problems = dict(sorted({**found.problems, **window.problems}.items()))
            failures.name_each(problems, job.source.where, "its output is empty", number + 1)
            for index, hypotheses in enumerate(found.results):
                if job.jsonl:
                    out.write(form.json(window.rows[index], hypotheses, problems.get(index), job.trained.target))
                else:
                    out.write(form.line(number + index, hypotheses or [], index in problems))
                if links is not None:
                    links.write(pharaoh(hypotheses[0] if hypotheses else None) + "\n")
            out.flush()
            cuts.update(found.cuts.values())
            failed, number = failed or bool(problems), number + len(window.texts)
            tell(len(window.texts), window.size)
    for key, count in cuts.items():
        typer.echo(f"warning: {count:,} of {number:,} outputs were cut at {key} before they ended; raise it", err=True)
    return failed


def formed(form: Form, jsonl: bool) -> Form:
    from regard.errors import UserError

    if form.details and not jsonl:
        raise UserError("--details are the keys of an object: add --jsonl")
    if form.moses and (form.n_best is None or jsonl):
        raise UserError("--moses is a form of n-best lists: add --n-best, and leave out --jsonl")
    if form.token_scores and form.n_best is not None and not jsonl:
        raise UserError("--token-scores of n-best lists have no place in a line: add --jsonl")
    return form


def lines_in(file: Path | None, output: Path | None, unbuffered: bool) -> Incoming:
    from regard.errors import UserError

    if file is not None and output is not None and output.exists() and file.exists() and output.samefile(file):
        raise UserError(f"{output}: --input and --output are the same file")
    return standard_input(unbuffered) if file is None else lines_of(file, unbuffered)


def count_processes(given: int | None, device: str, source: Incoming) -> int:
    """As asked for, or one for each core; one where each line is answered at once, or on a GPU."""
    from regard.decoding.workers import usual_processes
    from regard.errors import UserError
    from regard.models.device import choose_device

    chosen = choose_device(device)
    if given is not None and given > 1 and (chosen.type != "cpu" or not hasattr(os, "fork")):
        raise UserError(f"--processes {given}: several processes are for CPUs, and this is {chosen}; leave it out")
    return 1 if source.at_once else given or usual_processes(chosen)


@contextmanager
def opened(path: Path | None, otherwise: TextIO | None) -> Iterator[TextIO | None]:
    if path is None:
        yield otherwise
        return
    with path.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def sampling_of(own: dict[str, Any], flags: dict[str, Any], sample: bool) -> "Sampling | None":
    """How outputs are drawn, if they are; its keys are taken out of `own`."""
    from regard.decoding.sampling import Sampling
    from regard.errors import UserError
    from regard.recipe import parse

    drawing = {key: own.pop(key) for key in [*own] if key in Sampling.model_fields} | flags
    if drawing and not sample:
        raise UserError(f"--{next(iter(drawing)).replace('_', '-')} says how outputs are drawn: add --sample")
    return parse(Sampling, drawing) if sample else None


def width_of(
    trained: "TrainedGenerator", own: dict[str, Any], sample: bool, n_best: int | None, mbr: str | None, candidates: int | None
) -> int:
    """How many outputs there are of each input: a beam's, or as many as are drawn."""
    from regard.errors import UserError

    if mbr is not None:
        return max(candidates or 16, n_best or 1)
    if candidates is not None:
        raise UserError("--candidates says from how many outputs to choose: add --mbr METRIC")
    return n_best or 1 if sample else max(trained.settings(**own).beam, n_best or 1)


def by_risk(ask: "Ask", metric: str, sampled: bool) -> "Ask":
    """The same answers, each list ranked by minimum Bayes risk."""
    from regard.decoding.consensus import consensus
    from regard.evaluation.metrics import rewards
    from regard.recipe import choose

    utility = choose(rewards(), metric, "metric of a sentence")
    return lambda *texts, **ways: ask(*texts, **ways).map(lambda found: consensus(found, utility, sampled))


def changed(changes: Sequence[str]) -> dict[str, Any]:
    """`key=value` or `decoding.key=value`, as a recipe has it; but texts stand for themselves, whatever YAML makes of them."""
    from regard.recipe import Constraints, override

    pairs = [change.removeprefix("decoding.").partition("=") for change in changes]
    lists = {key for key in ("must", "ban") for name, _, value in pairs if name == key and value.startswith("[")}
    texts = {key: value for key, _, value in pairs if key in Constraints.model_fields.keys() - lists}
    return override({}, [f"{key}{sign}{value}" for key, sign, value in pairs if key not in texts]) | texts


def given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
