"""Tokens per second of generation on one CPU thread: our engines beside our model's own step and what else is installed.

python benchmarks/generation.py                                 all three models; greedy at 1, 16 and 64 sentences, beam 5 at 16
python benchmarks/generation.py --models small --cells 1x1      one model, one cell (beam x sentences)
python benchmarks/generation.py --rivals model ctranslate2      only these beside ours (default: all that are installed)

Random weights of one model for all but Hugging Face, whose Marian model has the same sizes; 25 source words and exactly 25
target words each, so the work is equal. CPU time of one thread, rivals in turn, medians. One JSON row for each system; `ratio`
is its rate beside that of our engine in int8.
"""

import argparse
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from regard.data.batching import reading
from regard.data.tokenizers import END, START
from regard.decoding.beam import beam_search
from regard.decoding.greedy import greedy_search
from regard.decoding.rules.rule import SearchStep
from regard.decoding.shortlist import Shortlist, spread
from regard.engine.engines import Engine, engine_for
from regard.engine.products import PRECISIONS
from regard.models import Generator, build, configure
from regard.nn.allocator import keep_freed_memory

LENGTH = 25  # words of a source, and of an output
Run = Callable[[list[list[int]], int], None]


def transformer(layers: int, size: int, inner: int, heads: int) -> dict:
    """With biases, as Marian has."""
    attention = {"heads": heads, "bias": True}
    side = {"kind": "transformer", "hidden_size": size, "feedforward_size": inner, "layers": layers, "attention": attention}
    return {"share_embeddings": True, "encoder": side, "decoder": {**side, "cross_attention": attention, "output_bias": True}}


RECURRENT = {
    "share_embeddings": True,
    "encoder": {"cell": "lstm", "embedding_size": 512, "hidden_size": 256, "layers": 2},
    "decoder": {
        "cell": "lstm", "embedding_size": 512, "hidden_size": 512, "layers": 2, "attention": {"score": "additive"},
        "context": "input_feeding",
    },
}  # fmt: skip
MODELS = {
    "base": (transformer(6, 512, 2048, 8), 32000),
    "small": (transformer(3, 256, 1024, 4), 8000),
    "recurrent": (RECURRENT, 8000),
}


def shortlist_for(vocabulary: int) -> Shortlist:
    """Fifty translations of each word and a hundred frequent ones, as `regard shortlist` has them; here they are drawn."""
    return Shortlist(torch.randint(END + 1, vocabulary, (vocabulary, 50)), torch.arange(1, 101))


def ours(model: Generator, engine: Engine | None = None, shortlist: Shortlist | None = None) -> Run:
    """By our searches; END is barred, and outputs are cut at LENGTH."""

    @torch.inference_mode()
    def run(rows: list[list[int]], beam: int) -> None:
        tokens = torch.tensor([[*row, END] for row in rows])
        memory = model.encode(reading(tokens, torch.full((len(rows),), tokens.shape[1])))
        if engine is None or shortlist is None:
            step, state = model.start(memory)
        else:
            words, allowed = shortlist.candidates(rows)
            step, state = engine.narrowed(words).start(memory)
            step = spread(step, words, allowed, model.vocabulary)

        def searched(words: torch.Tensor, both: tuple) -> SearchStep:
            found = step(words, both[0])
            log_probs = found.logits.log_softmax(dim=-1)
            log_probs[:, END] = float("-inf")
            return SearchStep(log_probs, found.weights, (found.state, both[1] + 1), both[1] >= LENGTH - 1)

        given = searched, (state, torch.zeros(len(rows), dtype=torch.long)), torch.full((len(rows),), START)
        found = greedy_search(*given, end=END) if beam == 1 else beam_search(*given, width=beam, end=END)
        assert all(len(one[0].tokens) == LENGTH for one in found)

    return run


