"""A vocabulary as functions: texts or files in, a tokenizer folder out, to be trained or extended."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from osbert.errors import UserError
from osbert.files import disk_needed, refuse_foreign
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.tokenizers import WRITTEN, read_tokenizer, write_any_tokenizer, write_tokenizer
from osbert.lock import claim
from osbert.reading.documents import DocumentOptions, probe, read_input
from osbert.reading.encodings import Errors
from osbert.reading.form import SUFFIXES, plain_suffix
from osbert.reading.inputs import OpenInput, Repairs, find_inputs, kind_of
from osbert.runs.contract import Notice, Watch, ignore
from osbert.terminal import format_count
from osbert.text.extend import add_words
from osbert.text.file_tokenizer import AnyTokenizer, with_sentinels
from osbert.text.tokenizer import Tokenizer, WordPiece
from osbert.text.train import WordCounter, check_settings, learn
from osbert.text.train_file import ChunkCounter, check_bytes, learn_bpe, learn_unigram, learn_words

LENGTH = 512
"""Longest sequence in the files for other programs: BERT's."""
OTHERS = {"run.json": "a run", "config.json": "a model", "corpus.json": "a corpus", "building.json": "a corpus"}
"""Files of folders that go with one tokenizer and would not fit another, and what these folders are."""
LONGEST_PATH = 4096
"""Most characters of a path; a longer string is a text."""

ALPHABET = 1000
"""Default for the most characters in a vocabulary, besides Chinese ones."""

MARKED = re.compile("[\u0900-\u109f\u1780-\u17ff\u3040-\u30ff]")
"""Letters of scripts that write vowels or voicing by marks: from Devanagari to Myanmar, Khmer, kana. Stripping accents
removes these marks, too."""
Kind = Literal["wordpiece", "bpe", "unigram", "words"]
Texts: TypeAlias = str | Path | Iterable[str | Path]
"""Files and folders, or texts."""


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """How files of text are read."""

    field: str = "text"
    """The field of a JSON line, or the column of a Parquet file, that holds the text."""
    encoding: str = "utf-8"
    """The encoding of text and JSON files."""
    errors: Errors = "strict"
    """Whether bad bytes and bad records stop the reading, or are replaced or left out, and counted."""

    @property
    def reading(self) -> DocumentOptions:
        """Return how files are read."""
        return DocumentOptions(field=self.field, encoding=self.encoding, errors=self.errors)


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(FileSettings):
    """Settings for training a vocabulary."""

    kind: Kind = "wordpiece"
    """wordpiece: BERT's. bpe: byte-level byte-pair encoding, as RoBERTa's and GPT-2's, in which any text can be
    written. unigram: the likeliest pieces of each word, as ALBERT's and XLNet's. words: the most frequent words, as
    word2vec's, GloVe's and ELMo's; all others are unknown."""
    vocabulary: int = 30522
    """Pieces to learn, the five special ones among them; with bpe also the 256 bytes."""
    sentinels: int = 0
    """How many of the pieces are sentinels, <extra_id_0> and so on, which stand for missing spans when a T5 is
    pretrained (--objectives spans). T5 has 100. Without any, the mask piece stands for every span."""
    lowercase: bool | None = None
    """Lowercase the text and strip accents. Default: no for bpe, yes for the others."""
    alphabet: int = ALPHABET
    """Most characters besides Chinese ones; words with rarer characters become [UNK]. Not with bpe
    or words."""
    minimum: int = 2
    """Occurrences that a pair of pieces must have to become one piece, and a Chinese character to be one. With words:
    that a word must have."""

    def check(self) -> None:
        """Raise UserError for settings that exclude each other."""
        if self.sentinels < 0:
            raise UserError(f"sentinels must be 0 or more, not {self.sentinels}.", code="invalid-value")
        learnt = self.vocabulary - self.sentinels
        check_settings(vocabulary=learnt, alphabet=self.alphabet, minimum=self.minimum)
        if self.kind == "bpe":
            check_bytes(learnt)
        if self.kind in ("bpe", "words") and self.alphabet != ALPHABET:
            raise UserError(
                f"--alphabet has no effect with --kind {self.kind}. Remove it.",
                code="options-exclude-each-other",
            )

    def counter(self) -> WordCounter | ChunkCounter:
        """Return the counter of words (or chunks) for this kind of vocabulary."""
        # BPE and Unigram learn from chunks that keep their spaces; the others from single words.
        cut = self.kind in ("wordpiece", "words")
        return WordCounter(lowercase=self.lowercase is not False) if cut else ChunkCounter()

    def learn(self, words: Mapping[str, int]) -> AnyTokenizer:
        """Return the tokenizer with the pieces learnt from words and their counts, and with the sentinels."""
        return with_sentinels(self._learn_pieces(words), self.sentinels)

    def _learn_pieces(self, words: Mapping[str, int]) -> AnyTokenizer:
        sizes = {"vocabulary": self.vocabulary - self.sentinels, "minimum": self.minimum}
        if self.kind == "bpe":
            return learn_bpe(words, lowercase=self.lowercase is True, **sizes)
        lowercase = self.lowercase is not False
        if self.kind == "words":
            return learn_words(words, lowercase=lowercase, **sizes)
        if self.kind == "unigram":
            return learn_unigram(words, lowercase=lowercase, alphabet=self.alphabet, **sizes)
        return Tokenizer(learn(words, alphabet=self.alphabet, **sizes), lowercase=lowercase)


