"""FileTokenizer: a tokenizer.json, read by the library `tokenizers`, for models whose pieces are not BERT's.

Byte-level BPE (GPT-2, RoBERTa), BPE with bytes for rare characters (Gemma, mmBERT), Unigram (XLM-R, ALBERT), closed
vocabularies of words (word2vec, GloVe, ELMo) and WordPiece with other special pieces (MPNet) come as such a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.errors import Problems, UserError
from osbert.guarded import native
from osbert.text.tokenizer import SENTINEL, SPECIALS, Encoding, Form, Tokenizer, continues

NAMES = ("pad", "unknown", "cls", "sep", "mask")
"""The special pieces of encoders. GPT's tokenizers have only `unknown`, GPT-2's also an `end` of texts."""

MARKS = ("_start_", "_delimiter_", "_classify_")
"""The special pieces that are added to GPT for fine-tuning (Radford et al. 2018, section 3.3)."""

WORD_STARTS = ("Ġ", "▁")
"""Prefixes of pieces that start a word: a space as written by byte-level BPE and by Unigram. GPT's pieces mark the ends
of words instead."""


def added_piece(piece: str, number: int, *, special: bool = True, takes_space: bool = False) -> dict[str, Any]:
    """Return the entry of a piece, and its id, among a tokenizer.json's added_tokens.

    `takes_space`: whether the space before the piece is its own.
    """
    flags = {"single_word": False, "lstrip": takes_space, "rstrip": False, "normalized": False, "special": special}
    return {"id": number, "content": piece, **flags}


def text_template(cls: str, sep: str, ids: Mapping[str, int], *, segments: bool) -> dict[str, Any]:
    """Return a tokenizer.json's post_processor with special pieces around a text and a pair.

    `segments`: whether a second text and the piece behind it are segment 1; else two pieces separate the texts.
    """
    after = {"SpecialToken": {"id": sep, "type_id": 0}}
    single = [{"SpecialToken": {"id": cls, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, after]
    second = {"Sequence": {"id": "B", "type_id": int(segments)}}
    last = {"SpecialToken": {"id": sep, "type_id": int(segments)}}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *([] if segments else [after]), second, last],
        "special_tokens": {text: {"id": text, "ids": [ids[text]], "tokens": [text]} for text in (cls, sep)},
    }


def piece_text(piece: str | Mapping[str, Any]) -> str:
    """Return the text of a special piece, which a folder's settings give by itself or in a table."""
    return piece if isinstance(piece, str) else str(piece["content"])


