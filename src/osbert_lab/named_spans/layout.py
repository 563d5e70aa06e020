"""Types and a text in one sequence: [CLS] marker type ... separator words [SEP], and the passes over long inputs.

The layout is GLiNER's (Zaratiana et al. 2024, section 2.1). Types that leave too little room for the text are asked for
in several passes, and a long text is read in overlapping windows of whole words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Integers
from osbert.data.pack import Packer, PieceRun
from osbert.text.file_tokenizer import AnyTokenizer

Indices = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SpanWindow(Example):
    """A sequence that asks for some types in a run of words.

    `first_type`, `types`: index of its first type among those of the record, and their number. `first_word`: index of
    its first word; its words are where `words` is True.
    """

    first_type: int = 0
    types: int = 0
    first_word: int = 0


@dataclass(frozen=True, kw_only=True)
class Markers:
    """The ids of the piece before each type, and of the pieces between types and text."""

    entity: int
    separator: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: AnyTokenizer, entity: int, separator: int) -> Markers:
        """Return the markers with these ids; for -1 the mask, and what stands between two texts."""
        between = tokenizer.form.between or tokenizer.form.after
        return cls(
            entity=tokenizer.mask if entity < 0 else entity, separator=between if separator < 0 else (separator,)
        )


@dataclass(frozen=True, kw_only=True)
class PromptLayout:
    """Lays out types and words. `most_types`: most types of a pass, 0 for as many as fit in half of a sequence.

    `width`: words of the longest span, which neighbouring windows share at least. `overlap`: pieces that they share.
    """

    packer: Packer
    markers: Markers
    most_types: int
    width: int
    overlap: int

    @property
    def type_room(self) -> int:
        """Return the most pieces of all types of a pass, half of a sequence."""
        return max(2, self.packer.room(1) // 2 - len(self.markers.separator))

    def windows(self, types: Sequence[str], text: PieceRun, *, record: int) -> list[SpanWindow]:
        """Return the sequences of a text, group of types by group of types."""
        run = self._hide_marker(text.ids)
        windows: list[SpanWindow] = []
        for first_type, prompts, lost in self._groups(types):
            prompt = np.concatenate([*prompts, np.array(self.markers.separator, np.int32)])
            for first_word, begin, end, unread in self._cut(text.words, self.packer.room(1) - len(prompt)):
                words = np.concatenate([np.zeros(len(prompt), np.bool_), text.words[begin:end]])
                example = self.packer.single(np.concatenate([prompt, run[begin:end]]), words, record=record)
                columns = {field.name: getattr(example, field.name) for field in fields(Example)}
                columns["truncated"] = lost + (unread if first_type == 0 else 0)
                lost = 0
                columns["head_words"] = example.words
                windows.append(SpanWindow(**columns, first_type=first_type, types=len(prompts), first_word=first_word))
        return windows

    def type_pieces(self, type_: str) -> Integers:
        """Return the pieces of a type, untruncated and without its marker."""
        return self._hide_marker(self.packer.tokenizer.encode(type_))

    def _hide_marker(self, ids: Integers) -> NDArray[np.int32]:
        """Return pieces in which none is a marker, which the head would take for a type."""
        return np.where(ids == self.markers.entity, self.packer.tokenizer.unknown, ids).astype(np.int32)

    def _groups(self, types: Sequence[str]) -> Iterator[tuple[int, list[Integers], int]]:
        """Yield the types of each pass: index of the first, pieces of each with its marker, and how many were cut."""
        group: list[Integers] = []
        first = size = lost = 0
        for index, type_ in enumerate(types):
            pieces = self.type_pieces(type_)
            lost += max(0, len(pieces) + 1 - self.type_room)
            pieces = np.concatenate([[self.markers.entity], pieces]).astype(np.int32)[: self.type_room]
            if group and (size + len(pieces) > self.type_room or len(group) == self.most_types):
                yield first, group, lost
                group, first, size, lost = [], index, 0, 0
            group.append(pieces)
            size += len(pieces)
        if group:
            yield first, group, lost

    def _cut(self, begins: NDArray[np.bool_], room: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the windows of a text: index of the first word, first and last piece, and pieces that no window has.

        Neighbours share `overlap` pieces, at most half of a window, and the words of the longest span less one. So each
        span is whole in a window, unless its words are longer than the room.
        """
        starts = [*np.flatnonzero(begins).tolist(), len(begins)]
        words = len(starts) - 1
        first = 0
        while True:
            last = first + 1
            while last < words and starts[last + 1] - starts[first] <= room:
                last += 1
            unread = max(0, starts[min(last, words)] - starts[first] - room) if words else 0
            end = min(starts[min(last, words)], starts[first] + room)
            yield first, starts[first], end, unread
            if last >= words:
                return
            # Back by the overlap, but always on by a word.
            following = last
            shared = min(self.overlap, room // 2)
            while following > first + 1 and (
                starts[last] - starts[following] < shared or last - following < self.width - 1
            ):
                following -= 1
            first = following


def choose_types(
    example: Example, labels: Indices, index: Indices, *, markers: Markers, width: int, rng: np.random.Generator
) -> tuple[Example, Indices, Indices]:
    """Return a sequence with some of its types in random order, and the labels and tokens of its target.

    All types that the text has stay; of the others all in half of the cases, else any number. `labels` (M,): -1 for a
    word, and for a span its type times `width`, plus its words less one.
    """
    text = int(np.argmax(example.words)) - len(markers.separator)
    starts = np.flatnonzero(example.ids[:text] == markers.entity)
    parts = np.split(example.ids[starts[0] : text], starts[1:] - starts[0])
    present = np.unique(labels[labels >= 0] // width)
    absent = np.setdiff1d(np.arange(len(parts)), present)
    if len(absent) and rng.random() < 0.5:
        absent = rng.permutation(absent)[: rng.integers(0 if len(present) else 1, len(absent) + 1)]
    chosen = rng.permutation(np.concatenate([present, absent]))
    ids = np.concatenate([example.ids[: starts[0]], *(parts[type_] for type_ in chosen), example.ids[text:]])
    removed = len(example.ids) - len(ids)
    # The columns of the prompt are equal for all its pieces, so any of them may go.
    keep = np.r_[0 : starts[0], starts[0] + removed : len(example.ids)]
    columns = {name: getattr(example, name)[keep] for name in ("segments", "words", "special", "head_words")}
    ranks = np.zeros(len(parts), np.int64)
    ranks[chosen] = np.arange(len(chosen))
    spans = labels >= 0
    labels = np.where(spans, ranks[labels // width] * width + labels % width, labels)
    changed = Example(ids=ids, **columns, record=example.record, truncated=example.truncated)
    return changed, labels, index - removed
