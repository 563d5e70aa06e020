"""Tokenizers of folders, read and written: WordPiece as vocab.txt and tokenizer.json, and those of other families.

The others are a tokenizer.json, BPE as vocab.json and merges.txt, or Unigram (huggingface/unigram.py). If files
disagree, pieces are from tokenizer.json, and settings of case, accents and CJK from tokenizer_config.json, as in
transformers. One difference: transformers may map words of more than 100 characters to [UNK]; here, as in
google-research/bert, the limit is 200.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.files import write_json, write_text
from osbert.guarded import LARGEST, read_bytes, read_if_there, read_object
from osbert.interop.files.tokenizer_checks import PIECES, check_tokenizer
from osbert.interop.opening import CAREFUL, Opening
from osbert.text.file_tokenizer import (
    NAMES,
    AnyTokenizer,
    FileTokenizer,
    added_piece,
    piece_ids,
    piece_text,
    sentinel_ids,
    text_template,
)
from osbert.text.tokenizer import LONGEST_WORD, SENTINEL, SPECIALS, Tokenizer

FIELDS = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), NAMES))
"""Their names of the special pieces -> ours."""
_NAMES = dict(zip(FIELDS, SPECIALS))
_FLAGS = {  # in tokenizer.json's BertNormalizer: in tokenizer_config.json
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
_WITHOUT_FLAGS = (None, "PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes of transformers that follow tokenizer.json alone; BERT's and its kin's apply the flags instead."""
LARGEST_VOCABULARY = 1 << 26
"""Largest file of a vocabulary, 64 MiB."""
_INSTEAD = "A WordPiece tokenizer, as BERT's, is needed here. Train one: osbert tokenizer train"


@contextlib.contextmanager
def damage_as_error(path: Path | str) -> Iterator[None]:
    """Raise UserError if a field of a tokenizer file has an unexpected type."""
    try:
        yield
    except (TypeError, AttributeError, LookupError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{path}: a file of the tokenizer is damaged: a value has an unexpected type ({reason}). Copy or "
            "download it again.",
            code="unusable-tokenizer",
        ) from error


def read_tokenizer(folder: Path | str, opening: Opening = CAREFUL) -> Tokenizer:
    """Return the tokenizer of a folder or of a single vocab.txt.

    Without a setting of case, a vocabulary is cased if a piece, other than a special one, has a capital letter.

    Raises UserError as `_read_json_files`, and if a file is missing or a part of tokenizer.json is not BERT's.
    """
    path = Path(folder)
    return _word_piece(path, *_read_json_files(path, opening))


