"""Files of word vectors: word2vec's text and binary form, fastText's .vec and GloVe's text, read and written.

word2vec's begin with the number of words and the width; its text form is fastText's too. GloVe's has no such line. In
text a line is a word and its numbers; in binary a word, a space, and the numbers as little-endian float32.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.errors import Problems, UserError
from osbert.files import writing_output
from osbert.guarded import require_regular
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_any_tokenizer
from osbert.models.contract import Learner
from osbert.models.settings import settings_of
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.normalize import Normalizer
from osbert.text.train_file import BYTE_LEVEL, word_tokenizer

VectorForm = Literal["word2vec", "glove"]
SUFFIXES = (".txt", ".vec", ".bin")
BINARY = ".bin"
FAMILY = "static"
LONGEST = 1000
"""Most bytes of a word."""
WIDEST = 1 << 16
"""Most numbers of a vector."""
ADVICE = "Copy or download it again"


@dataclass(frozen=True, kw_only=True)
class WordVectors:
    """Words and their vectors (V, D), float32."""

    words: Sequence[str]
    vectors: NDArray[np.float32]

    def tokenizer(self) -> tuple[AnyTokenizer, int]:
        """Return a tokenizer whose pieces are these words, and the number of words that it never produces.

        Text is split by BERT's basic tokenizer, in lower case if no word has a capital. If this would lose more than
        half of the words, as with Chinese words and phrases, text is split only at spaces. Words that equal special
        pieces become special pieces.
        """
        words = [word for word in self.words if word not in BYTE_LEVEL]
        lowercase = all(word == word.lower() for word in words)
        normalizer = Normalizer(lowercase=lowercase, strip_accents=lowercase, cjk=True)
        lost = sum(normalizer.words(word) != [word] for word in words)
        spaces = 2 * lost > len(words)
        return word_tokenizer(words, lowercase=lowercase, spaces=spaces), 0 if spaces else lost

    def write_model(self, folder: Path) -> str:
        """Write a model of the static family into a folder; return a remark for the user, or ""."""
        tokenizer, lost = self.tokenizer()
        table = np.zeros((len(tokenizer), self.vectors.shape[1]), np.float32)
        rows = {word: row for row, word in enumerate(tokenizer.vocabulary)}
        table[[rows[word] for word in self.words]] = self.vectors
        write_static(folder, tokenizer, torch.from_numpy(table))
        return (
            f"{lost:,} of {len(self.words):,} words are never cut from a text, such as those with a hyphen."
            if lost
            else ""
        )


def write_static(folder: Path, tokenizer: AnyTokenizer, vectors: Tensor) -> None:
    """Write a model of the static family with the vectors (V, D) of a tokenizer's pieces into a folder."""
    backbone = settings_of(FAMILY)().replace(vocabulary=len(vectors), width=vectors.shape[1]).empty()
    backbone.load_state_dict(dict.fromkeys(backbone.state_dict(), vectors), assign=True)
    write_any_tokenizer(tokenizer, folder, length=backbone.architecture.length)
    write_model(Learner(backbone, {}), folder)


def read_word_vectors(path: Path) -> WordVectors:
    """Return the words and vectors of a file; .bin is binary, any other is text.

    Raises UserError that lists the lines (in a binary file the words) with a wrong number of values, a value that is
    not finite, a duplicate word, or invalid UTF-8, and a number of words that contradicts the first line.
    """
    require_regular(path)
    problems = Problems(heading=f"{path} cannot be used. {ADVICE}")
    with path.open("rb") as file:
        mark = len(BOM_UTF8) * (path.suffix != BINARY and file.read(len(BOM_UTF8)) == BOM_UTF8)
        file.seek(mark)
        first = file.readline(LONGEST)
        header = _header(first)
        if header and not 0 < header[1] <= WIDEST:
            raise UserError(
                f"{path}, line 1: {header[1]:,} values a word are not between 1 and {WIDEST:,}. {ADVICE}.",
                code="damaged-file",
            )
        if path.suffix == BINARY:
            if header is None:
                raise UserError(
                    f"{path}, line 1: {first[:40]!r} is not the number of words and of values that word2vec's binary "
                    f"form begins with. {ADVICE}, or rename it to .txt if it is text.",
                    code="wrong-format",
                )
            rows = _binary_rows(file, *header, problems)
        else:
            if header is None:
                file.seek(mark)
            rows = _text_rows(file, header and header[1], 1 + (header is not None), problems)
        vectors = _collect_vectors(rows, problems)
    if header and not problems.count and header[0] != len(vectors):
        problems.add(f"line 1: it says {header[0]:,} words, but there are {len(vectors):,}", code="damaged-file")
    if not vectors and not problems.count:
        problems.add("line 1: there is no word in it", code="no-data")
    problems.stop_if_any()
    return WordVectors(words=[*vectors], vectors=np.stack([*vectors.values()]))


