"""Texts -> a WordPiece vocabulary: counts words in bounded memory; the library `tokenizers` learns the pieces.

The library repeatedly merges the most frequent pair of adjacent pieces, as in byte-pair encoding. The trainer of the
published BERT vocabularies chose pairs by likelihood and was never published.

The same texts give the same vocabulary, byte for byte, in every process and with any number of threads. The library
numbers single characters in the order of a hash table, and breaks ties between pairs by these numbers; so all
characters go in first, sorted, as if they were special pieces, and the real special pieces are put before them at the
end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from osbert.errors import UserError
from osbert.text.normalize import IDEOGRAPHS, Normalizer, chunks, is_cjk
from osbert.text.tokenizer import LONGEST_WORD, SPECIALS

MOST_WORDS = 1_000_000
"""Most distinct words in memory, about 200 MB; when there are more, the rarer half is dropped."""
MOST_CHUNKS = 500_000
MOST_CHARACTERS = 1 << 25
"""Characters of text after which the chunks counted so far are split into words, however few they are."""
MOST_OCCURRENCES = 20_000_000
"""Most occurrences of words that are passed to the library; larger counts are scaled down to this sum."""
_LINE = 1 << 16


class WordCounter:
    """Counts the words of texts in bounded memory.

    Chunks between spaces are counted without normalisation, which is fast, and split into words from time to time.
    """

    def __init__(self, *, lowercase: bool, strip_accents: bool | None = None, most: int = MOST_WORDS) -> None:
        """Count at most `most` distinct words at a time; `strip_accents` None means the value of `lowercase`."""
        strip_accents = lowercase if strip_accents is None else strip_accents
        self.normalizer = Normalizer(lowercase=lowercase, strip_accents=strip_accents, cjk=True)
        self.most = most
        self.forgotten = 0
        """Occurrences of words that were dropped because they were rare."""
        self._words: Counter[str] = Counter()
        self._chunks: Counter[str] = Counter()
        self._characters = 0

    def add(self, text: str) -> None:
        """Count the words of one more text."""
        parts = [text] if text.isascii() else IDEOGRAPHS.split(text)  # runs of ideographs are at the odd places
        # Counter.update iterates a string by character: each ideograph is a word.
        self._words.update("".join(parts[1::2]))
        self._chunks.update(chunks(" ".join(parts[::2])))
        self._characters += len(text)
        if len(self._chunks) > MOST_CHUNKS or self._characters > MOST_CHARACTERS:
            self._cut_chunks()

    def words(self) -> Counter[str]:
        """Return the count of each word so far, without words over 200 characters, which are [UNK]."""
        self._cut_chunks()
        return self._words

    def _cut_chunks(self) -> None:
        for chunk, count in self._chunks.items():
            for word in self.normalizer.words(chunk):
                if len(word) <= LONGEST_WORD:
                    self._words[word] += count
            if len(self._words) > self.most:
                before = self._words.total()
                ranked = sorted(self._words.items(), key=_by_count)
                self._words = Counter(dict(ranked[: self.most // 2]))
                self.forgotten += before - self._words.total()
        self._chunks.clear()
        self._characters = 0


def learn(words: Mapping[str, int], *, vocabulary: int = 30522, alphabet: int = 1000, minimum: int = 2) -> list[str]:
    """Return a vocabulary of at most `vocabulary` pieces for words and their counts.

    First the five special pieces, then the characters, then what was learnt. There are fewer pieces than requested when
    no pair of pieces occurs `minimum` times any more. `alphabet` bounds the characters, the most frequent being kept;
    a word with any other is [UNK]. Ideographs, each of which is a word, do not count towards it, but must themselves
    occur `minimum` times. All characters together take at most three quarters of the vocabulary.

    Raises UserError when there are no words, and as `check_settings` does.
    """
    check_settings(vocabulary=vocabulary, alphabet=alphabet, minimum=minimum)
    room = vocabulary - len(SPECIALS)
    if not words:
        raise UserError("There is no text to learn a vocabulary from: the input has no words.", code="no-data")
    characters = choose_characters(words, room=max(1, room * 3 // 4), alphabet=alphabet, minimum=minimum)
    known = set(characters)
    usable = {word: count for word, count in words.items() if len(word) > 1 and known.issuperset(word)}
    return [*SPECIALS, *_join_pairs(usable, characters, room=room, minimum=minimum)]


def check_settings(*, vocabulary: int, alphabet: int, minimum: int) -> None:
    """Raise UserError if there is no room for pieces besides the special ones, or a setting is below 1."""
    if vocabulary <= len(SPECIALS):
        raise UserError(
            f"A vocabulary of {vocabulary} has no room for pieces beside {', '.join(SPECIALS)}: ask for more.",
            code="invalid-value",
        )
    for name, value in (("alphabet", alphabet), ("minimum", minimum)):
        if value < 1:
            raise UserError(f"{name} must be 1 or more, not {value}.", code="invalid-value")


def choose_characters(words: Mapping[str, int], *, room: int, alphabet: int, minimum: int) -> dict[str, bool]:
    """Return the characters to keep, sorted, and whether each needs a form that continues a word ("##a").

    It does if it occurs in a word of several characters. There are at most `room` forms.
    """
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in words.items():
        for character in word:
            counts[character] += count
        if len(word) > 1:
            inside.update(word)
    chosen: dict[str, bool] = {}
    letters = 0
    for character, count in sorted(counts.items(), key=_by_count):
        cjk = is_cjk(ord(character))
        forms = 1 + (character in inside)
        if "\ud800" <= character <= "\udfff" or (count < minimum if cjk else letters >= alphabet) or forms > room:
            continue
        chosen[character] = character in inside
        letters += not cjk
        room -= forms
    return dict(sorted(chosen.items()))


def _join_pairs(words: Mapping[str, int], characters: Mapping[str, bool], *, room: int, minimum: int) -> list[str]:
    """Return the pieces in the order of their ids: the forms of the characters, then the learnt pieces."""
    from tokenizers import Tokenizer as Library
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.trainers import WordPieceTrainer

    forms = [*characters, *(f"##{character}" for character, continues in characters.items() if continues)]
    library = Library(WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = WhitespaceSplit()
    # Special pieces get the first ids in the given order, which makes ties deterministic (see above).
    trainer = WordPieceTrainer(vocab_size=room, min_frequency=minimum, special_tokens=forms, show_progress=False)
    library.train_from_iterator(repeat_words(words), trainer)
    ids = library.get_vocab(with_added_tokens=False)
    return sorted(ids, key=ids.__getitem__)


def repeat_words(words: Mapping[str, int]) -> Iterator[str]:
    """Yield lines in which each word is repeated by its count, because the library does not accept counts."""
    total = sum(words.values())
    for word, count in sorted(words.items()):
        if total > MOST_OCCURRENCES:
            # Scaled in integers and rounded to nearest; no word is lost.
            count = max(1, (count * MOST_OCCURRENCES + total // 2) // total)
        line = max(1, _LINE // len(word))
        for begin in range(0, count, line):
            yield f"{word} " * min(line, count - begin)


def _by_count(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]
