"""Tokenizers that others have trained: they cut and join as their own libraries do, and a run keeps them."""

import io
import json
import random
import shutil

import pytest
import sentencepiece
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import regard
from regard import run
from regard.data.tokenizer_files import TOKENIZER_FILES, TokenizerFile
from regard.data.tokenizers import END, PAD, START, UNKNOWN, fitter_of, load_tokenizer, size_of
from regard.errors import DamagedError, UserError
from regard.planning.example import shape_of
from regard.recipe import Recipe, parse
from regard.recipe import Tokenizer as Section

LINE = "der die das Haus Hund Katze läuft schläft schnell unter über neben große kleine alte Straße und oder"
WORDS = LINE.split()
TEXTS = [" ".join(random.Random(seed).choices(WORDS, k=6)) for seed in range(200)]
ODD = [
    "",
    " ",
    "  der  Hund ",
    "a\tb\n",
    "[CLS] der </s>",
    "日本 der",
    "👩‍👩‍👧",
    "ﬁ",
    "DER",
    "▁x",
    "\ud800",
    "Hund. Katze, Haus!",
    "<0x41>",
]


def pieces(path, **options):
    """SentencePiece with ids of its own: unknown 0, no padding, or as is asked for."""
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=writer, hard_vocab_limit=False, minloglevel=2, **options
    )
    path.write_bytes(writer.getvalue())
    return path


def byte_level(path):
    made = library.Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=320, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    )
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    made.enable_truncation(3)
    made.enable_padding(length=9)
    made.save(str(path))
    return path


def word_piece(path):
    made = library.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(strip_accents=False), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator(
        [*TEXTS, ". , ! '"], trainers.WordPieceTrainer(vocab_size=90, special_tokens=["[PAD]", "[UNK]", "[CLS]"])
    )
    made.add_tokens(["[SEP]"])  # not marked as special
    made.post_processor = processors.BertProcessing(("[SEP]", made.token_to_id("[SEP]")), ("[CLS]", 2))
    made.save(str(path))
    return path


def word_level(path):
    made = library.Tokenizer(
        models.WordLevel({"?": 0, **{word: 2 * place + 2 for place, word in enumerate(WORDS)}}, unk_token="?")
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(path))
    return path


def suffixed(path):
    made = library.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.WhitespaceSplit(), decoders.BPEDecoder()
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=90, special_tokens=["<unk>"], end_of_word_suffix="</w>"))
    made.save(str(path))
    return path


def meta_space(path):
    made = library.Tokenizer(
        models.Unigram([("<unk>", 0.0), ("▁der", -1.0), ("▁", -2.0), *((one, -3.0) for one in "deruHnKatz")], 0)
    )
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.save(str(path))
    return path