@dataclass(frozen=True, kw_only=True)
class ExtensionSettings(FileSettings):
    """Settings for extending a vocabulary."""

    pieces: int = 1000
    """Most pieces to add."""
    minimum: int = 10
    """Occurrences that a word must have to be added."""


@dataclass(frozen=True, kw_only=True)
class VocabularyProgress:
    """How far a vocabulary is: bytes of the files that were read, of `total`; 0 of 0 for texts in memory."""

    phase: Literal["counting words", "learning pieces"]
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        """Return it for people, so that `watch=print` is readable."""
        return f"{self.phase}: {self.done / self.total:.0%}" if self.total else self.phase


def train_tokenizer(
    texts: Texts, *, out: Path, settings: VocabularySettings | None = None, watch: Watch = ignore
) -> AnyTokenizer:
    """Train a vocabulary into the folder `out`, and return its tokenizer.

    `texts`: files and folders, or texts, as the first one says: a Path or the name of a file that exists is a file. The
    same text gives the same vocabulary, byte for byte. `watch` gets VocabularyProgress and Notice. Raises UserError for
    what cannot be read, all of it at once, and for an `out` that holds something else.
    """
    settings, begin = settings or VocabularySettings(), time.monotonic()
    with claim(out), disk_needed(out, goes_on=""):
        _check_out(out)
        settings.check()
        counter = settings.counter()
        repairs = _count(counter, texts, out, settings, watch)
        words = counter.words()
        watch(VocabularyProgress(phase="learning pieces"))
        tokenizer = settings.learn(words)
        write_any_tokenizer(tokenizer, out, length=LENGTH)
    if len(tokenizer) < settings.vocabulary:
        few = f"no further pair of pieces occurs {settings.minimum:,} times"
        few = "no further piece makes the text likelier" if settings.kind == "unigram" else few
        few = f"no further word occurs {settings.minimum:,} times" if settings.kind == "words" else few
        watch(Notice(f"{settings.vocabulary:,} pieces were requested, but {few}."))
    marked = sum(count for word, count in words.items() if MARKED.search(word))
    if settings.kind != "bpe" and settings.lowercase is not False and marked > words.total() / 100:
        message = f"{marked:,} words are in scripts whose vowel and voicing signs were stripped as accents"
        watch(Notice(f"{message}. To keep them: --no-lowercase.", warning=True))
    _report(repairs, counter, watch)
    watch(Notice(f"fingerprint {tokenizer.fingerprint}"))
    read = f"{words.total() + counter.forgotten:,} words ({len(words):,} different)"
    watch(Notice(f"{out}: learned {len(tokenizer):,} pieces from {read} in {time.monotonic() - begin:.1f} s"))
    return tokenizer


