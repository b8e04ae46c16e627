"""A run: a directory with a recipe, vocabularies, a journal, checkpoints and, at the end, a model."""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from regard import preflight
from regard.corpora import CORPORA
from regard.corpora.corpus import write
from regard.data import spool
from regard.data import store as stores
from regard.data.links import Links
from regard.data.plan import BatchPlan
from regard.data.readers import BadRows
from regard.data.sealed import MANIFEST, lock, read_manifest, remove, sealed, sweep, verify
from regard.data.store import Store
from regard.data.tokenizers import Tokenizer, fitter_of, load_tokenizer, train_tokenizers
from regard.decoding.trained import Pair, Trained
from regard.errors import DamagedError, UserError
from regard.evaluation.alignment import choose_reading, read_gold
from regard.evaluation.candidates import proposer
from regard.evaluation.evaluate import token_loss
from regard.evaluation.metrics import METRICS
from regard.models import build, configure, refuse_two_vocabularies
from regard.models.directory import Bundle, save_model
from regard.nn.memory import keep_freed_memory
from regard.recipe import Corpus, Data, Pairs, Recipe, choose, read
from regard.run_directory import claim, is_run, write_recipe
from regard.training.checkpoint import mean_weights
from regard.training.display import Display
from regard.training.distributed import Group, group
from regard.training.identity import compare
from regard.training.identity import flatten as flatten
from regard.training.loop import HIGHER_IS_BETTER, Trainer, make_deterministic
from regard.training.rows import limits_of, split, tell_bad_rows
from regard.training.start import start_weights, tokenizers_of

Say = Callable[[str], None]


class Prepared(NamedTuple):
    """Data on its way into a model."""

    store: Store
    plan: BatchPlan
    source: Tokenizer
    target: Tokenizer
    valid: list[Pair]


def train(recipe: Recipe, directory: Path, resume: bool = False, talk: bool = True, spooled: Path | None = None) -> int | None:
    """Train to the end and leave a model in `directory/model`. Returns the signal that stopped it early, if one did.

    `spooled` holds those of the recipe's files that came through pipes: the run takes them over.
    """
    if spooled is not None:
        recipe = recipe.model_copy(update={"data": spool.renamed(recipe.data, spooled, directory.absolute() / "spooled")})
    recipe = recipe.model_copy(update={"model": configure(recipe.model).model_dump(mode="json")})
    preflight.check(recipe)
    if recipe.training.deterministic:
        make_deterministic()
    with group(recipe.training.device) as processes, ExitStack() as held:
        say = Display(0, 0, None, talk and processes.first).say

        def open_run() -> Recipe:
            claim(directory)
            held.enter_context(lock(directory))
            return begin(recipe, directory, resume)

        whole = processes.share(open_run)
        if spooled is not None:
            spool.keep(spooled, directory / "spooled", begun=any((directory / "checkpoints").glob("step-*")))
            say(f"what came through pipes is kept in {directory / 'spooled'}")
        prepared = processes.in_turn(lambda: prepare(whole, directory, say))
        return fit(whole, directory, prepared, processes, talk, say, identity_of(recipe, prepared))


def identity_of(recipe: Recipe, prepared: Prepared) -> dict[str, Any]:
    """What the run's steps depend on, as each of its checkpoints remembers it."""
    return {
        "recipe": recipe.model_dump(mode="json"),
        "tokenizers": [prepared.source.digest, prepared.target.digest],
        "files": [file["sha256"] for file in prepared.store.facts["files"]],
    }


def begin(recipe: Recipe, directory: Path, resume: bool) -> Recipe:
    """Write the resolved recipe, or make sure that a run that goes on goes on with the same one. Generate its data."""
    directory.mkdir(parents=True, exist_ok=True)
    sweep(directory)
    path = directory / "recipe.yaml"
    if (directory / "checkpoints").exists():
        if not resume:
            raise UserError(f"{directory}: there is a run already; continue it with --resume or take another --run")
        compare({"recipe": read(path).model_dump(mode="json")}, {"recipe": recipe.model_dump(mode="json")}, directory)
    elif path.exists():  # it never came to a first step: what it left may come from another recipe
        remove(directory / "tokenizers")
    write_recipe(directory, recipe)
    return with_corpus(recipe, directory)


def with_corpus(recipe: Recipe, directory: Path) -> Recipe:
    """A recipe on generated data, with the files it is written to."""
    if recipe.data.corpus is None:
        return recipe
    files = corpus_files(recipe.data.corpus, directory / "corpus")
    train, valid = files.pop("train"), files.pop("valid")
    given = recipe.data
    update = {"train": train, "valid": given.valid or valid, "test": given.test or files, "corpus": None}
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=update)})