class FileTokenizer:
    """A tokenizer.json and its special pieces. Two are equal if their fingerprints are.

    `form`: the special pieces of a sequence, as the file's post-processor adds them. `settings`: further settings from
    its folder, which are copied to saved models. `spaced`: whether a word's first piece includes the space before it.
    `cjk`: whether each ideograph is a piece. `remarks`: what of the file is not applied, for the user.
    """

    def __init__(self, content: str, *, specials: Mapping[str, str], settings: Mapping[str, Any] | None = None) -> None:
        """Read the file's content. `specials`: the pieces for NAMES and "end", as far as it has them.

        Without "cls" a text may have no special pieces around it, and `end` is put between two. Raises UserError if the
        library cannot read the file, a special piece is missing, or a Form cannot express its sequences.
        """
        from tokenizers import Tokenizer as Library
        from tokenizers.models import WordLevel, WordPiece

        self.content = content
        self.specials = dict(specials)
        self.settings = dict(settings or {})
        try:
            with native("tokenizer.json"):
                self._library = Library.from_str(content)
        except UserError:
            raise
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"the tokenizers library cannot read it: {error}", code="unusable-tokenizer") from error
        # A file may ask for padding and truncation, which the Packer does instead.
        self._library.no_padding()
        self._library.no_truncation()
        self.remarks: tuple[str, ...] = ()
        # BPE-dropout (Provilkov et al. 2020) drops merges at random, for training alone, but the library applies it
        # whenever it tokenizes. It is turned off here and in copies of the file.
        if dropout := getattr(self._library.model, "dropout", None):
            self._library.model.dropout = None
            self.content = self._library.to_str()
            self.remarks = (
                f"tokenizer.json asks for a BPE dropout of {dropout:.3g}, with which a text has other pieces at each "
                "reading. osbert turns it off.",
            )
        self.spaced = not isinstance(self._library.model, WordPiece | WordLevel)
        self.cjk = not self.spaced and getattr(self._library.normalizer, "handle_chinese_chars", False)
        ids = self._library.get_vocab(with_added_tokens=True)
        pieces = [""] * (max(ids.values(), default=-1) + 1)
        for piece, index in ids.items():
            pieces[index] = piece
        self.vocabulary = tuple(pieces)
        self._ids = {name: ids.get(piece, -1) for name, piece in self.specials.items()}
        problems = Problems(heading="It cannot be used")
        for name, piece in self.specials.items():
            if piece not in ids:
                problems.add(f"the special piece {piece} ({name}) is missing", code="unusable-tokenizer")
        problems.stop_if_any()
        self.id_type = np.dtype("<u2" if len(self.vocabulary) <= 1 << 16 else "<u4")
        self.form = self._read_form()
        self.fingerprint = hashlib.sha256(json.dumps([self.content, self.specials]).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __eq__(self, other: object) -> bool:
        """Return whether the other one has the same file and special pieces."""
        return isinstance(other, FileTokenizer) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Callable[..., FileTokenizer], tuple[object, ...]]:
        return partial(FileTokenizer, self.content, specials=self.specials, settings=self.settings), ()

    @property
    def pad(self) -> int:
        """Return the id of the padding piece. This and the following properties raise UserError if there is none."""
        return self._special("pad")

    @property
    def unknown(self) -> int:
        """Return the id of the piece for text that no other piece spells."""
        return self._special("unknown")

    @property
    def cls(self) -> int:
        """Return the id of the piece whose hidden state represents the sequence."""
        return self._special("cls")

    @property
    def sep(self) -> int:
        """Return the id of the piece that separates texts."""
        return self._special("sep")

    @property
    def mask(self) -> int:
        """Return the id of the mask."""
        return self._special("mask")

    @cached_property
    def continuation(self) -> NDArray[np.bool_]:
        """Return which pieces (V,) follow another without a space: inside words, and except for WordPiece punctuation.

        All False if the pieces do not show it.
        """
        if not self.spaced:
            return np.array([continues(piece) for piece in self.vocabulary])
        starts = np.array([piece.startswith(WORD_STARTS) for piece in self.vocabulary])
        # Without any prefixed piece (GPT) the pieces do not show where words start.
        follows = ~starts & starts.any()
        follows[[*self._ids.values()]] = False
        return follows

    def encode(self, text: str) -> NDArray[np.int32]:
        """Return the ids of a text (n,), without the special pieces around it.

        As in transformers, a special piece written in the text ("<mask>") becomes that piece.
        """
        return np.array(self._cut(text, add_special_tokens=False).ids, np.int32)

    def encode_bytes(self, text: str) -> bytes:
        """Return the same ids as little-endian bytes of `id_type`."""
        return self.encode(text).astype(self.id_type).tobytes()

    def encode_many(self, texts: Sequence[str]) -> list[bytes]:
        """Return `encode_bytes` of each text, on all cores unless TOKENIZERS_PARALLELISM is false."""
        encodings = self._call_library(
            lambda: self._library.encode_batch_fast([*texts], add_special_tokens=False), texts
        )
        return [np.array(encoding.ids, self.id_type).tobytes() for encoding in encodings]

    def encode_words(self, text: str, words: Iterable[tuple[int, int]]) -> list[bytes]:
        """Return `encode_bytes` of each word [start, end) of a text by itself, with the space that is before it."""
        return [
            self.encode_bytes(" " * (start > 0 and text[start - 1].isspace()) + text[start:end]) for start, end in words
        ]

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with the range of each piece in the original text, without the space before it.

        Pieces that are bytes of one character all have its range. `words` are the units into which the
        tokenizer splits text before it looks for pieces.
        """
        encoding = self._cut(text, add_special_tokens=False)
        # The library's ranges include the space that is part of a piece: strip it from both ends.
        ranges = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        for index, (start, end) in enumerate(ranges.tolist()):
            part = text[start:end]
            if part.strip():
                ranges[index, 0] = start + len(part) - len(part.lstrip())
                ranges[index, 1] = end - len(part) + len(part.rstrip())
        # Ranges must never decrease, which normalisation may cause.
        starts, ends = np.maximum.accumulate(ranges, axis=0).T if len(ranges) else ranges.T
        _, words = np.unique([-1 if word is None else word for word in encoding.word_ids], return_inverse=True)
        return Encoding(*(np.asarray(column, np.int32) for column in (encoding.ids, starts, ends, words)))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id, as the vocabulary writes it."""
        return [self.vocabulary[index] for index in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the pieces, special pieces included."""
        with native("tokenizer.json"):
            return str(self._library.decode([int(index) for index in ids], skip_special_tokens=False))

    def _cut(self, text: str, second: str | None = None, *, add_special_tokens: bool = True) -> Any:
        """Return the library's Encoding of a text, or of a pair."""
        return self._call_library(
            lambda: self._library.encode(text, second, add_special_tokens=add_special_tokens), [text]
        )

    def _call_library(self, encode: Callable[[], Any], texts: Sequence[str]) -> Any:
        """Call the library. Raises UserError if it cannot tokenize `texts`, for example because the file is damaged."""
        try:
            with native("tokenizer.json"):
                return encode()
        except UserError:
            raise
        except Exception as error:  # the library raises nothing more special
            raise UserError(
                f"the tokenizers library cannot cut {texts[0][:40]!r} into pieces: {error}", code="unusable-tokenizer"
            ) from error

    def _special(self, name: str) -> int:
        if name not in self._ids:
            raise UserError(
                f"The tokenizer has no special piece for {name}; it has {', '.join(self.specials.values())}. This "
                "needs one: take another tokenizer, or another objective.",
                code="unusable-tokenizer",
            )
        return self._ids[name]

    def _read_form(self) -> Form:
        """Find the special pieces of sequences by encoding a sample text and a sample pair.

        Raises UserError, with the pieces of the pair, if there are none, if a single text has other special pieces than
        a pair, or if the segments are not 0 up to the second text and one number from there on. If the model has no
        segments, they are taken as 0.
        """
        text = self.encode("a").tolist()
        single, pair = self._cut("a"), self._cut("a", "a")
        # What surrounds the sample text in both results are the special pieces.
        start = _find(text, single.ids, 0)
        second = _find(text, pair.ids, start + len(text))
        before, after = single.ids[:start], single.ids[start + len(text) :]
        between = pair.ids[start + len(text) : second]
        kinds = list(pair.type_ids)
        last = None
        if after and kinds[-1] > 1 and kinds[-1] == single.type_ids[-1]:  # a piece of neither text: XLNet's <cls>
            last, kinds[-1] = kinds[-1], kinds[-2]
        if "token_type_ids" not in self.settings.get("model_input_names", ["token_type_ids"]):
            last, kinds = None, [0] * len(pair.ids)
        segment = kinds[second] if second >= 0 else 0
        if (
            not text
            or min(start, second) < 0
            or not (before or after or "cls" not in self.specials)
            or pair.ids != [*before, *text, *between, *text, *after]
            or kinds != [0] * second + [segment] * (len(pair.ids) - second)
        ):
            pair_pieces = " ".join(f"{piece}:{number}" for piece, number in zip(self.tokens(pair.ids), kinds))
            raise UserError(
                f"a text becomes {' '.join(self.tokens(single.ids))!r} and a pair of texts, with its segments, "
                f"{pair_pieces!r}. An encoder has the same special pieces around one text and around "
                "two, one at least, and "
                "one segment for each text, as <s> a </s></s> b </s>. It is no encoder's tokenizer, or its "
                "post_processor is missing.",
                code="unusable-tokenizer",
            )
        if not (before or after or between) and "end" in self._ids:
            between = [self._ids["end"]]
        return Form(
            before=tuple(before),
            between=tuple(between),
            after=tuple(after),
            second_segment=segment,
            last_segment=last,
            summary="first" if before and self.cls not in after else "last",
        )

    def with_marks(self) -> FileTokenizer:
        """Return the tokenizer with three more pieces, MARKS, around a text and between two."""
        marks = {mark: len(self) + index for index, mark in enumerate(MARKS)}
        start, delimiter, classify = ({"SpecialToken": {"id": mark, "type_id": 0}} for mark in MARKS)
        first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
        content = json.loads(self.content)
        content["added_tokens"] = [
            *(content.get("added_tokens") or ()),
            *(added_piece(mark, index) for mark, index in marks.items()),
        ]
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [start, first, classify],
            "pair": [start, first, delimiter, second, classify],
            "special_tokens": {mark: {"id": mark, "ids": [index], "tokens": [mark]} for mark, index in marks.items()},
        }
        specials = {name: piece for name, piece in self.specials.items() if name != "end"}
        specials |= {"cls": MARKS[2], "sep": MARKS[1]}
        return FileTokenizer(json.dumps(content, ensure_ascii=False), specials=specials, settings=self.settings)


