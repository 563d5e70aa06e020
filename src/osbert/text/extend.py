"""Extends a vocabulary for texts of another domain: whole words that it cuts to pieces become pieces of their own.

The old pieces keep their ids, so that an encoder trained with them stays right: `osbert pretrain --from` starts each
new row of its embeddings at the mean of the old pieces that spelt the word (`spellings`).
"""

from __future__ import annotations

from collections.abc import Mapping

from osbert.errors import UserError
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.tokenizer import Tokenizer
from osbert.text.wordpiece import LONGEST_WORD, WordPiece, continues


def extended(tokenizer: Tokenizer, words: Mapping[str, int], *, pieces: int, minimum: int = 10) -> Tokenizer:
    """Return the tokenizer with at most `pieces` more pieces, at the end: the words that save the most tokens.

    `words` are normalised words and their counts. A word saves its count times the pieces it has now beyond one; a
    word that is [UNK] now counts as its characters. Words that occur fewer than `minimum` times are left alone.

    Raises UserError when no word would save anything.
    """
    if pieces < 1 or minimum < 1:
        raise UserError(f"pieces and minimum must be 1 or more, not {pieces} and {minimum}.", code="invalid-value")
    cut = WordPiece(tokenizer.vocabulary, unknown=tokenizer.unknown).cut
    known = set(tokenizer.vocabulary)
    savings: dict[str, int] = {}
    for word, count in words.items():
        if count < minimum or len(word) > LONGEST_WORD or word in known or continues(word):
            continue
        found = cut(word)
        lost = found[0][0] == tokenizer.unknown
        savings[word] = count * (len(word) if lost else len(found) - 1)
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
    """Return whether `new` has the pieces of `old` under the same ids, perhaps more after them, and its settings.

    Tokenizers other than WordPiece are not extended: they must be equal.
    """
    if not (isinstance(new, Tokenizer) and isinstance(old, Tokenizer)):
        return new == old
    same = (new.lowercase, new.strip_accents, new.cjk) == (old.lowercase, old.strip_accents, old.cjk)
    return same and new.vocabulary[: len(old)] == old.vocabulary


def spellings(old: AnyTokenizer, new: AnyTokenizer) -> list[list[int]]:
    """Return for each piece that `new` has beyond those of `old`, which it extends, the ids that spell it in `old`.

    [UNK] alone where they cannot. Pieces that continue a word ("##...") are spelt by such.
    """
    if len(new) == len(old):
        return []
    cut = WordPiece(old.vocabulary, unknown=old.unknown).cut
    added = new.vocabulary[len(old) :]
    found = [cut(piece[2:], inside=True) if continues(piece) else cut(piece) for piece in added]
    return [[index for index, _ in pieces] for pieces in found]