def ctranslate2(
    model: Generator, values: dict, vocabulary: int, shortlist: Shortlist | None = None, precision: str = "int8"
) -> Run:
    """The same weights, by `regard export`'s converter; one thread."""
    from regard.data.fields import Text
    from regard.decoding.translator import Translator
    from regard.exchange.ctranslate2 import write
    from regard.models.directory import Bundle
    from regard.recipe import Decoding

    class Numbers:
        """A vocabulary whose words are numbers."""

        def __len__(self) -> int:
            return vocabulary

        def pieces(self, tokens: range) -> list[str]:
            return [str(token) if token > END else ["<pad>", "<unk>", "<s>", "</s>"][token] for token in tokens]

    field = Text(Numbers())  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        config = {"kind": "sequence_to_sequence", **values}
        fields = {"source": field, "target": field}
        write(Bundle(model, fields, Decoding(), config=config), folder, precision)  # type: ignore[arg-type]
        opened = Translator(Path(folder), precision, fields, (4096, 4096))
        opened.shortlist = shortlist
        translator = opened.open()

    def run(rows: list[list[int]], beam: int) -> None:
        texts = [[str(token) for token in row] for row in rows]
        lengths = {"min_decoding_length": LENGTH, "max_decoding_length": LENGTH}
        found = translator.translate_batch(texts, beam_size=beam, max_batch_size=0, use_vmap=shortlist is not None, **lengths)
        assert all(len(one.hypotheses[0]) == LENGTH for one in found)

    return run


def hugging_face(values: dict, vocabulary: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Run:
    """Marian of the same sizes."""
    from transformers import MarianConfig, MarianMTModel

    side = values["encoder"]
    size, inner, layers, heads = side["hidden_size"], side["feedforward_size"], side["layers"], side["attention"]["heads"]
    model = MarianMTModel(
        MarianConfig(
            vocab_size=vocabulary, d_model=size, encoder_layers=layers, decoder_layers=layers, encoder_ffn_dim=inner,
            decoder_ffn_dim=inner, encoder_attention_heads=heads, decoder_attention_heads=heads, activation_function="relu",
            scale_embedding=True, max_position_embeddings=256, pad_token_id=0, eos_token_id=END, decoder_start_token_id=START,
            forced_eos_token_id=None,
        )
    ).eval().to(device, dtype)  # fmt: skip

    def run(rows: list[list[int]], beam: int) -> None:
        tokens = torch.tensor([[*row, END] for row in rows], device=device)
        lengths = {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH}
        found = model.generate(tokens, num_beams=beam, do_sample=False, **lengths)
        assert found.shape[1] == LENGTH + 1

    return run


def systems(name: str, rivals: list[str] | None) -> dict[str, Run]:
    values, vocabulary = MODELS[name]
    torch.manual_seed(7)
    model = build(configure(values), vocabulary, vocabulary).eval().requires_grad_(False)
    engines, short = {precision: engine_for(model, precision) for precision in PRECISIONS}, shortlist_for(vocabulary)
    found = {f"engine-{precision}": ours(engine.model) for precision, engine in engines.items()}
    found["engine-int8-shortlist"] = ours(engines["int8"].model, engines["int8"], short)
    others: dict[str, Callable[[], Run]] = {"model": lambda: ours(model)}
    if name != "recurrent":
        others["ctranslate2"] = lambda: ctranslate2(model, values, vocabulary)
        others["ctranslate2-float32"] = lambda: ctranslate2(model, values, vocabulary, precision="float32")
        others["ctranslate2-shortlist"] = lambda: ctranslate2(model, values, vocabulary, short)
        others["transformers"] = lambda: hugging_face(values, vocabulary)
    for rival, make in others.items():
        installed = rival == "model" or importlib.util.find_spec(rival.partition("-")[0]) is not None
        if installed and (rivals is None or rival in rivals):
            found[rival] = make()
    return found


def rates(runs: dict[str, Run], rows: list[list[int]], beam: int, rounds: int) -> dict[str, float]:
    """Target words per second of CPU time; one unmeasured round first."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            begin = time.process_time()
            run(rows, beam)
            if number:
                taken[name].append(time.process_time() - begin)
    return {name: len(rows) * LENGTH / statistics.median(each) for name, each in taken.items()}


def main(models: list[str], cells: list[str], rivals: list[str] | None, rounds: int) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in models:
        runs, vocabulary = systems(name, rivals), MODELS[name][1]
        for cell in cells:
            beam, count = map(int, cell.split("x"))
            rows = torch.randint(10, vocabulary, (count, LENGTH)).tolist()
            found = rates(runs, rows, beam, rounds)
            for who, rate in found.items():
                row = {"benchmark": "generation", "model": name, "beam": beam, "sentences": count, "who": who}
                row |= {"tokens_per_s": round(rate), "ratio": round(rate / found["engine-int8"], 2)}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--cells", nargs="+", default=["1x1", "1x16", "1x64", "5x16"], metavar="BEAMxSENTENCES")
    parser.add_argument("--rivals", nargs="*", default=None)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    main(given.models, given.cells, given.rivals, given.rounds)
