"""Texts -> byte-level BPE, Unigram, or a closed vocabulary of words: a tokenizer.json.

Byte-level BPE is GPT-2's and RoBERTa's (Radford et al. 2019, section 2.2); Unigram (Kudo 2018) is ALBERT's and XLNet's,
with the sign of a space before each word and punctuation set apart. Chunks are counted in bounded memory, and
`tokenizers` learns the pieces. In a closed vocabulary (word2vec, GloVe, ELMo) the most frequent words of BERT's
basic tokenizer (normalize.py) are pieces, and all others become the unknown piece.

The same texts give the same file, byte for byte, in every process and with any number of threads. The library learns
BPE in one order. In Unigram it adds up probabilities in the order of a hash table, so that their last digits differ,
and ranks characters that it hardly uses in that order; `_settle_scores` rounds the former and sorts the latter.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from osbert.errors import UserError
from osbert.text.file_tokenizer import NAMES, FileTokenizer, added_piece
from osbert.text.normalize import chunks
from osbert.text.tokenizer import LONGEST_WORD
from osbert.text.train import MOST_CHUNKS, check_settings, choose_characters, repeat_words

BYTE_LEVEL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""RoBERTa's special pieces, in the order of their ids."""
UNIGRAM = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
"""ALBERT's special pieces, in the order of their ids."""
BYTES = 256
DIGITS = 4
"""Decimal places of a Unigram score."""
STEP = 1e-4
"""Difference between the scores of consecutive hardly used characters in the library."""


