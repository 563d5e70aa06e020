"""Small tokenizers of other families than BERT's, learnt here and written as transformers writes them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import tokenizers
import transformers
from tokenizers import ByteLevelBPETokenizer, CharBPETokenizer, SentencePieceUnigramTokenizer, decoders, pre_tokenizers
from tokenizers.decoders import Sequence
from tokenizers.models import BPE
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
LEARNT = ["the quick brown fox don't stop", "naïve cafés, wörld … end.", "日本語 text", "a film good bad fine poor"]


def save_bpe(folder: Path) -> None:
    """vocab.json and merges.txt alone, as the first RoBERTa folders."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(LEARNT, vocab_size=320, min_frequency=1, special_tokens=SPECIALS, show_progress=False)
    folder.mkdir(exist_ok=True)
    trained.save_model(str(folder))


def save_roberta(folder: Path) -> None:
    """Byte-level BPE; beside the folder stays one named "bare", with its files alone."""
    save_bpe(folder.with_name("bare"))
    transformers.RobertaTokenizer.from_pretrained(folder.with_name("bare")).save_pretrained(folder)


def unigram() -> SentencePieceUnigramTokenizer:
    trained = SentencePieceUnigramTokenizer()
    options = {"special_tokens": SPECIALS, "unk_token": "<unk>", "show_progress": False}
    trained.train_from_iterator(LEARNT, vocab_size=90, **options)
    return trained


def save_xlm_roberta(folder: Path) -> None:
    """Unigram."""
    vocabulary = json.loads(unigram().to_str())["model"]["vocab"]
    transformers.XLMRobertaTokenizer(vocab=[tuple(entry) for entry in vocabulary]).save_pretrained(folder)


def save_deberta(folder: Path) -> None:
    """Unigram with BERT's special pieces, each with the id that DeBERTa's third version has for it, but [MASK]."""
    specials = [f"[{name}]" for name in ("PAD", "CLS", "SEP", "UNK", "MASK")]
    learnt = [
        (piece, score) for piece, score in json.loads(unigram().to_str())["model"]["vocab"] if piece not in SPECIALS
    ]
    vocabulary = [*((piece, 0.0) for piece in specials), *learnt]
    transformers.DebertaV2TokenizerFast(vocab=vocabulary, unk_id=specials.index("[UNK]")).save_pretrained(folder)


def save_normalizing(folder: Path) -> None:
    """As XLM-R's own file: what is written otherwise is made one before it is cut, so that places move."""
    content = json.loads(unigram().to_str())
    ends = {name: {"id": name, "ids": [SPECIALS.index(name)], "tokens": [name]} for name in ("<s>", "</s>")}
    first, closing = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}
    texts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, texts[0], closing],
        "pair": [first, texts[0], closing, closing, texts[1], closing],
        "special_tokens": ends,
    }
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    names = dict(zip(("cls_token", "pad_token", "sep_token", "unk_token", "mask_token"), SPECIALS))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def save_modernbert(folder: Path) -> None:
    """As ModernBERT and Ettin: byte-level BPE on NFC, GPT's end of texts unused, BERT's special pieces, no segments."""
    specials = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    trained = ByteLevelBPETokenizer(unicode_normalizer="nfc")
    pieces = ["<|endoftext|>", *specials.values()]
    trained.train_from_iterator(LEARNT, vocab_size=320, min_frequency=1, special_tokens=pieces, show_progress=False)
    trained.add_tokens(["  ", "   "])
    written(folder, trained._tokenizer, specials, ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"))


def save_mpnet(folder: Path) -> None:
    """WordPiece whose special pieces are RoBERTa's; BERT's are pieces as any other, four ids further on."""
    pieces = [*SPECIALS[:3], "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,'…日本"]
    pieces += ["the", "quick", "brown", "fox", "film", "good", "bad", "fine", "poor", "cafe", "##s", "##orld"]
    pieces += [f"##{letter}" for letter in "abcdefghijklmnopqrtuvwxyz"] + ["<mask>"]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    transformers.MPNetTokenizer(vocab=vocabulary, unk_token="[UNK]").save_pretrained(folder)


def written(
    folder: Path, library: tokenizers.Tokenizer, specials: dict[str, str], template: tuple[str, str], **settings: object
) -> None:
    """Write a tokenizer with the forms of one text and of two, as folders of encoders without segments have it."""
    ids = [(piece, library.token_to_id(piece)) for piece in specials.values() if piece in template[0].split()]
    library.post_processor = TemplateProcessing(single=template[0], pair=template[1], special_tokens=ids)
    names = ["input_ids", "attention_mask"]
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, model_input_names=names, **specials, **settings
    )
    made.save_pretrained(folder)


