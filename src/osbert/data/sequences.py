"""Sequences that are laid out but not written out yet: the runs of pieces in each, and the specials between.

A sequence is [CLS] run [SEP] run [SEP] ..., by the tokenizer's Form: one run (spans), two (pairs), or one for each
document in it. The layout of a pool is small and cheap; tokens are gathered when their step is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example, Places, begins, ranges
from osbert.data.examples import Examples, Targets
from osbert.text.document import Documents
from osbert.text.file_tokenizer import AnyTokenizer


@dataclass(frozen=True, kw_only=True, eq=False)
class Sequences:
    """E sequences that consist of R runs of the documents' pieces.

    `firsts`, `sizes` and `segments` (R,): run k is the pieces [firsts[k], firsts[k] + sizes[k]), with its segment; the
    runs of a sequence are adjacent. `counts` (E,): runs of each sequence, at least one. `truncated` (E,): pieces that
    did not fit. `labels`: one label per sequence (E,), by objective. `piece_labels`: one per piece of the documents
    (n,), by objective, -1 for none. `with_sentences`: whether examples get the column `sentences`.
    """

    documents: Documents
    tokenizer: AnyTokenizer
    firsts: Places
    sizes: Places
    segments: NDArray[np.int8]
    counts: Places
    truncated: Places
    labels: Mapping[str, Places] = field(default_factory=dict)
    piece_labels: Mapping[str, NDArray[np.integer]] = field(default_factory=dict)
    with_sentences: bool = False

    def __len__(self) -> int:
        """Return E, the number of sequences."""
        return len(self.counts)

    def __iter__(self) -> Iterator[Example]:
        """Yield the sequences one by one."""
        return iter(self.take(np.arange(len(self))))

    @cached_property
    def lengths(self) -> Places:
        """The tokens of each sequence (E,), specials included."""
        # A cumulative sum with a leading 0: pieces of runs a to b are before[b] - before[a].
        before = np.concatenate([[0], np.cumsum(self.sizes)])
        starts, form = self._starts, self.tokenizer.form
        return before[starts + self.counts] - before[starts] + form.specials(1) + (self.counts - 1) * len(form.between)

    @cached_property
    def _starts(self) -> Places:
        return begins(self.counts)

    @cached_property
    def _sentence_starts(self) -> Booleans:
        """Whether a sentence starts at each piece of the documents (n,)."""
        starts = np.zeros(len(self.documents.ids) + 1, np.bool_)  # an empty sentence may be the last
        starts[self.documents.sentences] = True
        return starts[:-1]

    def take(self, indices: Places) -> Examples:
        """Write out the sequences with the indices `indices` (B,), in that order."""
        counts = self.counts[indices]
        runs = ranges(self._starts[indices], counts)
        form, firsts = self.tokenizer.form, begins(counts)
        lasts = firsts + counts - 1
        leading = np.zeros(len(runs), np.int64)  # specials that precede the first run of a sequence
        leading[firsts] = len(form.before)
        trailing = np.full(len(runs), len(form.between))  # specials that follow every run
        trailing[lasts] = len(form.after)
        spans = self.sizes[runs] + leading + trailing
        ends = np.cumsum(spans)
        # Read each run with its neighbouring pieces, which the specials overwrite below. These may be out of range
        # at either end of the documents: hence mode="clip".
        source = ranges(self.firsts[runs] - leading, spans)
        ids = self.documents.ids.take(source, mode="clip").astype(np.int64)
        words = self.documents.words.take(source, mode="clip")
        special = np.zeros(len(source), np.bool_)
        # The position after each run's pieces, except for the last run of a sequence.
        inner = np.delete(ends - trailing, lasts)
        for starts, pieces in (
            ((ends - spans)[firsts], form.before),
            (inner, form.between),
            ((ends - trailing)[lasts], form.after),
        ):
            for offset, piece in enumerate(pieces):
                index = starts + offset
                ids[index], words[index], special[index] = piece, False, True
        sentences = self._sentence_starts.take(source, mode="clip") & ~special if self.with_sentences else None
        segments = np.repeat(self.segments[runs], spans)
        if form.last_segment is not None:
            segments[ends[lasts] - 1] = form.last_segment
        once = np.ones(len(indices), np.int64)
        targets = {name: Targets(labels=labels[indices], counts=once) for name, labels in self.labels.items()}
        lengths = self.lengths[indices]
        for name, labels in self.piece_labels.items():
            token_labels = np.where(special, -1, labels.take(source, mode="clip"))
            index = np.flatnonzero(token_labels >= 0)
            # Labels in each sequence: `index` is sorted, so searchsorted counts those before each start.
            counts = np.diff(np.searchsorted(index, begins(lengths)), append=len(index))
            targets[name] = Targets(labels=token_labels[index].astype(np.int64), counts=counts, index=index)
        return Examples(
            ids=ids,
            segments=segments,
            words=words,
            special=special,
            sentences=sentences,
            lengths=lengths,
            records=np.zeros(len(indices), np.int64),
            truncated=self.truncated[indices],
            targets=targets,
        )