AnyTokenizer = Tokenizer | FileTokenizer
"""The tokenizers that models can have."""


def unknown_id(tokenizer: AnyTokenizer) -> int:
    """Return the id of the unknown piece, -1 if the vocabulary has none (byte-level tokenizers)."""
    try:
        return tokenizer.unknown
    except UserError:
        return -1


@lru_cache(maxsize=8)  # asked for each role of texts, and for each request that fills masks
def piece_ids(tokenizer: AnyTokenizer) -> Mapping[str, int]:
    """Return the id of each piece of the vocabulary."""
    return {piece: index for index, piece in enumerate(tokenizer.vocabulary)}


@lru_cache(maxsize=8)  # T5's objective asks for each example, and the whole vocabulary is searched
def sentinel_ids(tokenizer: AnyTokenizer) -> NDArray[np.int64]:
    """Return the ids of a tokenizer's sentinels, from number 0 on; empty if it has none.

    >>> sentinel_ids(with_sentinels(Tokenizer([*SPECIALS, "the"]), 3)).tolist()
    [8, 7, 6]
    """
    ids = {piece: index for index, piece in enumerate(tokenizer.vocabulary) if piece.startswith(SENTINEL[:9])}
    sentinels = np.array([ids[piece] for k in range(len(ids)) if (piece := SENTINEL.format(k)) in ids], np.int64)
    sentinels.flags.writeable = False  # all callers have the same array
    return sentinels