def byte_fallback(path):
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *sorted(set("".join(WORDS)) - {"ß"})]
    made = library.Tokenizer(
        models.BPE({piece: at for at, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps)
    made.save(str(path))
    return path


FILES = {
    "unigram.model": lambda path: pieces(path, model_type="unigram", vocab_size=80),
    "bytes.model": lambda path: pieces(
        path, model_type="bpe", vocab_size=400, byte_fallback=True, pad_id=3, unk_id=2, bos_id=0, eos_id=1
    ),
    "exact.model": lambda path: pieces(
        path, vocab_size=90, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
        user_defined_symbols=["</s>x", "\n"], control_symbols=["<en>"],
    ),
    "byte_level.json": byte_level, "word_piece.json": word_piece, "word_level.json": word_level, "suffixed.json": suffixed,
    "meta_space.json": meta_space, "byte_fallback.json": byte_fallback,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, write in FILES.items():
        write(folder / name)
    return folder


def loaded(path, **options):
    return fitter_of(Section(file=path, **options)).finish()


class Oracle:
    """The library itself: pieces of a text, the text of pieces, and the ids that we must not have."""

    def __init__(self, path):
        self.sentencepiece = path.suffix == ".model"
        if self.sentencepiece:
            self.it = sentencepiece.SentencePieceProcessor(model_file=str(path))
            self.unknown = self.it.unk_id()
        else:
            self.it = library.Tokenizer.from_file(str(path))
            self.it.no_truncation()
            self.it.no_padding()
            self.it.encode_special_tokens = True
            self.unknown = {"byte_level.json": None, "word_piece.json": 1}.get(path.name, 0)

    def encode(self, text):
        return self.it.encode(text) if self.sentencepiece else self.it.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.it.decode(ids) if self.sentencepiece else self.it.decode(ids, skip_special_tokens=False)


def test_every_kind_of_file_has_an_oracle():
    assert {name[name.index(".") :] for name in FILES} == TOKENIZER_FILES.keys()


@pytest.mark.parametrize("name", FILES)
def test_pieces_and_texts_are_the_library_s(folder, name):
    tokenizer, oracle = loaded(folder / name), Oracle(folder / name)
    for text in [*TEXTS[:20], *(text for text in ODD if text != "\ud800")]:
        theirs, (ours,) = oracle.encode(text), tokenizer.encode([text])
        assert len(ours) == len(theirs)
        assert [token == UNKNOWN for token in ours] == [token == oracle.unknown for token in theirs]
        assert [tokenizer.theirs[token - 4] for token in ours if token != UNKNOWN] == [
            one for one in theirs if one != oracle.unknown
        ]
        if UNKNOWN not in ours:
            assert tokenizer.decode([START, *ours, END, PAD]) == oracle.decode(theirs)
    assert all(UNKNOWN not in row for row in tokenizer.encode(TEXTS)) == (name != "meta_space.json")  # it lacks letters


def test_specials_are_left_out(folder):
    theirs = {name: set(loaded(folder / name).theirs) for name in FILES}
    sizes = {name: len(loaded(folder / name)) for name in FILES}
    assert theirs["unigram.model"].isdisjoint({0, 1, 2})
    assert theirs["bytes.model"].isdisjoint({0, 1, 2, 3})
    processor = Oracle(folder / "exact.model").it
    assert processor.piece_to_id("<en>") not in theirs["exact.model"]
    assert {processor.piece_to_id("</s>x"), processor.piece_to_id("\n")} <= theirs["exact.model"]
    assert theirs["byte_level.json"] == set(range(2, 320))
    added = Oracle(folder / "word_piece.json").it.token_to_id("[SEP]")
    assert added not in theirs["word_piece.json"]  # its post-processor adds it
    assert theirs["word_level.json"] == {2 * place + 2 for place in range(len(WORDS))}
    assert sizes == {name: 4 + len(ids) for name, ids in theirs.items()}
    assert size_of(Section(file=folder / "byte_level.json", size=7)) == 322


@pytest.mark.parametrize("name", FILES)
def test_what_tokens_stand_for(folder, name):
    """Spellings are what the library writes, so words and copied words are where they should be."""
    tokenizer = loaded(folder / name)
    for text in [*TEXTS[:20], *ODD]:
        (ids,), (surfaces,) = tokenizer.encode([text]), tokenizer.surfaces([text])
        back = tokenizer.decode(ids)
        words = tokenizer.words(ids)
        assert len(ids) == len(surfaces) == len(tokenizer.pieces(ids)) == len(words)
        assert all(0 <= word < max(len(back.split()), 1) for word in words)
        assert words == sorted(words)
        if UNKNOWN not in ids:
            assert surfaces == tokenizer.spelled(ids)
            assert b"".join(surfaces).decode(errors="replace").split() == back.split()
    if name not in ("meta_space.json", "word_piece.json"):
        (ids,) = tokenizer.encode(["der Hund läuft"])
        assert sorted(set(tokenizer.words(ids))) == [0, 1, 2]
        extra = [b" Caecilius"] if name != "suffixed.json" else [b"Caecilius "]
        assert tokenizer.decode([*ids[: tokenizer.words(ids).index(1)], len(tokenizer)], extra).strip() == "der Caecilius"


def test_no_token_belongs_to_a_word_past_the_last(folder, monkeypatch):
    tokenizer = loaded(folder / "word_level.json")
    (ids,) = tokenizer.encode(["der Hund läuft"])
    assert tokenizer.words(ids) == [0, 1, 2]
    monkeypatch.setattr(tokenizer, "join", lambda tokens: "derHund läuft")  # as a decoder that takes spaces out
    assert tokenizer.words(ids) == [0, 1, 1]


def test_unknown_words(folder):
    for name, spelled in {
        "word_level.json": "der ⁇ Hund",
        "word_piece.json": "der ⁇ hund",
        "suffixed.json": "der ⁇Hund",
    }.items():
        tokenizer = loaded(folder / name)
        (ids,), (surfaces,) = tokenizer.encode(["der 日 Hund"]), tokenizer.surfaces(["der 日 Hund"])
        assert ids.count(UNKNOWN) == 1
        assert surfaces[ids.index(UNKNOWN)].decode().strip() == "日"
        assert tokenizer.decode(ids) == spelled
    byte_level = loaded(folder / "byte_level.json")
    assert byte_level.decode([*byte_level.encode(["der"])[0], UNKNOWN]) == "der⁇"  # a model may write what its file has not


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_from_bytes(folder, text):
    tokenizer = loaded(folder / "byte_level.json")
    ids = tokenizer.encode([text])[0]
    assert tokenizer.decode(ids) == b"".join(tokenizer.spelled(ids)).decode() == text


@pytest.mark.parametrize("name", FILES)
def test_saving_keeps_it_and_damage_is_refused(folder, tmp_path, name):
    plain, lower = (loaded(folder / name, lowercase=lowercase) for lowercase in (False, True))
    assert plain.digest != lower.digest
    assert lower.encode(["DER Hund"]) == plain.encode(["der hund"])
    for tokenizer in plain, lower:
        tokenizer.save(tmp_path / "t")
        again = load_tokenizer(tmp_path / "t")
        assert type(again) is type(tokenizer)
        assert (again.digest, len(again), again.encode(TEXTS + ODD)) == (
            tokenizer.digest,
            len(tokenizer),
            tokenizer.encode(TEXTS + ODD),
        )
    assert (tmp_path / "t" / plain.model_name).read_bytes() == (folder / name).read_bytes()
    (tmp_path / "t" / plain.model_name).write_bytes((folder / name).read_bytes()[:-1])
    with pytest.raises(DamagedError, match=plain.model_name):
        load_tokenizer(tmp_path / "t")


EMPTY = b'{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}}'


@pytest.mark.parametrize(("name", "content", "told"), [
    ("t.model", None, "t.model: cannot be read: No such file"),
    ("t.model", b"", "t.model: SentencePiece cannot read a tokenizer from it (data.tokenizer.file)"),
    ("t.model", b"x" * 90, "t.model: SentencePiece cannot read a tokenizer from it (data.tokenizer.file)"),
    ("t.json", b"", "t.json: Hugging Face's tokenizers cannot read a tokenizer from it (data.tokenizer.file)"),
    ("t.json", b"[]", "t.json: Hugging Face's tokenizers cannot read a tokenizer from it (data.tokenizer.file)"),
    ("t.json", b'{"add_bos_token": true}', "t.json: Hugging Face's tokenizers cannot read a tokenizer from it"),
    ("t.json", b'{"model": {"type": "None"}}', "t.json: Hugging Face's tokenizers cannot read a tokenizer from it"),
    ("t.json", EMPTY, "its vocabulary is empty"),
    ("t.txt", b"x", "t.txt: a file of a tokenizer ends in .model (SentencePiece) or .json (Hugging Face's tokenizers)"),
])  # fmt: skip
def test_what_is_no_tokenizer_is_refused_by_name(tmp_path, name, content, told):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        loaded(tmp_path / name)
    assert told in str(error.value)
    with pytest.raises(UserError, match="min_count=2 counts whole symbols"):
        loaded(tmp_path / "t.model", min_count=2)


def test_it_says_what_does_not_come_back_and_what_it_does_not_know(folder):
    def told(name, lines):
        fitter = fitter_of(Section(file=folder / name))
        fitter.add(lines)
        return fitter.finish().remark

    assert told("byte_level.json", [*TEXTS, *ODD[:4]]) is None
    assert told("exact.model", ["der  Hund\nläuft "]) is None
    wanted = "'lte Straße und oder  der die das Haus Hu' comes back as 'lte Straße und oder der die das Haus Hun'"
    assert told("unigram.model", [LINE, f"{LINE}  {LINE}"]) == (
        f"({folder / 'unigram.model'}) does not give text back as it was: {wanted}"
    )
    wanted = f"({folder / 'word_level.json'}) does not know 1 of 5 tokens, such as '日本'"
    assert told("word_level.json", ["der Hund", "der 日本 Hund"]) == wanted


PAIRS = list(zip(TEXTS[:24], (text.upper() for text in TEXTS[:24]), strict=True))


def trained(folder, **tokenizers):
    (folder / "a").write_text("".join(f"{source}\n" for source, _ in PAIRS))
    (folder / "b").write_text("".join(f"{target}\n" for _, target in PAIRS))
    sizes = {"embedding_size": 8, "hidden_size": 8}
    values = {
        "data": {"train": {"source": str(folder / "a"), "target": str(folder / "b")}, "held_out": 4, **tokenizers},
        "model": {"encoder": sizes, "decoder": {**sizes, "attention": {"score": "general"}}},
        "training": {"updates": 2, "validate_every": 2, "save_every": 1},
        "decoding": {"beam": 1, "max_length": 12},
    }
    recipe = parse(Recipe, values)
    run.train(recipe, folder / "run", talk=False)
    return recipe


def test_a_run_keeps_its_tokenizers_and_goes_on_without_the_files(folder, tmp_path):
    for name in ("bytes.model", "word_piece.json"):
        shutil.copy(folder / name, tmp_path / name)
    fields = {"target": {"tokenizer": {"file": str(tmp_path / "word_piece.json")}}}
    recipe = trained(tmp_path, tokenizer={"file": str(tmp_path / "bytes.model")}, fields=fields)
    before = regard.load(tmp_path / "run").generate(TEXTS[:3])
    for name in ("bytes.model", "word_piece.json"):
        (tmp_path / name).unlink()
    shutil.rmtree(tmp_path / "run" / "data")
    longer = recipe.model_copy(update={"training": recipe.training.model_copy(update={"updates": 4})})
    run.train(longer, tmp_path / "run", resume=True, talk=False)
    shutil.move(tmp_path / "run" / "model", tmp_path / "model")
    shutil.rmtree(tmp_path / "run")
    model = regard.load(tmp_path / "model")
    assert len(model.generate(TEXTS[:3])) == len(before) == 3
    assert isinstance(model.source, TokenizerFile)
    assert (model.source.digest, model.target.digest) == (
        loaded(folder / "bytes.model").digest,
        loaded(folder / "word_piece.json").digest,
    )


def test_a_run_says_once_what_changes_and_training_may_start_from_it(folder, tmp_path, capsys):
    (tmp_path / "one").mkdir()
    recipe = trained(tmp_path / "one", tokenizer={"file": str(folder / "word_piece.json"), "shared": True})
    start = {"start_from": tmp_path / "one" / "run"}
    other = recipe.model_copy(update={"training": recipe.training.model_copy(update=start)})
    run.train(other, tmp_path / "two", talk=True)
    err = capsys.readouterr().err
    assert "does not give" not in err  # the tokenizer is the model's own
    tokenizer = recipe.data.tokenizer.model_copy(update={"file": folder / "bytes.model"})
    wrong = other.model_copy(update={"data": recipe.data.model_copy(update={"tokenizer": tokenizer})})
    with pytest.raises(UserError, match=r"its tokenizer is not that of .*bytes\.model; set data\.tokenizer\.file=null"):
        run.train(wrong, tmp_path / "three", talk=False)
    none = recipe.data.tokenizer.model_copy(update={"file": None})
    run.train(
        other.model_copy(update={"data": recipe.data.model_copy(update={"tokenizer": none})}), tmp_path / "four", talk=False
    )
    run.train(recipe, tmp_path / "five", talk=True)
    err = capsys.readouterr().err
    assert "the tokenizer of target (" in err
    assert "comes back as" in err


def test_a_plan_counts_the_words_of_the_file(folder):
    from regard.data.texts import TextConfig

    assert shape_of("source", TextConfig(tokenizer=Section(file=folder / "byte_level.json"))).sizes == (322,)
    assert json.loads((folder / "byte_level.json").read_text())["truncation"] is not None  # which must not cut texts