def save_mmbert(folder: Path) -> None:
    """As mmBERT, which has Gemma 2's: BPE where a space is "▁", and bytes for characters without a piece."""
    library = tokenizers.Tokenizer(BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.normalizer = Replace(" ", "▁")
    library.pre_tokenizer = Split(" ", "merged_with_previous")
    library.decoder = Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    codes = [f"<0x{byte:02X}>" for byte in range(256)]
    library.train_from_iterator(
        [word for text in LEARNT[:2] for word in text.split()] * 2 + ["▁the", "▁quick", "▁fox", "▁▁"],
        BpeTrainer(vocab_size=340, special_tokens=[*specials, *codes], show_progress=False),
    )
    content = json.loads(library.to_str())
    content["added_tokens"] = [one for one in content["added_tokens"] if one["content"] not in codes]
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    names = dict(zip(("pad_token", "eos_token", "bos_token", "unk_token", "mask_token"), specials))
    names |= {"cls_token": "<bos>", "sep_token": "<eos>"}
    written(folder, library, names, ("<bos> $A <eos>", "<bos> $A <eos> $B:1 <eos>:1"))


def save_eurobert(folder: Path) -> None:
    """As EuroBERT, which has Llama 3's: byte-level BPE, its own splitter, and no unknown piece, cls or sep."""
    library = tokenizers.Tokenizer(BPE(ignore_merges=True))
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    split = Split(tokenizers.Regex(words), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    library.decoder = decoders.ByteLevel()
    specials = {"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>", "mask": "<|mask|>", "pad": "<|pad|>"}
    alphabet = ByteLevel.alphabet()
    options = {"special_tokens": [*specials.values()], "initial_alphabet": alphabet, "show_progress": False}
    library.train_from_iterator(LEARNT, BpeTrainer(vocab_size=320, **options))
    first, last = specials["bos"], specials["eos"]
    forms = (f"{first} $A {last}", f"{first} $A {last} {first}:1 $B:1 {last}:1")
    written(folder, library, {f"{name}_token": piece for name, piece in specials.items()}, forms)


def save_gpt2(folder: Path) -> None:
    """Byte-level BPE with GPT-2's one special piece, as transformers writes it."""
    trained, end = ByteLevelBPETokenizer(), "<|endoftext|>"
    trained.train_from_iterator(LEARNT, vocab_size=320, min_frequency=1, special_tokens=[end], show_progress=False)
    folder.mkdir(exist_ok=True)
    trained.save_model(str(folder))
    transformers.GPT2Tokenizer.from_pretrained(folder).save_pretrained(folder)


def save_gpt(folder: Path) -> None:
    """Lower-case BPE whose pieces show where a word ends, as transformers writes it."""
    trained = CharBPETokenizer(lowercase=True, suffix="</w>", bert_normalizer=True)
    trained.train_from_iterator(LEARNT, vocab_size=120, min_frequency=1, special_tokens=["<unk>"], show_progress=False)
    folder.mkdir(exist_ok=True)
    trained.save_model(str(folder))
    transformers.OpenAIGPTTokenizer.from_pretrained(folder).save_pretrained(folder)


GPTS: dict[str, Callable[[Path], None]] = {"gpt": save_gpt, "gpt2": save_gpt2}
"""Tokenizers without special pieces around a text. Beside tokenizer.json lie vocab.json and merges.txt."""

KINDS: dict[str, Callable[[Path], None]] = {
    "bpe": save_bpe,
    "roberta": save_roberta,
    "xlm-roberta": save_xlm_roberta,
    "deberta": save_deberta,
    "normalizing": save_normalizing,
    "mpnet": save_mpnet,
    "modernbert": save_modernbert,
    "mmbert": save_mmbert,
    "eurobert": save_eurobert,
}
