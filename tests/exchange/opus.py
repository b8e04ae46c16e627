"""Tiny Marian models with random weights, as Hugging Face keeps opus-mt."""

import io
import json

import sentencepiece
import torch

SOURCES = ["the small dog sees the old house", "a house", "dogs see the street", "the old street is small", "old dogs", "the"]
TARGETS = [
    "der kleine Hund sieht das alte Haus",
    "ein Haus",
    "Hunde sehen die Straße",
    "die alte Straße ist klein",
    "alte Hunde",
]


def pieces(lines, size):
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 20), model_writer=writer, vocab_size=size, hard_vocab_limit=False, minloglevel=2,
        pad_id=-1, bos_id=-1, eos_id=0, unk_id=1,
    )  # fmt: skip
    return writer.getvalue()


def write_tokenizers(folder, languages=(">>deu<<",)):
    """source.spm, target.spm and the vocabulary of both: </s> first, <pad> last."""
    found = {}
    for side, lines in (("source", SOURCES), ("target", TARGETS)):
        model = pieces(lines, 60)
        (folder / f"{side}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        found |= dict.fromkeys(processor.id_to_piece(token) for token in range(2, len(processor)))
    names = ["</s>", "<unk>", *languages, *found, "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: token for token, name in enumerate(names)}))
    return names


def ids_of(folder, side, lines):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
    vocabulary = json.loads((folder / "vocab.json").read_text())
    rows = [torch.tensor([vocabulary[piece] for piece in processor.encode(line, out_type=str)] + [0]) for line in lines]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=vocabulary["<pad>"])


def learn(model, folder, steps):
    """A little, so that outputs differ from source to source and end."""
    source, target = (ids_of(folder, *side) for side in (("source", SOURCES[:5]), ("target", TARGETS)))
    padding, optimizer = model.config.pad_token_id, torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        labels = target.masked_fill(target == padding, -100)
        model(input_ids=source, attention_mask=(source != padding).long(), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def write(folder, theirs, *, padding=-1e4, steps=40, generation=None, **changes):
    """The model of the library, and the directory it was saved in."""
    folder.mkdir()
    size = len(write_tokenizers(folder))
    options = {
        "vocab_size": size, "d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 2,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 20, "max_position_embeddings": 64,
        "activation_function": "swish", "scale_embedding": True, "pad_token_id": size - 1, "eos_token_id": 0,
        "decoder_start_token_id": size - 1, "forced_eos_token_id": None, "bos_token_id": None, **changes,
    }  # fmt: skip
    model = theirs.MarianMTModel(theirs.MarianConfig(**options)).eval()
    for tensor in (each for each in model.parameters() if each.requires_grad and each.dim() > 1):
        tensor.data.normal_(std=0.3)
    model.final_logits_bias.normal_()[:, size - 1] = padding
    learn(model, folder, steps)
    model.generation_config.update(**(generation or {"num_beams": 4, "max_length": 24, "bad_words_ids": [[size - 1]]}))
    model.save_pretrained(folder)
    return model
