"""Tokenizers that small files make costly: a name -> what writes one and opens it, which must be refused."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from osbert.interop.tokenizers import read_any_tokenizer

Opening = Callable[[], object]
Attack = Callable[[Path], Opening]
ATTACKS: dict[str, Attack] = {}
HEAVY = {"tokenizer_with_a_great_template", "tokenizer_with_a_great_tree"}
"""Those that take seconds to write."""
BOUNDED: set[str] = set()
"""Those that may be read, within bounds."""
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def attack(function: Attack) -> Attack:
    """Add a function to ATTACKS by its name."""
    ATTACKS[function.__name__] = function
    return function


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def _tokenizer(folder: Path, model: dict[str, Any] | None = None, **parts: object) -> Opening:
    """Write a byte-level BPE with changes in its parts, read it, and cut a text."""
    added = [
        {"id": place, "content": piece, "special": True, "normalized": False, "single_word": False, "lstrip": False}
        | {"rstrip": False}
        for place, piece in enumerate(SPECIALS)
    ]
    byte_level = {"add_prefix_space": False, "trim_offsets": True}
    bpe = {
        "type": "BPE",
        "vocab": {piece: place for place, piece in enumerate([*SPECIALS, "a", "b", "ab"])},
        "merges": ["a b"],
    }
    content = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "use_regex": True, **byte_level},
        "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], **byte_level},
        "decoder": None,
        "model": {**bpe, **(model or {})},
        **parts,
    }
    write(folder / "tokenizer.json", content)
    return lambda: read_any_tokenizer(folder).encode("a ab é " + "a" * 2000 + "!")


def _unigram(*pieces: str) -> dict[str, Any]:
    known = [*SPECIALS, "a", "b", *pieces]
    return {"type": "Unigram", "unk_id": 3, "vocab": [[piece, -1.0] for piece in known], "merges": None}


@attack
def tokenizer_with_a_broken_prefix(folder: Path) -> Opening:
    return _tokenizer(folder, {"continuing_subword_prefix": "########"})


@attack
def tokenizer_whose_prefix_cuts_a_character(folder: Path) -> Opening:
    pieces = [*SPECIALS, "é", "b", "bé", "aé"]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    return _tokenizer(folder, {"continuing_subword_prefix": "a", "vocab": vocabulary, "merges": ["b é"]})


@attack
def tokenizer_with_a_great_id(folder: Path) -> Opening:
    return _tokenizer(folder, {"vocab": {"a": 5, "b": 2**32 - 1}, "merges": []})


@attack
def tokenizer_with_a_long_piece(folder: Path) -> Opening:
    return _tokenizer(folder, _unigram("a" * 1_000_000), pre_tokenizer=None)


@attack
def tokenizer_with_a_great_tree(folder: Path) -> Opening:
    generator = random.Random(1)
    pieces = ["".join(generator.choices("abcdefghijklmnop", k=500)) for _ in range(8000)]
    return _tokenizer(folder, _unigram(*pieces), pre_tokenizer=None)


@attack
def tokenizer_that_doubles_texts(folder: Path) -> Opening:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return _tokenizer(folder, normalizer={"type": "Sequence", "normalizers": [step] * 30})


def _rounds(folder: Path, *steps: dict[str, Any], count: int = 20) -> Opening:
    return _tokenizer(folder, normalizer={"type": "Sequence", "normalizers": [*steps] * count})


def _replaced(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


@attack
def tokenizer_that_replaces_nothing(folder: Path) -> Opening:
    return _rounds(folder, _replaced("a", Regex=""))


@attack
def tokenizer_that_replaces_an_empty_string(folder: Path) -> Opening:
    return _rounds(folder, _replaced("a", String=""))


@attack
def tokenizer_that_replaces_before_each_character(folder: Path) -> Opening:
    return _rounds(folder, _replaced("a", Regex="(?=.)"))


@attack
def tokenizer_that_replaces_what_may_be_empty(folder: Path) -> Opening:
    return _rounds(folder, _replaced("a", Regex="a{1}?"))


@attack
def tokenizer_that_puts_spaces_around_spaces(folder: Path) -> Opening:
    bert = {"clean_text": False, "handle_chinese_chars": True, "strip_accents": False, "lowercase": False}
    return _rounds(folder, {"type": "BertNormalizer", **bert}, _replaced("\u4e00", Regex="[ a]"))


@attack
def tokenizer_that_takes_accents_apart(folder: Path) -> Opening:
    return _rounds(folder, {"type": "NFD"}, _replaced("\u0390", Regex="[a\u0308\u0301\u03b9]"))


@attack
def tokenizer_that_lowers_dots(folder: Path) -> Opening:
    return _rounds(folder, {"type": "Lowercase"}, _replaced("\u0130", Regex="[ai\u0307]"), count=25)


@attack
def tokenizer_that_marks_each_byte(folder: Path) -> Opening:
    isolated = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    marks = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    levels = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": False}
    rounds = [isolated, marks, isolated, levels] * 6
    return _tokenizer(folder, pre_tokenizer={"type": "Sequence", "pretokenizers": rounds})


def _wordpiece(folder: Path, **fields: Any) -> Opening:
    pieces = [*SPECIALS, "a", "##a", "b"]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    model = {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "vocab": vocabulary}
    opening = _tokenizer(folder, pre_tokenizer={"type": "BertPreTokenizer"})
    content = json.loads((folder / "tokenizer.json").read_text())
    write(folder / "tokenizer.json", {**content, "model": {**model, "max_input_chars_per_word": 100, **fields}})
    return opening


@attack
def tokenizer_of_words_without_a_limit(folder: Path) -> Opening:
    _wordpiece(folder, max_input_chars_per_word=2**40)
    return lambda: read_any_tokenizer(folder).encode("a" * 20_000)


@attack
def tokenizer_with_a_long_prefix(folder: Path) -> Opening:
    return _wordpiece(folder, continuing_subword_prefix="#" * 1_000_000)


@attack
def tokenizer_with_a_map_that_lies(folder: Path) -> Opening:
    steps = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xff" * 4).decode()}
    return _tokenizer(folder, _unigram(), pre_tokenizer=None, normalizer=steps)


@attack
def tokenizer_with_a_costly_pattern(folder: Path) -> Opening:
    return _tokenizer(
        folder,
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False},
    )


@attack
def tokenizer_with_chunks_of_nothing(folder: Path) -> Opening:
    return _tokenizer(folder, pre_tokenizer={"type": "FixedLength", "length": 0})


@attack
def tokenizer_with_a_great_template(folder: Path) -> Opening:
    token = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    special = {"id": "<s>", "ids": [0] * 1000, "tokens": ["<s>"] * 1000}
    template = {
        "type": "TemplateProcessing",
        "single": [token] * 50_000,
        "pair": [],
        "special_tokens": {"<s>": special},
    }
    return _tokenizer(folder, post_processor=template)
