"""Small tokenizers of other families than BERT's, learnt here and written as transformers writes them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from tokenizers import ByteLevelBPETokenizer, SentencePieceUnigramTokenizer
from tokenizers.processors import TemplateProcessing

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
    """Byte-level BPE with BERT's special pieces, and no segments."""
    specials = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    trained = ByteLevelBPETokenizer()
    options = {"min_frequency": 1, "special_tokens": [*specials.values()], "show_progress": False}
    trained.train_from_iterator(LEARNT, vocab_size=320, **options)
    ids = [(piece, trained.token_to_id(piece)) for piece in ("[CLS]", "[SEP]")]
    library = trained._tokenizer
    library.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    names = ["input_ids", "attention_mask"]
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=library, model_input_names=names, **specials)
    made.save_pretrained(folder)


KINDS: dict[str, Callable[[Path], None]] = {
    "bpe": save_bpe,
    "roberta": save_roberta,
    "xlm-roberta": save_xlm_roberta,
    "deberta": save_deberta,
    "normalizing": save_normalizing,
}
