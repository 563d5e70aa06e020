"""Records and predictions of tagging: texts divided into words, their entities and their pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from osbert.data.pack import PieceRun
from osbert.errors import Problems, nearest
from osbert.reading.table import Origin, Table
from osbert.reading.tagged.files import Sentence, TaggedFile
from osbert.reading.tagged.schemes import EntitySpan
from osbert.tasks import Prediction, Record
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.words import Range


class TextEntity(NamedTuple):
    """An entity of a text: the characters [`start`, `end`), their `type`, `text` and probability; 1 for a label."""

    start: int
    end: int
    type: str
    text: str
    probability: float = 1.0


@dataclass(frozen=True, kw_only=True)
class TaggedText(Record):
    """A text and the ranges of its `words`; `label`: its entities as spans of words.

    `sentences`: index of each sentence's first word; entities do not cross sentences.
    """

    words: tuple[Range, ...] = ()
    sentences: tuple[int, ...] = (0,)

    @property
    def parts(self) -> list[Range]:
        """Return the words of each sentence, as ranges."""
        return list(pairwise((*self.sentences, len(self.words))))

    @property
    def expected(self) -> tuple[TextEntity, ...]:
        """Return the entities of the label with their characters, as predictions have them."""
        return tuple(self.entity(span) for span in self.label or ())

    def entity(self, span: EntitySpan, probability: float = 1.0) -> TextEntity:
        """Return the entity of a span of words."""
        start, end = self.words[span.start][0], self.words[span.end - 1][1]
        return TextEntity(start, end, span.type, self.texts[0][start:end], probability)


@dataclass(frozen=True, kw_only=True)
class EntityPrediction(Prediction):
    """The entities of a passage: `value`, a TextEntity each, in characters; `words`, the same in words.

    `words` counts the words of the record: those of a file of words, else of BERT's basic tokenizer, or characters.
    `illegal`: number of labels that violate the tagging scheme and were interpreted as by conlleval.
    """

    words: tuple[EntitySpan, ...] = ()
    illegal: int = 0

    @property
    def comparable(self) -> tuple[EntitySpan, ...]:
        """Return the spans of words, as labels are."""
        return self.words

    @property
    def answer(self) -> str:
        """Return the predicted types, to follow "every row is"."""
        types = ", ".join(span.type for span in self.value)
        return f"found to hold the same ({types})" if types else "found to hold no entity"

    def above(self, threshold: float) -> tuple[Prediction, int]:
        """Return the prediction without entities less probable than a threshold, and how many those are."""
        pairs = [pair for pair in zip(self.value, self.words) if pair[0].probability >= threshold]
        value, words = tuple(one for one, _ in pairs), tuple(span for _, span in pairs)
        return replace(self, value=value, words=words), len(self.value) - len(pairs)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, ready for JSON."""
        return {"prediction": [one._asdict() for one in self.value], "truncated": self.truncated}

    def lines(self) -> list[str]:
        """Return one line per entity: its probability, type, text and range."""
        lines = [
            f"{entity.probability:7.2%}  {entity.type}  {entity.text}  ({entity.start}-{entity.end})"
            for entity in self.value
        ]
        return lines or ["no entities"]


def passages(tagged: TaggedFile, origin: Origin, *, documents: bool) -> list[TaggedText]:
    """Return each sentence of a file, or of a table in memory, as a passage.

    With `documents` the sentences of a document are one passage, one line each.
    """
    path = origin.origin if isinstance(origin, Table) else str(origin)
    if not documents:
        return [_passage([sentence], path, tagged.unit) for sentence in tagged.sentences]
    tagged_texts: list[TaggedText] = []
    for number, group in groupby(tagged.sentences, key=lambda sentence: sentence.document):
        members = list(group)
        parts = [[sentence] for sentence in members] if number is None else [members]
        tagged_texts += [_passage(part, path, tagged.unit) for part in parts]
    return tagged_texts


def _passage(sentences: Sequence[Sentence], path: str, unit: str) -> TaggedText:
    words: list[Range] = []
    spans: list[EntitySpan] = []
    firsts: list[int] = []
    offset = 0
    for sentence in sentences:
        firsts.append(len(words))
        spans += [EntitySpan(start + len(words), end + len(words), type_) for start, end, type_ in sentence.spans or ()]
        words += [(start + offset, end + offset) for start, end in sentence.words]
        # The line break between two sentences counts as one character.
        offset += len(sentence.text) + 1
    return TaggedText(
        number=0,
        texts=("\n".join(sentence.text for sentence in sentences),),
        label=None if any(sentence.spans is None for sentence in sentences) else tuple(spans),
        path=path,
        line=sentences[0].line,
        unit=unit,
        words=tuple(words),
        sentences=tuple(firsts),
    )


def cut_words(passage: TaggedText, tokenizer: AnyTokenizer) -> PieceRun:
    """Return the pieces of a passage's words, each tokenized by itself; a word without pieces becomes [UNK]."""
    (text,) = passage.texts
    encoded = tokenizer.encode_words(text, passage.words)
    unknown = tokenizer.unknown.to_bytes(tokenizer.id_type.itemsize, "little")
    ids = np.frombuffer(b"".join(word_bytes or unknown for word_bytes in encoded), tokenizer.id_type).astype(np.int32)
    counts = np.array([max(len(word_bytes) // tokenizer.id_type.itemsize, 1) for word_bytes in encoded], np.int64)
    words: NDArray[np.bool_] = np.zeros(len(ids), np.bool_)
    # The exclusive cumulative sum: index of each word's first piece.
    words[np.cumsum(counts) - counts] = True
    return PieceRun(ids, words)


def note_unknown_types(types: Sequence[str], records: Sequence[Record], problems: Problems) -> None:
    """Report each type of entity that is not among `types`, once."""
    seen = {*types}
    for record in records:
        for span in record.label or ():
            if span.type not in seen:
                seen.add(span.type)
                problems.add(
                    f"{record.place}: unknown type '{span.type}' (known: {', '.join(types)})."
                    f"{nearest(span.type, types)} Mend it, or fine-tune with --types, which names all types, "
                    "those without training rows too.",
                    code="unknown-label",
                )
