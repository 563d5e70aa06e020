"""Document: the pieces of one source with sentence and word boundaries; Documents: many of them concatenated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

UNNUMBERED = -1
"""The source number of a document that is a source by itself."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """Pieces of one source; n pieces in s sentences.

    `ids` (n,): pieces, no specials. `sentences` (s + 1,): sentence k is ids[sentences[k]:sentences[k + 1]]. `words`
    (n,): True where a word starts. `source`: number of the source in its corpus; documents with the same number are
    parts of one long source. None if the document is a source by itself. `capitals` (n,): True where a capitalised word
    starts; None if the corpus does not mark that.
    """

    ids: NDArray[np.integer]
    sentences: NDArray[np.integer]
    words: NDArray[np.bool_]
    source: int | None = None
    capitals: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True, eq=False)
class Documents(Sequence[Document]):
    """d concatenated documents with n pieces in s sentences, for operations on all at once.

    `ids`, `words` (n,) and `sentences` (s + 1,) are as in a Document, counted through all documents. `starts` (d + 1,):
    document k has the sentences [starts[k], starts[k + 1]). `sources` (d,): their numbers, UNNUMBERED for None. `cut`
    (d,): True for a part of a document, the rest of which is not here; None if all are whole.
    """

    ids: NDArray[np.integer]
    sentences: NDArray[np.int64]
    words: NDArray[np.bool_]
    starts: NDArray[np.int64]
    sources: NDArray[np.int64]
    capitals: NDArray[np.bool_] | None = None
    cut: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Documents:
        """Concatenate documents. A Documents is returned unchanged."""
        if isinstance(documents, Documents):
            return documents
        return cls.concatenate(map(cls._alone, documents))

    @classmethod
    def concatenate(cls, parts: Iterable[Documents]) -> Documents:
        """Concatenate several Documents, in order."""
        all_parts = [*parts] or [_NONE]
        if len(all_parts) == 1:
            return all_parts[0]
        pieces = np.cumsum([0, *(len(part.ids) for part in all_parts)])
        sentences = np.cumsum([0, *(len(part.sentences) - 1 for part in all_parts)])
        capitals = [part.capitals for part in all_parts if part.capitals is not None]
        return cls(
            ids=np.concatenate([part.ids for part in all_parts]),
            sentences=_end_to_end([part.sentences for part in all_parts], pieces),
            words=np.concatenate([part.words for part in all_parts]),
            starts=_end_to_end([part.starts for part in all_parts], sentences),
            sources=np.concatenate([part.sources for part in all_parts]),
            capitals=np.concatenate(capitals) if len(capitals) == len(all_parts) else None,
            cut=np.concatenate([np.zeros(len(part), np.bool_) if part.cut is None else part.cut for part in all_parts]),
        )

    @classmethod
    def _alone(cls, document: Document) -> Documents:
        return cls(
            ids=document.ids,
            sentences=document.sentences.astype(np.int64),
            words=document.words,
            starts=np.array([0, len(document.sentences) - 1]),
            sources=np.array([UNNUMBERED if document.source is None else document.source]),
            capitals=document.capitals,
        )

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, number: int) -> Document: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Document]: ...
    def __getitem__(self, number: int | slice) -> Document | Sequence[Document]:
        """Return one document, or a list for a slice."""
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]
        index = range(len(self))[number]
        bounds = self.sentences[self.starts[index] : self.starts[index + 1] + 1]
        pieces = slice(int(bounds[0]), int(bounds[-1]))
        source = int(self.sources[index])
        return Document(
            ids=self.ids[pieces],
            sentences=bounds - bounds[0],
            words=self.words[pieces],
            source=None if source == UNNUMBERED else source,
            capitals=None if self.capitals is None else self.capitals[pieces],
        )


_NONE = Documents(
    ids=np.empty(0, np.uint16),
    sentences=np.zeros(1, np.int64),
    words=np.empty(0, np.bool_),
    starts=np.zeros(1, np.int64),
    sources=np.empty(0, np.int64),
)


def _end_to_end(bounds: Sequence[NDArray[np.int64]], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate bounds, shifted by `offsets` (parts + 1,), the start of each part and the end of the last."""
    # The last bound of a part is the first one of the next, so it is dropped.
    shifted = [part[:-1] + offset for part, offset in zip(bounds, offsets.tolist())]
    return np.concatenate([*shifted, offsets[-1:]])


def sources(documents: Sequence[Document]) -> int:
    """Return the number of sources of documents that have text."""
    columns = Documents.of(documents)
    sizes = np.diff(columns.sentences[columns.starts])
    numbers = columns.sources[sizes > 0].tolist()
    # Each unnumbered document is a source; numbered ones count once per number.
    return numbers.count(UNNUMBERED) + len({*numbers} - {UNNUMBERED})
