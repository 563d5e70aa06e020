"""Read and write tokenizers of other families: tokenizer.json, BPE as vocab.json and merges.txt, Unigram (unigram.py).

The WordPiece tokenizers of BERT, DistilBERT and ELECTRA are in tokenizer_files.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from osbert.data.decoder_inputs import starting_piece
from osbert.errors import UserError
from osbert.files import write_json, write_text
from osbert.guarded import LARGEST, read_bytes
from osbert.interop.huggingface.unigram import conversion_advice, tokenizer_of
from osbert.interop.json_files import read_if_there, read_object
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.tokenizer_checks import check_tokenizer
from osbert.interop.tokenizer_files import (
    LARGEST_VOCABULARY,
    check_written,
    damage_as_error,
    read_tokenizer,
    write_tokenizer,
)
from osbert.text.file_tokenizer import NAMES, AnyTokenizer, FileTokenizer
from osbert.text.tokenizer import SENTINEL, SPECIALS

FIELDS = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), NAMES))
"""Their names of the special pieces -> ours."""

INSTEAD = {"cls_token": "bos_token", "sep_token": "eos_token", "unk_token": "pad_token"}
"""Substitutes for special pieces that a folder does not name. A tokenizer may have no unknown piece."""

DEFAULTS = dict(zip(NAMES, ("<pad>", "<unk>", "<s>", "</s>", "<mask>")))
"""RoBERTa's and XLM-R's special pieces."""

END_OF_TEXT, END_OF_WORD = "<|endoftext|>", "</w>"
"""GPT-2's only special piece, and the suffix of GPT's pieces at the end of a word."""

PARTING, LAST = "<sep>", "<cls>"
"""The pieces that end a text and a sequence in XLNet's tokenizers."""

KINDS = ("BPE", "Unigram", "WordLevel")
CONFIG, MAP = "tokenizer_config.json", "special_tokens_map.json"
PLACES = ("auto_map", "name_or_path", "tokenizer_file", "vocab_file", "merges_file")
"""Settings with paths of a tokenizer or its code, which are not copied to other folders."""


def read_any_tokenizer(folder: Path | str, opening: Opening = CAREFUL) -> AnyTokenizer:
    """Return the tokenizer of a folder, of any kind.

    Raises UserError as `read_tokenizer`, and as `tokenizer_of` if there is only a SentencePiece model.
    """
    check_written(Path(folder), opening)
    with damage_as_error(folder):
        return _read(Path(folder))


def text_ids(tokenizer: AnyTokenizer) -> dict[str, int]:
    """Return the config fields with the pieces that start and end a decoder's texts, as trained here.

    transformers' `generate` and its shift of labels read these fields instead of the tokenizer.
    """
    form = tokenizer.form
    try:
        fields = {"pad_token_id": tokenizer.pad, "decoder_start_token_id": starting_piece(tokenizer)}
    except UserError:  # without a padding piece it cannot have trained a decoder
        return {}
    fields |= {"bos_token_id": form.before[0]} if form.before else {}
    return fields if form.end is None else fields | {"eos_token_id": form.end}


def text_id_remarks(config: Mapping[str, Any], tokenizer: AnyTokenizer) -> Iterator[str]:
    """Yield a remark for each piece at the start or end of a decoder's texts that a config names otherwise."""
    tokenizer_ids = text_ids(tokenizer)
    for name, what in (("decoder_start_token_id", "start"), ("eos_token_id", "end")):
        file_id, token_id = config.get(name), tokenizer_ids.get(name)
        if file_id is not None and token_id is not None and file_id != token_id:
            piece = tokenizer.tokens([token_id])[0]
            yield (
                f"config.json says that written texts {what} with piece {file_id} ({name}), the tokenizer's form says "
                f"{token_id} ({piece}), which osbert uses. A model that was trained with the former may write badly."
            )