def _read_json_files(path: Path, opening: Opening) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the content of tokenizer.json, None without one, and of tokenizer_config.json, {} without one.

    `path`: their folder, or the first of them. Raises UserError if a finished run's tokenizer has changed since.
    """
    is_file = path.is_file()
    folder = path.parent if is_file else path
    opening.check(folder, among=(path.name, CONFIG) if is_file else WRITTEN)
    whole = path if is_file and path.suffix == ".json" else path / "tokenizer.json"
    content = read_object(whole, most=LARGEST) if whole.is_file() else None
    settings = read_if_there(folder / CONFIG)
    with damage_as_error(whole):
        return content, settings | _merge_lowercase(content or {}, settings.get("tokenizer_class"))


def _merge_lowercase(content: dict[str, Any], tokenizer_class: object) -> dict[str, bool]:
    """Reduce the steps Lowercase and BertNormalizer, which sentence-transformers writes, to the last; return its flags.

    There are none where `tokenizer_class` ignores the first step, as transformers' BertTokenizer does.
    """
    steps = (content.get("normalizer") or {}).get("normalizers") or []
    if [step["type"] for step in steps] != ["Lowercase", "BertNormalizer"]:
        return {}
    content["normalizer"] = normalizer = steps[1]
    if tokenizer_class not in _WITHOUT_FLAGS:
        return {}
    accents = normalizer.get("strip_accents")
    accents = normalizer.get("lowercase", True) if accents is None else accents
    return {"do_lower_case": True, "strip_accents": accents}


def _word_piece(path: Path, content: dict[str, Any] | None, settings: Mapping[str, Any]) -> Tokenizer:
    """Return the WordPiece tokenizer of a folder, or of a single file, with the content of its JSON files."""
    flags: dict[str, bool | None] = {}
    if content is not None:
        whole = path if path.is_file() else path / "tokenizer.json"
        with damage_as_error(whole):
            vocabulary, flags = _from_tokenizer_json(whole, content)
    elif path.is_file():
        vocabulary = _read_vocabulary(path)
    elif (path / "vocab.txt").is_file():
        vocabulary = _read_vocabulary(path / "vocab.txt")
    elif not path.is_dir():
        raise UserError(f"{path} does not exist; the folder or file of a tokenizer was expected.", code="missing-file")
    else:
        inside = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
        raise UserError(
            f"{path}: neither tokenizer.json nor vocab.txt is in this folder (it has {inside}). {_INSTEAD}.",
            code="unusable-tokenizer",
        )
    for flag, field in _FLAGS.items():
        if settings.get(field) is not None:
            flags[flag] = settings[field]
    if wrong := [f"{_FLAGS[name]} is {flag!r}" for name, flag in flags.items() if flag not in (None, True, False)]:
        raise UserError(
            f"{path}: the tokenizer's {' and '.join(wrong)}, which must be true or false.", code="unusable-tokenizer"
        )
    lowercase = flags.get("lowercase")
    if lowercase is None:
        lowercase = all(piece == piece.lower() or (piece[:1] == "[" and piece[-1:] == "]") for piece in vocabulary)
    try:
        return Tokenizer(
            vocabulary,
            lowercase=lowercase,
            strip_accents=flags.get("strip_accents"),
            cjk=flags.get("handle_chinese_chars") is not False,
        )
    except UserError as error:
        raise UserError(f"{path}: {error}", code=error.code) from error


WRITTEN = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
"""The files of a tokenizer."""


def write_tokenizer(tokenizer: Tokenizer, folder: Path | str, *, length: int = 512, segments: int = 2) -> None:
    """Write tokenizer.json, vocab.txt, tokenizer_config.json and special_tokens_map.json; each atomically.

    transformers' AutoTokenizer loads the folder. `length`: its limit for sequences; without `segments` its
    configuration does not list token_type_ids.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    flags = {
        "do_lower_case": tokenizer.lowercase,
        "strip_accents": tokenizer.strip_accents,
        "tokenize_chinese_chars": tokenizer.cjk,
    }
    config = {"tokenizer_class": "BertTokenizer", "model_max_length": length, **flags, **_NAMES}
    config |= {} if segments else {"model_input_names": ["input_ids", "attention_mask"]}
    write_json(path / "tokenizer.json", _description(tokenizer))
    write_json(path / "tokenizer_config.json", config)
    write_json(path / "special_tokens_map.json", _NAMES)
    # Last: alone it would be read as lowercase, also where the tokenizer is not.
    write_text(path / "vocab.txt", "".join(f"{piece}\n" for piece in tokenizer.vocabulary))


def _from_tokenizer_json(path: Path, content: Mapping[str, Any]) -> tuple[list[str], dict[str, bool | None]]:
    model = content.get("model") or {}
    vocabulary = model.get("vocab")
    kind = model.get("type") or ("WordPiece" if "max_input_chars_per_word" in model else "unknown")
    normalizer = content.get("normalizer") or {}
    steps = [str(step["type"]) for step in normalizer.get("normalizers") or ()]
    splitter = content.get("pre_tokenizer") or {}
    for part, actual, wanted in (
        ("model", kind, "WordPiece"),
        ("prefix of pieces inside words", model.get("continuing_subword_prefix", "##"), "##"),
        ("normalizer", f"Sequence of {', '.join(steps)}" if steps else normalizer.get("type"), "BertNormalizer"),
        ("pre-tokenizer", splitter.get("type"), "BertPreTokenizer"),
        ("cleaning of control characters", normalizer.get("clean_text", True), True),
    ):
        if actual != wanted:
            raise UserError(
                f"{path}: the {part} is {actual}, but BERT has {wanted}. {_INSTEAD}.", code="unusable-tokenizer"
            )
    if not isinstance(vocabulary, dict):
        raise UserError(
            f"{path}: the model has no vocabulary of pieces and ids. The file is damaged or incomplete.",
            code="unusable-tokenizer",
        )
    ids = dict(vocabulary)
    # Added tokens may be missing from the model's vocabulary; those that are in it have the same id there.
    for added in content.get("added_tokens") or ():
        ids[added["content"]] = added["id"]
    pieces = sorted(ids, key=ids.__getitem__)
    for expected, piece in enumerate(pieces):
        if ids[piece] != expected:
            raise UserError(
                f"{path}: the id {expected} is missing or used twice (the next piece is {piece!r}, with id "
                f"{ids[piece]}).",
                code="unusable-tokenizer",
            )
    return pieces, {flag: normalizer.get(flag) for flag in _FLAGS}


def _read_vocabulary(path: Path) -> list[str]:
    try:
        content = read_bytes(path, most=LARGEST_VOCABULARY)
        if (count := content.count(b"\n")) > PIECES:
            raise UserError(
                f"{path} has {count:,} lines; a vocabulary has at most {PIECES:,} pieces, one per line.",
                code="too-large",
            )
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not UTF-8 at byte {error.start:,}. A vocabulary has one piece per line, in UTF-8.",
            code="wrong-encoding",
        ) from None
    # Blank lines at the end are no pieces. Elsewhere a line counts, since its number is the id of its piece.
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise UserError(f"{path}: the file is empty. A vocabulary has one piece per line.", code="unusable-tokenizer")
    # A piece that is itself white space, such as U+3000, must not become empty.
    return [line.strip() or line for line in lines]