def extend_tokenizer(
    folder: Path,
    texts: Texts,
    *,
    out: Path,
    settings: ExtensionSettings | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> Tokenizer:
    """Extend a vocabulary for texts of another domain into the folder `out`, and return its tokenizer.

    Words that the tokenizer in `folder` cuts to pieces, and that save the most tokens, are added behind the old pieces,
    which keep their ids. The rest is as with `train_tokenizer`.
    """
    settings = settings or ExtensionSettings()
    with claim(out), disk_needed(out, goes_on=""):
        _check_out(out)
        if out.resolve() in (folder.resolve(), folder.resolve().parent if folder.is_file() else None):
            raise UserError(
                f"{out} contains the vocabulary to extend, which must stay unchanged. Choose another --out.",
                code="output-holds-something-else",
            )
        old = read_tokenizer(folder, opening)
        counter = WordCounter(lowercase=old.lowercase, strip_accents=old.strip_accents)
        repairs = _count(counter, texts, out, settings, watch)
        words = counter.words()
        new = add_words(old, words, pieces=settings.pieces, minimum=settings.minimum)
        write_tokenizer(new, out, length=LENGTH)
    _report(repairs, counter, watch)
    added = new.vocabulary[len(old) :]
    before, after = (_tokens(tokenizer, words) for tokenizer in (old, new))
    pieces = format_count(len(added), "piece")
    watch(Notice(f"{pieces} added to {len(old):,}, among them: {', '.join(added[:10])}"))
    fewer = f"({1 - after / before:.1%} fewer)"
    watch(Notice(f"{out}: these texts had {before:,} tokens and have {after:,} now {fewer}"))
    return new


def _check_out(out: Path) -> None:
    """Raise UserError if the folder belongs to a run, a model or a corpus, or holds other files."""
    for name, what in OTHERS.items():
        if (out / name).is_file():
            raise UserError(
                f"{out}: according to {name}, this folder is {what} with a tokenizer of its own. Choose another --out.",
                code="output-holds-something-else",
            )
    refuse_foreign(out, "a tokenizer", WRITTEN)


def _count(
    counter: WordCounter | ChunkCounter, texts: Texts, out: Path, settings: FileSettings, watch: Watch
) -> Repairs:
    repairs = Repairs()
    files, texts = files_or_texts(texts)
    if files:
        texts = _read(files, out, settings.reading, repairs, watch)
    else:
        watch(VocabularyProgress(phase="counting words"))
    for text in texts:
        counter.add(text)
    return repairs


def files_or_texts(texts: Texts) -> tuple[list[Path | str], Iterable[str]]:
    """Return (files, texts), one of them empty; the first item decides which."""
    if isinstance(texts, str | Path):
        return [texts], ()
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        raise UserError(
            f"A {type(texts).__name__} is not a list of texts. Give one of its columns, such as table['text'].",
            code="invalid-value",
        )
    # The first item decides between files and texts; `chain` puts it back, so generators are read once.
    rest = iter(texts)
    first = next(rest, None)
    if first is None:
        raise UserError("The list of texts is empty, so no vocabulary can be learned.", code="no-data")
    everything = itertools.chain([first], rest)
    if isinstance(first, Path) or _is_file(first):
        return list(everything), ()
    return [], map(_text, everything)


def _text(value: Any) -> str:
    """Return the text. Raises UserError for other types, such as NaN, which would be learnt as the word "nan"."""
    if not isinstance(value, str):
        raise UserError(f"{value!r:.60} is not a text. Give either texts or files.", code="invalid-value")
    return value


def _is_file(text: str) -> bool:
    """Return whether a string is the name of a file or folder that exists, or looks like that of a missing file."""
    # Such a string cannot be a path, and the system call would fail on it.
    if len(text) > LONGEST_PATH or "\n" in text:
        return False
    exists = os.path.exists(os.path.expanduser(text))  # unlike Path's method it is False for a name that is too long
    named = kind_of(text) is not None or plain_suffix(Path(text)) in SUFFIXES
    # "reviews.txt" without spaces is a misspelt file rather than a text of one word.
    return exists or (named and not any(map(str.isspace, text)))


def _read(
    files: Sequence[Path | str], out: Path, reading: DocumentOptions, repairs: Repairs, watch: Watch
) -> Iterator[str]:
    """Yield the text of all files, chunk by chunk.

    They are opened once before, so that the mistakes in all of them are reported at once.
    """
    inputs = find_inputs(files, without=out)
    probe(inputs, reading)
    total, before = sum(source.size for source in inputs), 0
    for source in inputs:
        opened = OpenInput(source, repairs=repairs)
        for chunk in read_input(opened, reading):
            yield chunk.text
            watch(VocabularyProgress(phase="counting words", done=before + opened.position(), total=total))
        before += source.size
        watch(VocabularyProgress(phase="counting words", done=before, total=total))


def _tokens(tokenizer: Tokenizer, words: Mapping[str, int]) -> int:
    cut = WordPiece(tokenizer.vocabulary, unknown=tokenizer.unknown).cut
    return sum(count * len(cut(word)) for word, count in words.items())


def _report(repairs: Repairs, counter: WordCounter | ChunkCounter, watch: Watch) -> None:
    counts = {
        "byte-order marks removed": repairs.boms,
        "runs of bad bytes replaced": repairs.replaced,
        "records without usable text left out": repairs.records,
        "files without any text": repairs.empty,
        "files in archives with an unknown ending left out": repairs.skipped,
        "occurrences of rare words forgotten to bound the memory": counter.forgotten,
    }
    for what, count in counts.items():
        if count:
            watch(Notice(f"{count:,} {what}", warning=True))
    for example in repairs.examples:
        watch(Notice(f"  {example}", warning=True))