def write_any_tokenizer(tokenizer: AnyTokenizer, folder: Path | str, *, length: int = 512, segments: int = 2) -> None:
    """Write a tokenizer so that AutoTokenizer loads the folder: as `write_tokenizer`, or the original file.

    Each file is written atomically.
    """
    if not isinstance(tokenizer, FileTokenizer):
        write_tokenizer(tokenizer, folder, length=length, segments=segments)
        return
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    named = {field: tokenizer.specials[role] for field, role in FIELDS.items() if role in tokenizer.specials}
    write_text(path / "tokenizer.json", tokenizer.content)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **named, **tokenizer.settings, "model_max_length": length}
    # Otherwise transformers would pass token_type_ids to a model without segments.
    config |= {} if segments else {"model_input_names": ["input_ids", "attention_mask"]}
    write_json(path / CONFIG, config)
    write_json(path / MAP, named)
    (path / "vocab.txt").unlink(missing_ok=True)  # of a WordPiece tokenizer that was here before


def _read(path: Path) -> AnyTokenizer:
    whole = path if path.suffix == ".json" else path / "tokenizer.json"
    if whole.is_file():
        content = read_object(whole, most=LARGEST)
        if _kind(content) in KINDS or not _has_berts_pieces(whole.parent, content):
            return _from_file(whole.parent, content)
        return read_tokenizer(path, CAREFUL.again)
    if (path / "vocab.txt").is_file() and not _has_berts_pieces(path, {}):
        raise UserError(
            f"{path} has its tokenizer as vocab.txt alone, but its special pieces are not BERT's; tokenizer.json is "
            f"missing. {conversion_advice(path)}",
            code="unusable-tokenizer",
        )
    if (path / "vocab.txt").is_file() or not path.is_dir():
        return read_tokenizer(path, CAREFUL.again)
    if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        return _from_file(path, _pair_of_files(path))
    if models := sorted(path.glob("*.model")):
        return _from_file(path, *tokenizer_of(models[0], {**read_if_there(path / MAP), **read_if_there(path / CONFIG)}))
    return read_tokenizer(path, CAREFUL.again)


def _from_file(path: Path, content: dict[str, Any], named: Mapping[str, str] | None = None) -> FileTokenizer:
    """Return a folder's tokenizer. `named`: its special pieces by our names; else `_specials` has them."""
    config = read_if_there(path / CONFIG)
    settings = {name: value for name, value in config.items() if name not in PLACES}
    _set_first_space(content, config.get("add_prefix_space"))
    written = json.dumps(content, ensure_ascii=False)
    try:
        check_tokenizer(content, len(written))
        specials = named or _specials(path, content)
        # GPT's `end` is both: it starts and ends texts. The folder's own settings override it.
        ends = {name: specials["end"] for name in ("bos_token", "eos_token") if "end" in specials}
        return FileTokenizer(written, specials=specials, settings=ends | settings)
    except UserError as error:
        raise UserError(f"{path}: {error}", code=error.code) from error


def _kind(content: Mapping[str, Any]) -> str:
    """Return the kind of a tokenizer.json's model, inferred for files of the first releases, which lack it."""
    model = content.get("model") or {}
    if "type" in model:
        return str(model["type"])
    # Only BPE has merges; Unigram's vocabulary is a list of pieces and scores.
    return "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"


def _has_berts_pieces(path: Path, content: Mapping[str, Any]) -> bool:
    """Return whether a WordPiece tokenizer uses [CLS], by its folder's settings, else by tokenizer.json."""
    config = {**read_if_there(path / MAP), **read_if_there(path / CONFIG)}
    if named := config.get("cls_token"):
        return _piece(named) == SPECIALS[2]
    # MPNet's is a WordPiece tokenizer with RoBERTa's special pieces.
    if str(config.get("tokenizer_class")).startswith("MPNet"):
        return False
    form = content.get("post_processor")
    return form is None or SPECIALS[2] in json.dumps(form)


