"""Extends a vocabulary for texts of another domain: whole words that it splits become pieces of their own.

The old pieces keep their ids, so that a trained encoder stays valid: `osbert pretrain --from` initialises each new row
of its embeddings with the mean of the old pieces that spelled the word (`spellings`).
"""

from __future__ import annotations

from collections.abc import Mapping

from osbert.errors import UserError
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.tokenizer import LONGEST_WORD, Tokenizer, WordPiece, continues


def add_words(tokenizer: Tokenizer, words: Mapping[str, int], *, pieces: int, minimum: int = 10) -> Tokenizer:
    """Return the tokenizer with at most `pieces` more pieces, at the end: the words that save the most tokens.

    `words`: normalised words and their counts. A word saves count * (pieces now - 1) tokens; an [UNK] word counts as
    its number of characters. Words that occur fewer than `minimum` times are ignored.

    Raises UserError if no word would save a token.
    """
    if pieces < 1 or minimum < 1:
        raise UserError(f"pieces and minimum must be 1 or more, not {pieces} and {minimum}.", code="invalid-value")
    cut = WordPiece(tokenizer.vocabulary, unknown=tokenizer.unknown).cut
    known = set(tokenizer.vocabulary)
    savings: dict[str, int] = {}
    for word, count in words.items():
        if count < minimum or len(word) > LONGEST_WORD or word in known or continues(word):
            continue
        word_pieces = cut(word)
        lost = word_pieces[0][0] == tokenizer.unknown
        savings[word] = count * (len(word) if lost else len(word_pieces) - 1)
    chosen = sorted(savings, key=lambda word: (-savings[word], word))[:pieces]
    if not chosen:
        raise UserError(
            f"The texts have no word that occurs {minimum:,} times or more and is cut to pieces by this vocabulary: "
            "there is nothing to add. Give more text, or a lower minimum.",
            code="no-data",
        )
    return Tokenizer(
        [*tokenizer.vocabulary, *chosen],
        lowercase=tokenizer.lowercase,
        strip_accents=tokenizer.strip_accents,
        cjk=tokenizer.cjk,
    )


def extends(new: AnyTokenizer, old: AnyTokenizer) -> bool:
    """Return whether `new` has the settings of `old` and its pieces with the same ids, possibly followed by more.

    Tokenizers other than WordPiece cannot be extended: they must be equal.
    """
    if not (isinstance(new, Tokenizer) and isinstance(old, Tokenizer)):
        return new == old
    same = (new.lowercase, new.strip_accents, new.cjk) == (old.lowercase, old.strip_accents, old.cjk)
    return same and new.vocabulary[: len(old)] == old.vocabulary


def spellings(old: AnyTokenizer, new: AnyTokenizer) -> list[list[int]]:
    """Return the ids in `old` that spell each added piece of `new`, which extends `old`.

    [UNK] alone if they cannot. Pieces that continue a word ("##...") are spelled by such pieces.
    """
    if len(new) == len(old):
        return []
    cut = WordPiece(old.vocabulary, unknown=old.unknown).cut
    added = new.vocabulary[len(old) :]
    cuts = [cut(piece[2:], inside=True) if continues(piece) else cut(piece) for piece in added]
    return [[index for index, _ in pieces] for pieces in cuts]
