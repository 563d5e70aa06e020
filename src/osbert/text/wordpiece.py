"""Words -> pieces: greedy longest match from the left."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_WORD = 200
"""Characters of the longest word that is split; longer ones are [UNK], as in google-research/bert."""


class WordPiece:
    """The second half of tokenization: normalised words to pieces."""

    def __init__(self, vocabulary: Sequence[str], *, unknown: int) -> None:
        """Prepare for a vocabulary whose pieces inside words begin with "##"; `unknown` is the id of [UNK]."""
        self.unknown = unknown
        self._first = {piece: index for index, piece in enumerate(vocabulary)}
        # Without "##", so that substrings of a word can be looked up directly.
        self._following = {piece[2:]: index for piece, index in self._first.items() if continues(piece)}
        self._longest = max(map(len, vocabulary))

    def cut(self, word: str, *, inside: bool = False) -> list[tuple[int, int]]:
        """Return the (id, end) of each piece; `end` is the position after it in the word.

        A word with a part that no piece matches is [UNK] as a whole. `inside`: `word` is the rest of a longer word.

        >>> pieces = WordPiece(["[UNK]", "un", "##aff", "##able", "##a"], unknown=0)
        >>> pieces.cut("unaffable"), pieces.cut("unfair")
        ([(1, 2), (2, 5), (3, 9)], [(0, 6)])
        """
        length = len(word)
        if length > LONGEST_WORD:
            return [(self.unknown, length)]
        pieces: list[tuple[int, int]] = []
        known = self._following if inside else self._first
        start = 0
        while start < length:
            for end in range(min(length, start + self._longest), start, -1):
                index = known.get(word[start:end])
                if index is not None:
                    break
            else:
                return [(self.unknown, length)]
            pieces.append((index, end))
            known = self._following
            start = end
        return pieces


def continues(piece: str) -> bool:
    """Return whether a piece continues a word; "##" itself does not."""
    return len(piece) > 2 and piece.startswith("##")
