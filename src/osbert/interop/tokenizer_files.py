"""Tokenizer folders: reads vocab.txt and tokenizer.json, ours and Hugging Face's, and writes files that both read.

If files disagree, pieces are from tokenizer.json, and settings of case, accents and CJK from tokenizer_config.json, as
in transformers. One difference: transformers may map words of more than 100 characters to [UNK]; here, as in
google-research/bert, the limit is 200.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.files import write_json, write_text
from osbert.guarded import LARGEST, read_bytes
from osbert.interop.json_files import read_object
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.tokenizer_checks import PIECES
from osbert.text.sentinels import sentinel_ids
from osbert.text.tokenizer import LONGEST_WORD, SPECIALS, Tokenizer

_NAMES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS))
_FLAGS = {  # in tokenizer.json's BertNormalizer: in tokenizer_config.json
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
LARGEST_VOCABULARY = 1 << 26
"""Largest file of a vocabulary, 64 MiB."""
_INSTEAD = "A WordPiece tokenizer as BERT's is needed here; give one of those, or train one: osbert tokenizer train"


@contextlib.contextmanager
def damage_as_error(path: Path | str) -> Iterator[None]:
    """Raise UserError if a field of a tokenizer file has an unexpected type."""
    try:
        yield
    except (TypeError, AttributeError, LookupError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{path}: a file of the tokenizer is damaged: it has other values than such a file has "
            f"({reason}). Copy or download it again.",
            code="unusable-tokenizer",
        ) from error


def check_written(path: Path, opening: Opening) -> None:
    """Raise UserError if the tokenizer of a finished run, or a single file of it, has changed since."""
    if path.is_file():
        opening.check(path.parent, among=(path.name, "tokenizer_config.json"))
    else:
        opening.check(path, among=WRITTEN)


def read_tokenizer(folder: Path | str, opening: Opening = CAREFUL) -> Tokenizer:
    """Return the tokenizer of a folder or of a single vocab.txt.

    Without a setting of case, a vocabulary is cased if a piece, other than a special one, has a capital letter.

    Raises UserError as `check_written`, and if a file is missing or a part of tokenizer.json is not BERT's.
    """
    path = Path(folder)
    check_written(path, opening)
    if path.is_dir():
        files = {name: path / name for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json")}
    elif path.is_file():
        file_name = "tokenizer.json" if path.suffix == ".json" else "vocab.txt"
        files = {file_name: path, "tokenizer_config.json": path.parent / "tokenizer_config.json"}
    else:
        raise UserError(f"{path}: there is no such folder or file; a tokenizer was expected here.", code="missing-file")
    flags: dict[str, bool | None] = {}
    if "tokenizer.json" in files and files["tokenizer.json"].is_file():
        with damage_as_error(files["tokenizer.json"]):
            vocabulary, flags = _from_tokenizer_json(files["tokenizer.json"])
    elif "vocab.txt" in files and files["vocab.txt"].is_file():
        vocabulary = _read_vocabulary(files["vocab.txt"])
    else:
        inside = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
        raise UserError(
            f"{path}: neither tokenizer.json nor vocab.txt is in this folder (it has {inside}). {_INSTEAD}.",
            code="unusable-tokenizer",
        )
    if files["tokenizer_config.json"].is_file():
        config = read_object(files["tokenizer_config.json"])
        flags |= {flag: config[field] for flag, field in _FLAGS.items() if config.get(field) is not None}
    if wrong := [f"{_FLAGS[name]} is {flag!r}" for name, flag in flags.items() if flag not in (None, True, False)]:
        raise UserError(
            f"{path}: the tokenizer's {' and '.join(wrong)}, which must be true or false.", code="unusable-tokenizer"
        )
    lowercase = flags.get("lowercase")
    try:
        return Tokenizer(
            vocabulary,
            lowercase=_looks_uncased(vocabulary) if lowercase is None else lowercase,
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
    write_text(path / "vocab.txt", "".join(f"{piece}\n" for piece in tokenizer.vocabulary))
    write_json(path / "tokenizer.json", _description(tokenizer))
    write_json(path / "tokenizer_config.json", config)
    write_json(path / "special_tokens_map.json", _NAMES)


def _from_tokenizer_json(path: Path) -> tuple[list[str], dict[str, bool | None]]:
    content = read_object(path, most=LARGEST)
    model = content.get("model") or {}
    vocabulary = model.get("vocab")
    kind = model.get("type") or ("WordPiece" if "max_input_chars_per_word" in model else "unknown")
    normalizer = content.get("normalizer") or {}
    splitter = content.get("pre_tokenizer") or {}
    for part, actual, wanted in (
        ("model", kind, "WordPiece"),
        ("prefix of pieces inside words", model.get("continuing_subword_prefix", "##"), "##"),
        ("normalizer", normalizer.get("type"), "BertNormalizer"),
        ("pre-tokenizer", splitter.get("type"), "BertPreTokenizer"),
        ("cleaning of control characters", normalizer.get("clean_text", True), True),
    ):
        if actual != wanted:
            raise UserError(
                f"{path}: the {part} is {actual}, where BERT has {wanted}. {_INSTEAD}.", code="unusable-tokenizer"
            )
    if not isinstance(vocabulary, dict):
        raise UserError(
            f"{path}: the model has no vocabulary of pieces and ids. The file is damaged or incomplete.",
            code="unusable-tokenizer",
        )
    ids = dict(vocabulary)
    # Added tokens may be missing from the model's vocabulary; those that are in it have the same id there.
    ids |= {added["content"]: added["id"] for added in content.get("added_tokens") or ()}
    return _in_order(ids, path), {flag: normalizer.get(flag) for flag in _FLAGS}


def _in_order(ids: dict[str, int], path: Path) -> list[str]:
    pieces = sorted(ids, key=ids.__getitem__)
    for expected, piece in enumerate(pieces):
        if ids[piece] != expected:
            raise UserError(
                f"{path}: the ids have a gap or a double at {expected} (next is {piece!r}, {ids[piece]}).",
                code="unusable-tokenizer",
            )
    return pieces


def _read_vocabulary(path: Path) -> list[str]:
    try:
        content = read_bytes(path, most=LARGEST_VOCABULARY)
        if (count := content.count(b"\n")) > PIECES:
            raise UserError(
                f"{path} has {count:,} lines; a vocabulary has at most {PIECES:,} pieces, one a line.", code="too-large"
            )
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not UTF-8 at byte {error.start:,}. A vocabulary has a piece a line, in UTF-8.",
            code="wrong-encoding",
        ) from None
    # Blank lines at the end are no pieces. Elsewhere a line counts, since its number is the id of its piece.
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise UserError(f"{path}: the file is empty. A vocabulary has a piece a line.", code="unusable-tokenizer")
    # A piece that is itself white space, such as U+3000, must not become empty.
    return [line.strip() or line for line in lines]


def _looks_uncased(vocabulary: list[str]) -> bool:
    return not any(piece != piece.lower() for piece in vocabulary if not (piece[:1] == "[" and piece[-1:] == "]"))


def _description(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of a tokenizer.json, as the `tokenizers` library writes it."""
    ids = {piece: index for index, piece in enumerate(tokenizer.vocabulary)}
    added = sorted([*SPECIALS, *(tokenizer.vocabulary[mark] for mark in sentinel_ids(tokenizer))], key=ids.__getitem__)
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    first, second = ({"Sequence": {"id": name, "type_id": index}} for index, name in enumerate("AB"))
    opening, closing, last = (
        {"SpecialToken": {"id": special, "type_id": index}}
        for special, index in (("[CLS]", 0), ("[SEP]", 0), ("[SEP]", 1))
    )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": ids[piece], "content": piece, **plain} for piece in added],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenizer.cjk,
            "strip_accents": tokenizer.strip_accents,
            "lowercase": tokenizer.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [opening, first, closing],
            "pair": [opening, first, closing, second, last],
            "special_tokens": {
                special: {"id": special, "ids": [ids[special]], "tokens": [special]} for special in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": ids,
        },
    }
