"""Sequences that are laid out but not written yet: which runs of pieces stand in each, and what comes between.

A sequence is, as the tokenizer's Form says, [CLS] a run [SEP] a run [SEP] ...: of one run (spans), of two (pairs), or
of as many as documents are in it. A pool's layout is small and quickly made; the tokens of a step are gathered when the
step is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example
from osbert.data.examples import Examples, Targets
from osbert.data.ragged import Places, begins, ranges
from osbert.text.document import Documents
from osbert.text.file_tokenizer import AnyTokenizer


@dataclass(frozen=True, kw_only=True, eq=False)
class Sequences:
    """E sequences, joined from R runs of the pieces of documents.

    `firsts`, `sizes` and `segments` (R,): run k is the pieces [firsts[k], firsts[k] + sizes[k]), and its segment; one
    sequence's runs are side by side. `counts` (E,): runs of each sequence, at least one. `truncated` (E,): pieces that
    did not fit. `labels`: by objective, one label (E,) for each sequence. `with_sentences`: whether examples get the
    column that says where sentences start.
    """

    documents: Documents
    tokenizer: AnyTokenizer
    firsts: Places
    sizes: Places
    segments: NDArray[np.int8]
    counts: Places
    truncated: Places
    labels: Mapping[str, Places] = field(default_factory=dict)
    with_sentences: bool = False

    def __len__(self) -> int:
        """Return E."""
        return len(self.counts)

    def __iter__(self) -> Iterator[Example]:
        """Yield the sequences one by one."""
        return iter(self.take(np.arange(len(self))))

    @cached_property
    def lengths(self) -> Places:
        """The tokens of each sequence (E,), specials included."""
        before = np.concatenate([[0], np.cumsum(self.sizes)])
        starts, form = self._starts, self.tokenizer.form
        return before[starts + self.counts] - before[starts] + form.specials(1) + (self.counts - 1) * len(form.between)

    @cached_property
    def _starts(self) -> Places:
        return begins(self.counts)

    @cached_property
    def _sentence_starts(self) -> Booleans:
        """Where sentences start among the pieces of the documents (n,)."""
        found = np.zeros(len(self.documents.ids) + 1, np.bool_)  # an empty sentence may be the last
        found[self.documents.sentences] = True
        return found[:-1]

    def take(self, places: Places) -> Examples:
        """Return the sequences at some places (B,), written out in the order given."""
        counts = self.counts[places]
        runs = ranges(self._starts[places], counts)
        form, firsts = self.tokenizer.form, begins(counts)
        lasts = firsts + counts - 1
        leading = np.zeros(len(runs), np.int64)  # the first run of a sequence comes with what is before it
        leading[firsts] = len(form.before)
        trailing = np.full(len(runs), len(form.between))  # and every run with what follows it
        trailing[lasts] = len(form.after)
        spans = self.sizes[runs] + leading + trailing
        ends = np.cumsum(spans)
        # The specials stand for the pieces beside a run, which may be beyond the first or the last.
        source = ranges(self.firsts[runs] - leading, spans)
        ids = self.documents.ids.take(source, mode="clip").astype(np.int64)
        words = self.documents.words.take(source, mode="clip")
        special = np.zeros(len(source), np.bool_)
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
        once = np.ones(len(places), np.int64)
        return Examples(
            ids=ids,
            segments=segments,
            words=words,
            special=special,
            sentences=sentences,
            lengths=self.lengths[places],
            records=np.zeros(len(places), np.int64),
            truncated=self.truncated[places],
            targets={name: Targets(labels=labels[places], counts=once) for name, labels in self.labels.items()},
        )