def _description(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of a tokenizer.json, as the `tokenizers` library writes it."""
    ids = piece_ids(tokenizer)
    added = sorted([*SPECIALS, *(tokenizer.vocabulary[mark] for mark in sentinel_ids(tokenizer))], key=ids.__getitem__)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_piece(piece, ids[piece]) for piece in added],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenizer.cjk,
            "strip_accents": tokenizer.strip_accents,
            "lowercase": tokenizer.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": text_template("[CLS]", "[SEP]", ids, segments=True),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": ids,
        },
    }


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
    path = Path(folder)
    content, settings = _read_json_files(path, opening)
    with damage_as_error(path):
        folder = path.parent if path.suffix == ".json" and path.is_file() else path
        names = {**read_if_there(folder / MAP), **settings}
        if content is not None:
            if _kind(content) in KINDS or not _has_berts_pieces(names, content) or _adds_pieces(content):
                return _from_file(folder, content, settings, names)
        elif (path / "vocab.txt").is_file():
            if not _has_berts_pieces(names, {}):
                from osbert.interop.huggingface.unigram import conversion_advice

                raise UserError(
                    f"{path} has only vocab.txt, but its special pieces are not BERT's: tokenizer.json is needed. "
                    f"{conversion_advice(path)}",
                    code="unusable-tokenizer",
                )
        elif path.is_dir():
            if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
                return _from_file(path, _add_later(_pair_of_files(path, names), path, settings), settings, names)
            if models := sorted(path.glob("*.model")):
                from osbert.interop.huggingface.unigram import tokenizer_of

                content, specials = tokenizer_of(models[0], names)
                return _from_file(path, content, settings, names, specials)
        tokenizer = _word_piece(path, content, settings)
        if content is None and path.is_dir():
            content = _add_later(_description(tokenizer), path, settings)
            if _adds_pieces(content):
                return _from_file(path, content, settings, names)
        return tokenizer


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


def _from_file(
    path: Path,
    content: dict[str, Any],
    settings: Mapping[str, Any],
    names: Mapping[str, Any],
    specials: Mapping[str, str] | None = None,
) -> FileTokenizer:
    """Return a folder's tokenizer.

    `settings`: the content of tokenizer_config.json; `names`: the same with special_tokens_map.json. `specials`: the
    special pieces by our names; None for those of `names`.
    """
    first_space = settings.get("add_prefix_space")  # of a byte-level tokenizer: it overrides the file's
    for part in ("pre_tokenizer", "post_processor"):
        if first_space is not None and "add_prefix_space" in (content.get(part) or {}):
            content[part]["add_prefix_space"] = first_space
    normalizer = content.get("normalizer") or {}
    if _kind(content) == "WordPiece" and normalizer.get("type") == "BertNormalizer":  # these settings do so, too
        normalizer |= {flag: settings[name] for flag, name in _FLAGS.items() if settings.get(name) is not None}
    written = json.dumps(content, ensure_ascii=False)
    try:
        check_tokenizer(content, len(written))
        specials = specials or _specials(names, content)
        # GPT's `end` is both: it starts and ends texts. The folder's own settings override it.
        ends = {name: specials["end"] for name in ("bos_token", "eos_token") if "end" in specials}
        copied = {name: value for name, value in settings.items() if name not in PLACES}
        return FileTokenizer(written, specials=specials, settings=ends | copied)
    except UserError as error:
        raise UserError(f"{path}: {error}", code=error.code) from error


def _kind(content: Mapping[str, Any]) -> str:
    """Return the kind of a tokenizer.json's model, inferred for files of the first releases, which lack it."""
    model = content.get("model") or {}
    if "type" in model:
        return str(model["type"])
    # Only BPE has merges; Unigram's vocabulary is a list of pieces and scores.
    return "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"


def _adds_pieces(content: Mapping[str, Any]) -> bool:
    """Return whether pieces were added to a WordPiece vocabulary: they are found in a text before it is split."""
    added = [token["content"] for token in content.get("added_tokens") or ()]
    return any(piece not in SPECIALS and not piece.startswith(SENTINEL[:9]) for piece in added)


def _add_later(content: dict[str, Any], folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Add the pieces that a folder without tokenizer.json has beside its vocabulary."""
    stored = read_if_there(folder / "added_tokens.json")
    later = settings.get("added_tokens_decoder") or {number: piece for piece, number in stored.items()}
    known = {token["content"] for token in content["added_tokens"]}
    for number, token in sorted(later.items(), key=lambda pair: int(pair[0])):
        if (piece := piece_text(token)) not in known:
            flags = {"normalized": True} if isinstance(token, str) else token  # transformers' defaults, or all flags
            content["added_tokens"].append(added_piece(piece, int(number), special=False) | flags)
    return content


def _has_berts_pieces(names: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Return whether a WordPiece tokenizer uses [CLS], by its folder's settings, else by tokenizer.json."""
    if cls_piece := names.get("cls_token"):
        return SPECIALS[2] == (cls_piece if isinstance(cls_piece, str) else cls_piece["content"])
    # MPNet's is a WordPiece tokenizer with RoBERTa's special pieces.
    if str(names.get("tokenizer_class")).startswith("MPNet"):
        return False
    form = content.get("post_processor")
    return form is None or SPECIALS[2] in json.dumps(form)


def _specials(config: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, str]:
    """Return the special pieces in the settings of a folder, by our names.

    Pieces that they do not name are RoBERTa's, or substitutes by `INSTEAD` if the tokenizer lacks those. GPT's
    tokenizers need only an unknown piece, for which GPT-2 uses its `end` of texts.
    """
    named = {role: piece_text(config[field]) for field, role in FIELDS.items() if config.get(field)}
    vocabulary = content["model"]["vocab"]
    pieces = {*vocabulary} if isinstance(vocabulary, dict) else {piece for piece, _ in vocabulary}
    # Added pieces are not always in the model's vocabulary.
    pieces |= {added["content"] for added in content.get("added_tokens") or ()}
    if SENTINEL.format(0) in pieces:  # T5's: no piece before a text, and no mask
        ending = piece_text(config.get("eos_token") or DEFAULTS["sep"])
        specials = {"pad": DEFAULTS["pad"], "unknown": DEFAULTS["unknown"], "sep": ending} | named
        return {name: specials[name] for name in NAMES if name in specials}  # fingerprints follow from the order
    if {LAST, PARTING} <= pieces:  # XLNet's, which has the pieces of RoBERTa, too
        return DEFAULTS | {"cls": LAST, "sep": PARTING} | named
    if {*SPECIALS} <= pieces:  # DeBERTa's first version: byte-level BPE with BERT's special pieces
        return dict(zip(NAMES, SPECIALS)) | named
    # With all of RoBERTa's pieces, or without any mark of GPT, the defaults are RoBERTa's.
    usual = {piece for name, piece in DEFAULTS.items() if name != "unknown"}
    if usual <= pieces or not (END_OF_TEXT in pieces or _ends_words(pieces)):
        others = {FIELDS[field]: config.get(other) for field, other in INSTEAD.items()}
        others["unknown"] = content["model"].get("unk_token") or others["unknown"]
        # A substitute only if the vocabulary lacks the default piece.
        lacking = {role: piece_text(piece) for role, piece in others.items() if piece and DEFAULTS[role] not in pieces}
        return DEFAULTS | lacking | named
    end = {"end": piece_text(config.get("eos_token") or END_OF_TEXT)} if END_OF_TEXT in pieces else {}
    specials = {"unknown": end.get("end", DEFAULTS["unknown"]), **named, **({} if "cls" in named else end)}
    return {name: specials[name] for name in (*NAMES, "end") if name in specials}  # fingerprints follow from the order


def _ends_words(pieces: Iterable[str]) -> bool:
    return any(piece.endswith(END_OF_WORD) for piece in pieces)


def _pair_of_files(path: Path, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tokenizer.json made from vocab.json and merges.txt, as of GPT, GPT-2, RoBERTa and the first DeBERTa."""
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
    named = _specials(names, {"model": {"vocab": ids}})
    if missing := [piece for piece in named.values() if piece not in ids]:
        raise UserError(
            f"{path / 'vocab.json'} lacks the special pieces {', '.join(missing)}. Is it a folder of GPT or RoBERTa?",
            code="unusable-tokenizer",
        )
    added = sorted({*named.values()}, key=ids.__getitem__)
    sides = {name: [named[name], ids[named[name]]] for name in ("sep", "cls") if name in named}
    byte_level = {"add_prefix_space": False, "trim_offsets": True}
    parts: dict[str, Any] = {
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "use_regex": True, **byte_level},
        "post_processor": {"type": "RobertaProcessing", **sides, **byte_level} if len(sides) == 2 else None,
        "decoder": {"type": "ByteLevel", "use_regex": True, "add_prefix_space": True, "trim_offsets": True},
    }
    if named.get("cls") == SPECIALS[2]:
        parts["post_processor"] = text_template("[CLS]", "[SEP]", ids, segments=True)
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
        "added_tokens": [added_piece(piece, ids[piece]) for piece in added],
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
