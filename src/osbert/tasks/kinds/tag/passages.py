"""Tagged texts divided into words, with entities and pieces: records, predictions, scores of words; EntityTask."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.long_texts import step, windows
from osbert.data.pack import PieceRun
from osbert.errors import Problems, nearest
from osbert.reading.table import Origin, Table
from osbert.reading.tagged.files import Sentence, TaggedFile
from osbert.reading.tagged.schemes import EntitySpan
from osbert.tasks import Prediction, Record, Task
from osbert.tasks.record import SIDES, UNPAIRED, RecordOutcome, TextMark, prediction_error
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
    def items(self) -> int:
        return len(self.sentences)

    @property
    def expected(self) -> tuple[TextEntity, ...]:
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


def word_scores(
    outputs: Sequence[NDArray[np.floating]],
    examples: Sequence[Example],
    *,
    overlap: int,
    pieces: Literal["first", "all"],
) -> NDArray[np.floating]:
    """Return the scores (words, K), of each word from the window in which it has most context.

    `overlap` and `pieces`: as in the settings of the task. With "all" the log-probabilities of a word's pieces are
    averaged.
    """
    tokens = _slice_tokens(examples, overlap)
    scores = np.concatenate([output[token] for output, token in zip(outputs, tokens, strict=True)])
    # Indices of first pieces, after the used tokens of all windows are concatenated: every piece occurs once.
    begins = np.flatnonzero(np.concatenate([example.words[token] for example, token in zip(examples, tokens)]))
    if pieces == "first" or not len(begins):
        return scores[begins]
    # Log-softmax of each piece, summed from each word's first piece to the next.
    sums = np.add.reduceat(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True), begins)
    return sums / np.diff(begins, append=len(scores))[:, None]


def _slice_tokens(examples: Sequence[Example], overlap: int) -> list[slice]:
    """Return the slice of tokens of each window whose scores are used."""
    sizes = [int(np.count_nonzero(~example.special)) for example in examples]
    begin = int(np.argmin(examples[0].special)) if sizes[0] else 0
    # All windows but the last have the same size, so the number of pieces of the text follows.
    count = step(sizes[0], overlap) * (len(sizes) - 1) + sizes[-1]
    parts = windows(count, room=max(sizes[0], 1), overlap=overlap)
    return [slice(begin + part.first - part.start, begin + part.last - part.start) for part in parts]


def entity_weights(
    span: EntitySpan, labels: NDArray[np.floating], examples: Sequence[Example], *, overlap: int, first: bool
) -> list[NDArray[np.float64]]:
    """Return weights (n, K) for each window; the sum of weights * outputs is the score of an entity.

    `labels` (words, K): the weights of the outputs of each of its words. These are the outputs of the word's first
    piece, or without `first` the mean over its pieces.
    """
    weights = [np.zeros((len(example), labels.shape[1])) for example in examples]
    begun = 0
    for example, token, window_weights in zip(examples, _slice_tokens(examples, overlap), weights):
        begins = example.words[token]
        numbers = begun + np.cumsum(begins) - 1 - span.start  # the entity's word that each piece is of
        inside = (numbers >= 0) & (numbers < len(labels)) & (begins | (not first))
        window_weights[token][inside] = labels[numbers[inside]]
        begun += int(begins.sum())
    if not first:
        pieces = sum(np.count_nonzero(window_weights.any(axis=1)) for window_weights in weights)
        weights = [window_weights * (len(labels) / max(pieces, 1)) for window_weights in weights]
    return weights


def uncut(words: NDArray[np.integer], spans: Sequence[EntitySpan]) -> NDArray[np.bool_]:
    """Return which of a run of words (n,) belong to no entity that extends beyond the run."""
    mask = np.ones(len(words), np.bool_)
    for start, end, _ in spans:
        inside = (words >= start) & (words < end)
        if 0 < inside.sum() < end - start:
            mask &= ~inside
    return mask


def only_entities(predictions: Sequence[Prediction], records: Sequence[Record], *, words: bool) -> str:
    """Return the answer of all records in words if no true entity is found, or if every word has the same tag.

    `words`: whether each word has a tag of its own. "" for other answers, and if nothing is predicted.
    """
    predicted = {span.type for prediction in predictions for span in prediction.comparable}
    if words and len(predicted) == 1 and len({span.type for record in records for span in record.label}) > 1:
        return f"tagged {predicted.pop()!r} in every word"
    pairs = zip(predictions, records, strict=True)
    right = any({*prediction.comparable} & {*record.label} for prediction, record in pairs)
    true = any(record.label for record in records)
    return "found to hold none of its entities" if predicted and true and not right else ""


def _type(span: EntitySpan | None) -> str:
    return UNPAIRED if span is None else span.type


def _list_entities(entities: Iterable[TextEntity]) -> str:
    return ", ".join(f"{one.text} ({one.type})" for one in entities) or "(no entity)"


@dataclass(frozen=True, kw_only=True)
class EntityTask(Task):
    """The common part of tasks whose records are texts with entities; subclasses encode and decode a text."""

    types: tuple[str, ...] = ()
    """The types of entities, learnt from the training rows if not given."""

    @property
    def classes(self) -> tuple[str, ...]:
        return self.types

    @property
    def criterion(self) -> str:
        return "f1"

    def fit(self, records: Sequence[Record]) -> Self:
        types = {span.type for record in records for span in record.label or ()}
        return dataclasses.replace(self, types=self.types or tuple(sorted(types)))

    def names(self, record: Record) -> tuple[str, ...]:
        """Return the types of a text's entities, each as often as it occurs."""
        return tuple(span.type for span in record.label or ())

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the outcome of a text: right if exactly its entities are predicted.

        The confidence is the lowest of all entities. A predicted entity is paired with the true one of the same words,
        whatever its type; other entities are unpaired.
        """
        assert isinstance(prediction, EntityPrediction) and isinstance(record, TaggedText)
        true = {(span.start, span.end): span for span in record.label}
        guesses = {(span.start, span.end): span for span in prediction.words}
        marked = [(side, record.entity(span)) for side, spans in zip(SIDES, (true, guesses)) for span in spans.values()]
        probabilities = [entity.probability for entity in prediction.value]
        right = {*prediction.words} == {*record.label}
        return RecordOutcome(
            truth=_list_entities(record.expected),
            guess=_list_entities(prediction.value),
            score=float(right),
            right=right,
            error=prediction_error(prediction, record),
            confidence=min(probabilities, default=None),
            pairs=tuple(
                (_type(true.get(word_range)), _type(guesses.get(word_range)))
                for word_range in sorted({*true} | {*guesses})
            ),
            beliefs=tuple(
                (probability, span in {*record.label}) for probability, span in zip(probabilities, prediction.words)
            ),
            marks=tuple(TextMark(start=one.start, end=one.end, name=one.type, of=side) for side, one in marked),
        )

    def cells(self, prediction: Prediction | None) -> dict[str, Any]:
        entities = json.dumps(self.reply(prediction)["entities"], ensure_ascii=False) if prediction else ""
        return {"prediction": entities}

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        return {"entities": [entity._asdict() for entity in prediction.value or ()]}