def corpus_files(corpus: Corpus, directory: Path) -> dict[str, Pairs]:
    written = write(choose(CORPORA, corpus.name, "corpus"), directory, corpus.seed, corpus.size, replace=True)
    return {split: Pairs.model_validate(paths) for split, paths in written.items()}


def prepare(recipe: Recipe, directory: Path, say: Say) -> Prepared:
    data = recipe.data
    if data.train is None:
        raise UserError("the recipe names no data: give --source and --target (or data.train.source=... and .target=...)")
    source, target = tokenizers(data, directory / "tokenizers", say, recipe.training.start_from)
    refuse_two_vocabularies(configure(recipe.model), source, target)
    copying, links = copies_words(recipe), "guided" in recipe.training.penalties
    refuse_changed_files(stores.files_of(data.train, links), directory, say)
    bad = BadRows(data.on_bad_row, directory / "bad_rows.txt")
    store = stores.prepare(
        directory / "data", data.train, source, target, max_length=data.max_length, bad_rows=bad, copying=copying, links=links
    )
    tell_bad_rows(store, directory, say)
    if not len(store):
        raise UserError(f"{' and '.join(map(str, data.train.files))}: no row can be used; see {directory / 'bad_rows.txt'}")
    limits = limits_of(recipe, source, target)
    rows, valid = split(data, store, limits, (source, target), directory, recipe.training.seed, say)
    plan = BatchPlan(store.source_lengths, store.target_lengths, data.batch_tokens, recipe.training.seed, rows)
    say(f"{len(rows):,} training pairs, {len(valid):,} for validation; vocabularies of {len(source):,} and {len(target):,}")
    return Prepared(store, plan, source, target, valid)


def copies_words(recipe: Recipe) -> bool:
    """Whether the model will copy words, so that it has to be told which can be."""
    return configure(recipe.model).copies_words


def refuse_changed_files(files: Sequence[Path], directory: Path, say: Say) -> None:
    """A run that has begun goes on with the text it began with. A damaged record of it is made again with the store."""
    if not (directory / "data" / MANIFEST).exists() or not any((directory / "checkpoints").glob("step-*")):
        return
    try:
        recorded = read_manifest(directory / "data")["facts"]["files"]
    except DamagedError as error:
        say(f"warning: {error}; the token store is built again from {' and '.join(map(str, files))}")
        return
    for path, before in zip(files, recorded, strict=False):  # alignments come last, and a run may begin to use them
        if not stores.unchanged(path, before):
            raise UserError(f"{path}: the file has changed since the run {directory} began; take another --run")


def tokenizers(data: Data, directory: Path, say: Say, start: Path | None = None) -> tuple[Tokenizer, Tokenizer]:
    """Trained once a run, on the training text of each side or of both; or those of the model that the run starts from."""
    if not directory.exists() and start is not None:
        with sealed(directory, {}) as inside:
            for name, tokenizer in zip(("source", "target"), tokenizers_of(start, data.tokenizer), strict=True):
                tokenizer.save(inside / name)
    elif not directory.exists():
        say(f"training {data.tokenizer.kind} tokenizers of up to {data.tokenizer.size:,} tokens")
        with sealed(directory, {}) as inside:
            for name, tokenizer in trained_tokenizers(data, say).items():
                tokenizer.save(inside / name)
    verify(directory)
    return load_tokenizer(directory / "source"), load_tokenizer(directory / "target")


def trained_tokenizers(data: Data, say: Say) -> dict[str, Tokenizer]:
    """One for each side, or the same one for both; the text is read once."""
    assert data.train is not None
    source = fitter_of(data.tokenizer)
    fitters = {"source": source, "target": source if data.tokenizer.shared else fitter_of(data.tokenizer)}
    trained = train_tokenizers(data.train, fitters, BadRows(data.on_bad_row))
    for tokenizer in dict.fromkeys(trained.values()):
        if tokenizer.trained_on is not None:
            say(f"the tokenizer was trained on {tokenizer.trained_on}")
    return trained