def with_sentinels(tokenizer: AnyTokenizer, count: int) -> AnyTokenizer:
    """Return the tokenizer with `count` sentinels behind its pieces; number 0 is the last, as in T5's vocabularies."""
    pieces = [SENTINEL.format(number) for number in reversed(range(count))]
    if not pieces:
        return tokenizer
    if isinstance(tokenizer, Tokenizer):
        flags = {"lowercase": tokenizer.lowercase, "strip_accents": tokenizer.strip_accents, "cjk": tokenizer.cjk}
        return Tokenizer([*tokenizer.vocabulary, *pieces], **flags)
    content = json.loads(tokenizer.content)
    # As with the mask: in training the space stands between pieces.
    added = (added_piece(piece, len(tokenizer) + index, takes_space=True) for index, piece in enumerate(pieces))
    content["added_tokens"] = [*(content.get("added_tokens") or ()), *added]
    whole = json.dumps(content, ensure_ascii=False)
    return FileTokenizer(whole, specials=tokenizer.specials, settings=tokenizer.settings)


def special_ids(tokenizer: AnyTokenizer) -> tuple[int, ...]:
    """Return the ids of the special pieces of a tokenizer, that for unknown words included."""
    pieces = tokenizer.specials.values() if isinstance(tokenizer, FileTokenizer) else SPECIALS
    return tuple(tokenizer.vocabulary.index(piece) for piece in dict.fromkeys(pieces))


def for_tasks(tokenizer: AnyTokenizer) -> AnyTokenizer:
    """Return the tokenizer for fine-tuning: `with_marks` if it puts no special pieces around a text, else unchanged."""
    bare = isinstance(tokenizer, FileTokenizer) and not tokenizer.form.specials(1)
    return tokenizer.with_marks() if bare else tokenizer  # type: ignore[union-attr]


def _find(text: list[int], ids: list[int], start: int) -> int:
    """Return the first position from `start` on of the ids `text` in `ids`, -1 if there is none."""
    positions = range(max(start, 0), len(ids) - len(text) + 1)
    return next((position for position in positions if ids[position : position + len(text)] == text), -1)


def starting_piece(tokenizer: AnyTokenizer) -> int:
    """Return the first piece of a decoder's input: padding as in T5, or the end piece as in BART.

    Texts have no piece before them in T5 (Raffel et al. 2020). In BART they begin with a special piece (Lewis et al.
    2020), which the decoder learns to predict.
    """
    form = tokenizer.form
    return form.after[-1] if form.before and form.after else tokenizer.pad