class ChunkCounter:
    """Counts chunks with the space before them, in bounded memory; the first chunk of a text has no space."""

    def __init__(self, *, most: int = MOST_CHUNKS) -> None:
        """Count at most `most` different chunks; when there are more, the rarer half is dropped."""
        self.most = most
        self.forgotten = 0
        """Occurrences of chunks that were dropped because they were rare."""
        self._chunks: Counter[str] = Counter()

    def add(self, text: str) -> None:
        """Count the chunks of one more text."""
        text_chunks = chunks(text)
        if max(map(len, text_chunks), default=0) > LONGEST_WORD:
            # Of text without spaces, such as Chinese.
            text_chunks = [
                chunk[start : start + LONGEST_WORD]
                for chunk in text_chunks
                for start in range(0, len(chunk), LONGEST_WORD)
            ]
        self._chunks.update(text_chunks[:1])
        self._chunks.update(map(" ".__add__, text_chunks[1:]))
        if len(self._chunks) > self.most:
            before = self._chunks.total()
            ranked = sorted(self._chunks.items(), key=lambda item: (-item[1], item[0]))
            self._chunks = Counter(dict(ranked[: self.most // 2]))
            self.forgotten += before - self._chunks.total()

    def words(self) -> Counter[str]:
        """Return the count of each chunk so far, with the space before it."""
        return self._chunks


def learn_bpe(
    chunk_counts: Mapping[str, int], *, vocabulary: int = 30522, lowercase: bool = False, minimum: int = 2
) -> FileTokenizer:
    """Return a byte-level BPE tokenizer of at most `vocabulary` pieces for chunks and their counts.

    First come RoBERTa's special pieces, then the 256 bytes, then what was learnt; pairs that occur fewer than `minimum`
    times are not joined. `lowercase` also strips accents. Raises UserError when there are no words or no room.

    >>> words = {"low": 5, " lower": 4, " newest": 3, " widest": 2}
    >>> learnt = learn_bpe(words, vocabulary=270)
    >>> learnt.tokens(learnt.encode("low lowest")), learnt.tokens([0, 1, 2, 3, 4])
    (['low', 'Ġlow', 'est'], ['<s>', '<pad>', '</s>', '<unk>', '<mask>'])
    """
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    check_settings(vocabulary=vocabulary, alphabet=1, minimum=minimum)
    check_bytes(vocabulary)
    library = Library(models.BPE())
    if lowercase:
        steps = [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
        library.normalizer = normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=minimum,
        special_tokens=list(BYTE_LEVEL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    _train(library, trainer, _cut(library, chunk_counts))
    library.decoder = decoders.ByteLevel()
    cls, _, sep, *_ = ((piece, index) for index, piece in enumerate(BYTE_LEVEL))
    library.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=False)
    ends = {"bos_token": cls[0], "eos_token": sep[0]}
    return _to_file_tokenizer(
        library, specials=("cls", "pad", "sep", "unknown", "mask"), pieces=BYTE_LEVEL, settings=ends
    )


def learn_unigram(
    chunk_counts: Mapping[str, int],
    *,
    vocabulary: int = 30522,
    lowercase: bool = True,
    alphabet: int = 1000,
    minimum: int = 2,
) -> FileTokenizer:
    """Return a Unigram tokenizer of at most `vocabulary` pieces for chunks and their counts.

    First come ALBERT's special pieces, then what was learnt, the likeliest first. `lowercase` also strips accents.
    `alphabet` and `minimum` bound the characters, as in `train.learn`; a word with any other is not learnt from. Raises
    UserError when there are no words or no room.
    """
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    check_settings(vocabulary=vocabulary, alphabet=alphabet, minimum=minimum)
    library = Library(models.Unigram())
    decomposed = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    steps = decomposed if lowercase else [normalizers.NFKC()]
    library.normalizer = normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary, special_tokens=list(UNIGRAM), unk_token=UNIGRAM[1], show_progress=False
    )
    words = _cut(library, chunk_counts)
    room = max(1, (vocabulary - len(UNIGRAM)) * 3 // 4)
    known = set(choose_characters(words, room=room, alphabet=alphabet, minimum=minimum))
    _train(library, trainer, {word: count for word, count in words.items() if known.issuperset(word)})
    library.decoder = decoders.Metaspace()
    cls, sep = ((piece, UNIGRAM.index(piece)) for piece in ("[CLS]", "[SEP]"))
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[cls, sep]
    )
    return _to_file_tokenizer(library, specials=("pad", "unknown", "cls", "sep", "mask"), pieces=UNIGRAM, settings={})


def check_bytes(vocabulary: int) -> None:
    """Raise UserError if there is no room for pieces besides the bytes and the special ones."""
    if vocabulary <= len(BYTE_LEVEL) + BYTES:
        raise UserError(
            f"A vocabulary of {vocabulary} has no room for pieces beside {BYTES} bytes and {', '.join(BYTE_LEVEL)}: "
            "ask for more.",
            code="invalid-value",
        )


def _cut(library: Any, chunk_counts: Mapping[str, int]) -> Counter[str]:
    """Count the units into which the library splits chunks before it looks for pieces; they have no spaces."""
    words: Counter[str] = Counter()
    for chunk, count in chunk_counts.items():
        text = chunk if library.normalizer is None else library.normalizer.normalize_str(chunk)
        for word, _ in library.pre_tokenizer.pre_tokenize_str(text):
            words[word] += count
    if not words:
        raise UserError("There is no text to learn a vocabulary from: the input has no words.", code="no-data")
    return words


def _train(library: Any, trainer: Any, words: Mapping[str, int]) -> None:
    """Train the library's model on words and their counts."""
    from tokenizers import Tokenizer as Library
    from tokenizers.pre_tokenizers import WhitespaceSplit

    # The words are split and normalised already, so only spaces may separate them now.
    learner = Library(library.model)
    learner.pre_tokenizer = WhitespaceSplit()
    learner.train_from_iterator(repeat_words(words), trainer)
    library.model = learner.model


def _to_file_tokenizer(
    library: Any, *, specials: Sequence[str], pieces: Sequence[str], settings: Mapping[str, Any]
) -> FileTokenizer:
    """Convert the library's tokenizer; `specials`: the name (see NAMES) of each of its special `pieces`."""
    from tokenizers import AddedToken

    named = dict(zip(specials, pieces, strict=True))
    mask = named["mask"]
    library.add_special_tokens([piece for piece in pieces if piece != mask])
    library.add_special_tokens([AddedToken(mask, lstrip=True, special=True)])  # the space before it is its own
    content = json.loads(library.to_str())
    if content["model"]["type"] == "Unigram":
        content["model"]["vocab"] = _settle_scores(content["model"]["vocab"], len(pieces))
    whole = json.dumps(content, ensure_ascii=False)
    return FileTokenizer(whole, specials={name: named[name] for name in NAMES}, settings=settings)


def _settle_scores(scored: Iterable[Sequence[Any]], specials: int) -> list[list[Any]]:
    """Return the pieces [piece, score] of a Unigram model in a deterministic order, special ones first.

    The library gives hardly used characters scores STEP apart above the lowest one, in the order of a hash table. Here
    they get the same scores in their own order.
    """
    rounded = [(str(piece), round(float(score), DIGITS)) for piece, score in scored]
    head, pieces = rounded[:specials], rounded[specials:]
    characters = sorted(pair for pair in pieces if len(pair[0]) == 1)
    lowest = min((score for _, score in pieces), default=0.0)
    rare = [pair for pair in characters if pair[1] < lowest + STEP * len(characters) + STEP / 2]
    scores = dict(zip((piece for piece, _ in rare), sorted((score for _, score in rare), reverse=True)))
    settled = [(piece, scores.get(piece, score)) for piece, score in pieces]
    return [list(pair) for pair in [*head, *sorted(settled, key=lambda pair: (-pair[1], pair[0]))]]


def learn_words(
    word_counts: Mapping[str, int], *, vocabulary: int = 30522, lowercase: bool = True, minimum: int = 2
) -> FileTokenizer:
    """Return a tokenizer of RoBERTa's special pieces and the most frequent words, by decreasing count.

    Words that occur fewer than `minimum` times have no piece. Raises UserError if there are no words or no room.

    >>> learnt = learn_words({"the": 5, "low": 2, "lower": 1}, vocabulary=100)
    >>> learnt.vocabulary[5:], learnt.tokens(learnt.encode("The lower"))
    (('the', 'low'), ['the', '<unk>'])
    """
    check_settings(vocabulary=vocabulary, alphabet=1, minimum=minimum)
    if not word_counts:
        raise UserError("There is no text to learn a vocabulary from: the input has no words.", code="no-data")
    ranked = sorted(word_counts.items(), key=lambda item: (-item[1], item[0]))
    # Not those with half a surrogate pair, which UTF-8 cannot encode.
    words = [word for word, count in ranked if count >= minimum and not re.search("[\ud800-\udfff]", word)]
    return word_tokenizer(words[: vocabulary - len(BYTE_LEVEL)], lowercase=lowercase)


def word_tokenizer(words: Iterable[str], *, lowercase: bool, spaces: bool = False) -> FileTokenizer:
    """Return the tokenizer with RoBERTa's special pieces, followed by these words in order.

    `lowercase` also strips accents. `spaces`: split text at spaces only, without normalisation; by default as
    BERT's basic tokenizer. Repeated words and words that are special pieces are not checked.
    """
    pieces = [*BYTE_LEVEL, *words]
    normalizer = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": lowercase}
    cls, sep = ([BYTE_LEVEL[index], index] for index in (0, 2))
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_piece(piece, index) for index, piece in enumerate(BYTE_LEVEL)],
        "normalizer": None if spaces else {"type": "BertNormalizer", **normalizer},
        "pre_tokenizer": {"type": "WhitespaceSplit" if spaces else "BertPreTokenizer"},
        "post_processor": {
            "type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": True, "add_prefix_space": False,
        },
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {piece: index for index, piece in enumerate(pieces)},
            "unk_token": BYTE_LEVEL[3],
        },
    }  # fmt: skip
    named = dict(zip(("cls", "pad", "sep", "unknown", "mask"), BYTE_LEVEL, strict=True))
    written = json.dumps(content, ensure_ascii=False)
    return FileTokenizer(written, specials={name: named[name] for name in NAMES})