def fit(
    recipe: Recipe, directory: Path, prepared: Prepared, processes: Group, talk: bool, say: Say, identity: dict[str, Any]
) -> int | None:
    gold = valid_gold(recipe.data, prepared.valid)
    keep_freed_memory()
    preflight.fitting(configure(recipe.model), len(prepared.source), len(prepared.target), processes.device)
    torch.manual_seed(recipe.training.seed)
    model = build(configure(recipe.model), len(prepared.source), len(prepared.target)).to(processes.device)
    say(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters on {processes.device}")
    start, risk = recipe.training.start_from, recipe.training.risk
    if start is not None and not any((directory / "checkpoints").glob("step-*")):
        start_weights(model, start, recipe.model)
    trained = Trained(Bundle(model, prepared.source, prepared.target, recipe.decoding), processes.device)

    def validate() -> dict[str, float]:
        model.eval()
        outputs = trained.generate([source for source, _ in prepared.valid], beam=1)
        references = [target for _, target in prepared.valid]
        names: set[str] = {"bleu"} if risk is None else {"bleu", risk.reward}
        scores = {name: METRICS[name](outputs, references).value for name in sorted(names)}
        return {"loss": token_loss(trained, prepared.valid), **scores}

    propose = None if risk is None else proposer(trained, risk)
    given = (recipe.training, directory, processes, validate, propose, identity)
    trainer = Trainer(model, prepared.store, prepared.plan, *given)
    ending = trainer.run(talk)
    if ending.signal is None and processes.first:
        steps = choose_weights(recipe, directory, model, validate, ending.progress.best)
        finish(recipe, directory, trained, steps, prepared.valid, gold)
        mean = f", the mean of {len(steps)} checkpoints" if len(steps) > 1 else ""
        say(f"the model is in {directory / 'model'}{mean}")
    elif ending.signal is not None:
        say(f"stopped at step {ending.progress.step}; continue with `{processes.command} train -r {directory} --resume`")
    return ending.signal


def choose_weights(
    recipe: Recipe, directory: Path, model: nn.Module, validate: Callable[[], dict[str, float]], best: list[tuple[float, int]]
) -> list[tuple[float, int]]:
    """The best checkpoints if their mean validates better than the best alone, which is not so while they are far apart."""
    if len(best) == 1:
        return best
    model.load_state_dict(mean_weights(weights_of(directory, best)))
    by = recipe.training.validate_by
    score = validate()[by] * HIGHER_IS_BETTER[by]
    return best if score >= best[0][0] else best[:1]


def weights_of(directory: Path, best: list[tuple[float, int]]) -> list[Path]:
    return [directory / "best" / f"step-{step:09d}" for _, step in best]


def valid_gold(data: Data, pairs: list[Pair]) -> list[Links] | None:
    """The true alignments of the validation pairs, if there are any; read before the first update, lest they stop the last."""
    path = None if data.valid is None else data.valid.alignment
    return None if path is None else read_gold(path, pairs)


def finish(
    recipe: Recipe,
    directory: Path,
    trained: Trained,
    best: list[tuple[float, int]],
    valid: list[Pair],
    gold: list[Links] | None,
) -> None:
    """The mean of these checkpoints becomes the model; its alignments are read as is best on the validation pairs."""
    weights = mean_weights(weights_of(directory, best))
    trained.model.load_state_dict(weights)
    trained.model.eval()
    if gold is not None and trained.has_attention:
        trained.reading = choose_reading(trained, valid, gold)
    card = model_card(recipe, best)
    save_model(directory / "model", weights, recipe, trained.source, trained.target, card, trained.reading)


def model_card(recipe: Recipe, best: list[tuple[float, int]]) -> str:
    by = recipe.training.validate_by
    steps = ", ".join(f"{step} ({abs(score):.3f})" for score, step in best)
    return (
        "---\nlibrary_name: regard\npipeline_tag: translation\n---\n\n"
        f"{recipe.about}\n\nMean of the checkpoints with the best validation {by}, by step: {steps}.\n\n"
        "Use: `regard generate MODEL < input > output`. The whole recipe is in `recipe.yaml`.\n\n"
        f"```json\n{json.dumps(recipe.model, indent=1)}\n```\n"
    )


@contextmanager
def test_sets(directory: Path) -> Iterator[dict[str, Pairs]]:
    """The test sets that the recipe of a run or a model names; generated ones are written into nobody's folder."""
    path = directory / "recipe.yaml"
    if not path.is_file():
        raise UserError(f"{directory}: no recipe.yaml that names test sets; give --source and --target")
    with tempfile.TemporaryDirectory() as aside:
        sets = with_corpus(read(path), directory if is_run(directory) else Path(aside)).data.test
        if not sets:
            raise UserError(f"{directory}: its recipe names no test sets; give --source and --target")
        yield sets