def write_word_vectors(path: Path, word_vectors: WordVectors, form: VectorForm) -> None:
    """Write words and vectors: word2vec's text form, or its binary one into a .bin, or GloVe's text.

    Raises UserError if a word has a space, which these forms cannot hold.
    """
    if spaced := [word for word in word_vectors.words if any(map(str.isspace, word))]:
        raise UserError(
            f"{path}: {len(spaced):,} words have a space, such as {spaced[0]!r}, which this form cannot hold.",
            code="not-convertible",
        )
    with writing_output(path) as aside, aside.open("wb") as file:
        if form == "word2vec":
            file.write(f"{len(word_vectors.words)} {word_vectors.vectors.shape[1]}\n".encode())
        for word, vector in zip(word_vectors.words, word_vectors.vectors, strict=True):
            if path.suffix == BINARY:
                file.write(word.encode() + b" " + vector.astype("<f4").tobytes() + b"\n")
            else:
                numbers = " ".join(f"{value:.9g}" for value in vector.tolist())  # 9 digits keep every bit of a float32
                file.write(f"{word} {numbers}\n".encode())


def vectors_of(vocabulary: Sequence[str], table: Tensor) -> WordVectors:
    """Return the words of a static model and their vectors, without special pieces whose vector is 0."""
    vectors = table.detach().numpy()
    rows = [row for row, word in enumerate(vocabulary) if word not in BYTE_LEVEL or vectors[row].any()]
    return WordVectors(words=[vocabulary[row] for row in rows], vectors=vectors[rows])


def _header(line: bytes) -> tuple[int, int] | None:
    """Return the number of words and the width from a header line; None if it is not a header.

    >>> _header(b"3000000 300\\n"), _header(b"the 0.1 0.2\\n")
    ((3000000, 300), None)
    """
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        return None
    words, width = map(int, parts)
    return words, width


def _text_rows(
    file: BinaryIO, width: int | None, first: int, problems: Problems
) -> Iterator[tuple[str, bytes, NDArray[np.float32]]]:
    """Yield (position for messages, word, vector). Words may contain spaces (GloVe). Lines count from `first`."""
    for number, line in enumerate(file, first):
        where, parts = f"line {number:,}", line.rstrip(b"\r\n ").split(b" ")
        width = width or len(parts) - 1
        if len(parts) < width + 1 or width < 1:
            expected = f"{width} values" if width else "a word, a space and numbers with a space between"
            problems.add(f"{where}: {len(parts) - 1} values instead of {expected}", code="damaged-file")
            continue
        try:
            with np.errstate(over="ignore"):  # what exceeds float32 becomes infinite, which is refused below
                vector = np.array(parts[-width:], np.bytes_).astype(np.float32)
        except ValueError:
            wrong = next((part for part in parts[-width:] if not _is_number(part)), b"")
            problems.add(f"{where}: {wrong[:40]!r} is not a number", code="damaged-file")
            continue
        yield where, b" ".join(parts[:-width]), vector


def _binary_rows(
    file: BinaryIO, words: int, width: int, problems: Problems
) -> Iterator[tuple[str, bytes, NDArray[np.float32]]]:
    """Yield (position for messages, word, vector) of a binary file."""
    for number in range(1, words + 1):
        where, word = f"word {number:,} of {words:,}", bytearray()
        while (byte := file.read(1)) not in (b" ", b"") and len(word) <= LONGEST:
            word += byte
        if b"\n" in word.lstrip(b"\n"):  # what follows a word with a space is read in the wrong places
            problems.add(f"{where}: a line ends within it: it, or a word before it, has a space", code="damaged-file")
            return
        content = file.read(4 * width) if byte == b" " else b""
        if len(content) < 4 * width:
            problems.add(f"{where}: the file ends, or is damaged, within it", code="damaged-file")
            return
        # Some writers end each vector with a line feed, others do not.
        yield where, bytes(word).lstrip(b"\n"), np.frombuffer(content, "<f4")
    if file.read(2).strip():
        problems.add(f"line 1: it says {words:,} words, but more follow", code="damaged-file")


def _collect_vectors(
    rows: Iterable[tuple[str, bytes, NDArray[np.float32]]], problems: Problems
) -> Mapping[str, NDArray[np.float32]]:
    """Return the vectors by word; errors go to `problems`."""
    vectors: dict[str, NDArray[np.float32]] = {}
    for where, raw, vector in rows:
        try:
            word = raw.decode("utf-8")
        except UnicodeDecodeError:
            problems.add(f"{where}: the word {raw[:40]!r} is not UTF-8", code="wrong-encoding")
            continue
        if not word or word in vectors:
            problems.add(f"{where}: the word {word!r} {'stands twice' if word else 'is empty'}", code="damaged-file")
        elif not np.isfinite(vector).all():
            problems.add(f"{where}: the vector of {word!r} has a value that is NaN or infinite", code="damaged-file")
        else:
            vectors[word] = vector
    return vectors


def _is_number(part: bytes) -> bool:
    try:
        float(part)
    except ValueError:
        return False
    return True
