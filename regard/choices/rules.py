"""The rules, by name: what each chooses, why, and the evidence that made us write it."""

from collections.abc import Callable
from typing import NamedTuple

from regard.choices.case import Case, Values
from regard.choices.model import batches, copying, family, precision, schedule, shared_embeddings, tell_family
from regard.choices.text import bad_rows, decoding, metric, rows_fit, tell_bad_rows, tell_tokenizer, tokenizer


class Rule(NamedTuple):
    """What is chosen, why, and what made us write it so."""

    choose: Callable[[Case], Values]
    reason: Callable[[Case], str]
    evidence: str


BAD_ROWS = Rule(
    bad_rows,
    tell_bad_rows,
    "parallel files with an empty line here and there, JSONL with a label that is null: training stopped",
)

# In this order: what stands below may look at what was chosen above
CHOICES: dict[str, Rule] = {
    "bad rows": BAD_ROWS,
    "tokenizer": Rule(
        tokenizer, tell_tokenizer,
        "800 pronunciations of a regular spelling: subwords 21 % right, characters 76 % (800 of CMUdict: 20.3 %); "
        "sigmorphon, SCAN, phonemes: closed sets of symbols; "
        "django on an H200: names and signs 65.9 % right, subwords had not ended after 546 s; 1,200 generated "
        "functions of four lines, a minute of one core: by words 54 % right, by names and signs 100 %; 5,000 generated "
        "questions and their SQL (6 % brackets and operators): by subwords 71 %, by names and signs 100 % right; "
        "900 weights (22 kg 55 g to 22055 g), a minute of one core: by words 57 %, by characters 100 % right; "
        "2,000 records of dates, times and amounts, a minute of a busy core: by names and signs 0 %, by characters 20 % right",
    ),
    "longest row": Rule(rows_fit, lambda case: "no row that was seen is too long", "rows over 512 tokens used to be left out"),
    "model": Rule(
        family, tell_family,
        "H200, one run each: tatoeba Transformer 52.3, GRU 47.2 BLEU; cmudict LSTM 73.3, Transformer 70.3 % right; europarl "
        "loss 1.80 with 512, 1.87 with 256; sigmorphon high German GRU 91.8, Transformer 90.6; one CPU core, 5,400 generated "
        "molecules to one way of writing them: 45.7 % right with a GRU of 128 (53 CPU s), 36.0 with one of 256 (88 s)",
    ),
    "embeddings": Rule(shared_embeddings, lambda case: "both sides have one vocabulary", "vaswani2017"),
    "copying": Rule(
        copying,
        lambda case: f"{case.found.copied_letters:.0%} of what is written stands in the source"
        if "model.decoder.copy_words" in case.chosen
        else "",
        "sigmorphon German: 1,000 rows 76.9 with, 76.3 without; 10,000 rows 87.8 with, 90.0 without; 100 rows 26.3, with "
        "made-up stems of the same lengths 46.7, of others 61.8 (Czech 16.0 and 42.1); django, 16,000 rows "
        "of subwords, GRU, 750 updates: BLEU 45.1 with, 22.6 without",
    ),
    "batch": Rule(
        batches, lambda case: f"about {case.epoch / case.chosen['data.batch_tokens']:,.0f} updates per epoch",
        "small data wants many small updates: multi30k de-en 41.9 BLEU with 4,000 of 4,096 tokens, 37.6 with 1,520 of 8,192; "
        "one CPU core, 67 to 88 CPU seconds: molecules 36.0 % with updates of 256, 11.7 of 512, 18.0 of 1,024, 0 of 4,096; "
        "9,000 words of CMUdict 50.3 with 2,409 of 256 (GRU of 128), 31.3 with 401 of 1,024 (GRU of 256)",
    ),
    "schedule": Rule(
        schedule,
        lambda case: "it stops earlier when six validations bring nothing better"
        if case.chosen["training.patience"]
        else "rows with made-up stems are never the same",
        "sigmorphon: 500 updates of 256 tokens for 100 rows, 1,500 of 512 for 1,000, 3,000 of 2,048 for 10,000",
    ),
    "precision": Rule(precision, lambda case: "", "Transformers on a GPU"),
    "metric": Rule(
        metric, lambda case: "it moves for targets of this length and script",
        "BLEU of one-word targets is 0 at every validation; the CER of conala was lowest for empty outputs, at the start",
    ),
    "decoding": Rule(
        decoding,
        lambda case: f"the longest target has {case.found.target.characters.longest:,.0f} characters",
        "logical forms were cut at three times the source: 29 % right instead of 98",
    ),
}  # fmt: skip