def _specials(path: Path, content: Mapping[str, Any]) -> dict[str, str]:
    """Return the special pieces in the settings of a folder, by our names.

    Pieces that they do not name are RoBERTa's, or substitutes by `INSTEAD` if the tokenizer lacks those. GPT's
    tokenizers need only an unknown piece, for which GPT-2 uses its `end` of texts.
    """
    config = {**read_if_there(path / MAP), **read_if_there(path / CONFIG)}
    named = {role: _piece(config[field]) for field, role in FIELDS.items() if config.get(field)}
    vocabulary = content["model"]["vocab"]
    pieces = {*vocabulary} if isinstance(vocabulary, dict) else {piece for piece, _ in vocabulary}
    # Added pieces are not always in the model's vocabulary.
    pieces |= {added["content"] for added in content.get("added_tokens") or ()}
    if SENTINEL.format(0) in pieces:  # T5's: no piece before a text, and no mask
        ending = _piece(config.get("eos_token") or DEFAULTS["sep"])
        specials = {"pad": DEFAULTS["pad"], "unknown": DEFAULTS["unknown"], "sep": ending} | named
        return {name: specials[name] for name in NAMES if name in specials}  # fingerprints follow from the order
    if {LAST, PARTING} <= pieces:  # XLNet's, which has the pieces of RoBERTa, too
        return DEFAULTS | {"cls": LAST, "sep": PARTING} | named
    # With all of RoBERTa's pieces, or without any mark of GPT, the defaults are RoBERTa's.
    usual = {piece for name, piece in DEFAULTS.items() if name != "unknown"}
    if usual <= pieces or not (END_OF_TEXT in pieces or _ends_words(pieces)):
        others = {FIELDS[field]: config.get(other) for field, other in INSTEAD.items()}
        others["unknown"] = content["model"].get("unk_token") or others["unknown"]
        # A substitute only if the vocabulary lacks the default piece.
        lacking = {role: _piece(piece) for role, piece in others.items() if piece and DEFAULTS[role] not in pieces}
        return DEFAULTS | lacking | named
    end = {"end": _piece(config.get("eos_token") or END_OF_TEXT)} if END_OF_TEXT in pieces else {}
    specials = {"unknown": end.get("end", DEFAULTS["unknown"]), **named, **({} if "cls" in named else end)}
    return {name: specials[name] for name in (*NAMES, "end") if name in specials}  # fingerprints follow from the order


def _ends_words(pieces: Iterable[str]) -> bool:
    return any(piece.endswith(END_OF_WORD) for piece in pieces)


def _piece(name: str | Mapping[str, Any]) -> str:
    return name if isinstance(name, str) else str(name["content"])


def _set_first_space(content: dict[str, Any], wanted: bool | None) -> None:
    """Set whether a byte-level tokenizer prepends a space: the folder's setting overrides the file's."""
    for part in ("pre_tokenizer", "post_processor"):
        if wanted is not None and "add_prefix_space" in (content.get(part) or {}):
            content[part]["add_prefix_space"] = wanted


def _pair_of_files(path: Path) -> dict[str, Any]:
    """Return a tokenizer.json made from vocab.json and merges.txt in a folder of GPT, GPT-2 or RoBERTa."""
    ids = read_object(path / "vocab.json", most=LARGEST)
    try:
        lines = read_bytes(path / "merges.txt", most=LARGEST_VOCABULARY).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path / 'merges.txt'}: not UTF-8 at byte {error.start:,}. Copy or download it again.",
            code="wrong-encoding",
        ) from None
    # The first line may be a comment with the version. The order of the lines is the priority of merges.
    merges = [line for line in lines if line and not line.startswith("#version")]
    named = _specials(path, {"model": {"vocab": ids}})
    if missing := [piece for piece in named.values() if piece not in ids]:
        raise UserError(
            f"{path / 'vocab.json'} lacks the special pieces {', '.join(missing)}. Is it a folder of GPT or RoBERTa?",
            code="unusable-tokenizer",
        )
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": ids[piece], "content": piece, **plain} for piece in dict.fromkeys(named.values())]
    sides = {name: [named[name], ids[named[name]]] for name in ("sep", "cls") if name in named}
    byte_level = {"add_prefix_space": False, "trim_offsets": True}
    parts: dict[str, Any] = {
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "use_regex": True, **byte_level},
        "post_processor": {"type": "RobertaProcessing", **sides, **byte_level} if len(sides) == 2 else None,
        "decoder": {"type": "ByteLevel", "use_regex": True, "add_prefix_space": True, "trim_offsets": True},
    }
    if worded := _ends_words(ids):  # GPT's: BERT's words in lower case
        normalizer = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
        parts = {
            "normalizer": {"type": "BertNormalizer", **normalizer},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": None,
            "decoder": {"type": "BPEDecoder", "suffix": END_OF_WORD},
        }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        **parts,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": named["unknown"] if worded else None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": END_OF_WORD if worded else "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": merges,
        },
    }
