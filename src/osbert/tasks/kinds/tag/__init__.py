"""tag: a label for every word, such as the entities of a text; softmax(T_i W), or a CRF on it (section 5.3)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example, Target
from osbert.data.long_texts import TextWindow, windows
from osbert.data.pack import Packer, PieceRun
from osbert.errors import Problems, UserError
from osbert.files import file_stamp
from osbert.reading.splits import Names, hold_out_known
from osbert.reading.table import Origin, Table
from osbert.reading.tagged.files import CALLED, TaggedFile, TagReading, find_tagged, read_tagged
from osbert.reading.tagged.schemes import (
    EntitySpan,
    Scheme,
    entity_scores,
    follows,
    label_names,
    read_tags,
    scheme_of,
    write_tags,
)
from osbert.tasks import Description, Inputs, Prediction, Record, Source, Task
from osbert.tasks.edges import Edge, ExplainedScore, contrast, require_label
from osbert.tasks.features import FeatureTask
from osbert.tasks.kinds.tag.inputs import plain_inputs
from osbert.tasks.kinds.tag.passages import (
    EntityPrediction,
    EntityTask,
    TaggedText,
    cut_words,
    entity_weights,
    note_unknown_types,
    only_entities,
    passages,
    uncut,
    word_scores,
)
from osbert.tasks.tables.classes import list_counts
from osbert.terminal import format_count
from osbert.text.words import Split, ranges

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head
    from osbert.models.heads.chain import Chain


class TagSource(Source):
    """Reads tagged text: CoNLL columns, JSON lines, Parquet, annotation tools' files, or rows in memory like those."""

    task: Tag
    split_names: Names = CALLED

    def find_files(self, data: Path) -> Mapping[str, Path]:
        return find_tagged(data)

    @property
    def reading(self) -> TagReading:
        """Return the settings for reading files."""
        task = self.task
        return TagReading(
            column=task.column,
            text=task.text,
            encoding=task.encoding,
            split=task.split,
            plain=task.scheme == "words",
            spell=task.spell,
        )

    def findings(self) -> list[str]:
        files = self.files()
        lines = [self._describe(origin) for split, origin in files.items() if split != "test"]
        if self.task.context == "document":
            lines.append(
                "a row is a document with all its sentences; --batch counts sentences, whole documents of them"
            )
        if "dev" not in files:
            remark = f"{100 * self.task.held_out:g}% of the training texts, drawn at random, are held out"
            lines.append(f"no file for development: {remark}")
        return lines

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> list[TaggedText]:
        tagged = self._read(origin, problems, labelled=labelled)
        return passages(tagged, origin, documents=self.task.context == "document")

    def mark_held_out(self, records: Sequence[Record]) -> Booleans:
        """Return which passages are held out; training keeps at least one entity of each type."""
        return hold_out_known([{span.type for span in record.label or ()} for record in records], self.task.held_out)

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data; the training file's encoding is forgotten.

        Raises UserError if the tags' column is not a number.
        """
        settings: dict[str, Any] = {"encoding": "", "column": self.task.column, **given}
        try:
            settings["column"] = int(settings["column"])
        except ValueError as error:
            raise UserError(
                f"The tags' column is a number, counted from 1, not '{settings['column']}'.", code="invalid-value"
            ) from error
        return super().switch_data(data, settings)

    def inputs(self, data: Origin) -> Inputs:
        """Return a file without labels: a word per line, or a text per row (plain lines, JSON lines, CSV)."""
        return plain_inputs(data, self.reading, self.task.record_of, documents=self.task.context == "document")

    def _read(self, origin: Origin, problems: Problems, *, labelled: bool) -> TaggedFile:
        key = self._key(origin)
        tagged = read_tagged(origin, self.reading, problems, labelled=labelled)
        if labelled:
            self._facts[key] = tagged.describe()
        return tagged

    def _describe(self, origin: Origin) -> str:
        """Describe a file. It is read if it has not been read, or has changed since."""
        key = self._key(origin)
        if key not in self._facts:
            self._read(origin, Problems(heading=""), labelled=True)
        return str(self._facts[key])

    def _key(self, origin: Origin) -> tuple[Any, ...]:
        return (origin.called,) if isinstance(origin, Table) else (origin, file_stamp(origin))


class TagDescription(Description):
    """Describes texts with their entities."""

    task: Tag

    def describe_split(self, records: Sequence[Record]) -> str:
        sentences = sum(record.items for record in records)
        counts = Counter(span.type for record in records for span in record.label or ())
        sizes = f"{format_count(sentences, 'sentence')} in {format_count(len(records), 'row')}"
        return f"{sizes}, {format_count(counts.total(), 'entity', 'entities')} ({list_counts(counts)})"

    def only_answer(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> str:
        found = only_entities(predictions, records, words=self.task.scheme == "words")
        return found or super().only_answer(predictions, records)


@dataclass(frozen=True, kw_only=True)
class Tag(FeatureTask, EntityTask):
    """Texts whose words have tags: CoNLL columns, or JSON lines with words and tags or with marked entities.

    Texts that are too long for the model are split into overlapping windows; nothing is cut off.
    """

    form = "tokens"
    edge = Edge(kind="tag", call="tag")
    published_outputs = 0
    reader: ClassVar[type[Source]] = TagSource
    describer: ClassVar[type[Description]] = TagDescription
    row_score: ClassVar[str] = "texts with all entities right"

    scheme: Scheme = "bio"
    """The tagging scheme: bio, begin or inside of an entity; bioes, also its end or the single word; words, a
    label of its own, such as its part of speech. Files may be in any scheme that spells entities."""
    pieces: Literal["first", "all"] = "first"
    """The pieces of a word that have its label: the first, as in the paper, or all of them."""
    decoder: Literal["linear", "crf"] = "linear"
    """linear: the most probable label of each word; crf: the most probable path, with learnt transition scores."""
    legal: bool = False
    """Exclude illegal sequences of labels, instead of interpreting them as conlleval does."""
    context: Literal["sentence", "document"] = "sentence"
    """The unit of a record: a sentence, or all sentences of a document as far as they fit (maximal document context). A
    step then has whole documents, about --batch sentences in total."""
    overlap: int = 128
    """Overlap of two windows of a long text in pieces, at most half a window."""
    split: Split = "words"
    """The unit of words if a file does not define it: words, by spaces and punctuation, or characters, for Chinese."""
    text: str = ""
    """The name of the text in JSON lines, or in a table to predict; detected by its name if not given."""
    column: int = 0
    """The tags' column in a file of columns, counted from 1; 0 for the last one."""
    encoding: str = ""
    """The file's encoding, such as gb18030; by default UTF-8 or that of its byte order mark."""
    held_out: float = 0.1
    """Fraction of the training texts held out for development if there is no development file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be a fraction between 0 and 1, not {self.held_out}")
        if self.overlap < 0:
            raise ValueError(f"overlap must be at least 0, not {self.overlap}")
        if self.decoder == "crf" and self.pieces == "all":
            raise ValueError("a crf goes from word to word: it needs pieces = first")

    @property
    def frozen_states(self) -> Literal["", "tokens"]:
        """Return "tokens"; "" with features, above which a frozen encoder has an LSTM."""
        return "tokens" if self.features == "none" else ""

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of words, in the order of the outputs."""
        return label_names(self.types, self.scheme)

    def spell(self, cell: str) -> str:
        """Return the word that a cell of a column file holds."""
        return cell

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        labels = [record.label for record in records if record.label is not None]
        if labels and not any(labels):
            problems.add(
                f"{records[0].path}: no text has an entity (every tag is O): there is nothing to learn or score. "
                "Give texts that have some.",
                code="nothing-to-learn",
            )
        if self.types:
            note_unknown_types(self.types, records, problems)

    def record_of(self, texts: Sequence[str]) -> TaggedText:
        """Return the passage of one text; its words are those of BERT's basic tokenizer, or its characters."""
        if len(texts) != 1:
            raise UserError(f"{self.name} reads one text at a time, not {len(texts)}.", code="wrong-number-of-texts")
        return TaggedText(number=0, texts=tuple(texts), words=tuple(ranges(texts[0], self.split)))

    # The model.

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        assert isinstance(record, TaggedText)
        run = cut_words(record, packer.tokenizer)
        parts = windows(len(run.ids), room=packer.room(1), overlap=self.overlap)
        targets = [None] * len(parts) if record.label is None else self._targets(record, run, parts)
        examples = []
        for part, target in zip(parts, targets):
            read = slice(part.start, part.end)
            example = packer.single(run.ids[read], run.words[read], record=record.number)
            examples.append(dataclasses.replace(example, targets={self.name: target}) if target else example)
        return examples

    def head(self, backbone: Backbone) -> Head:
        if self.features != "none":
            return self.head_on_features(backbone)
        from osbert.models.heads.tagging import TagHead

        return TagHead(
            backbone,
            target=self.name,
            labels=len(self.labels),
            chain=self._chain() if self.decoder == "crf" else None,
        )

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> Prediction:
        """Return the entities of a passage, without learnt transition scores."""
        return self._decode_with_chain(self._chain(), outputs, record, examples)

    def decode_with(self, learnt: Mapping[str, list[Any]]) -> Callable[..., Prediction]:
        """Return `decode` with the learnt transition scores of a CRF."""
        from osbert.models.heads.chain import Chain

        chain = Chain(**{name: np.array(part) for name, part in learnt.items()}) if learnt else self._chain()
        return partial(self._decode_with_chain, chain)

    def explain(
        self, prediction: Prediction, record: Record, examples: Sequence[Example], label: str = ""
    ) -> list[ExplainedScore]:
        """Return the score of each entity, or of those of the type `label`: of its words' labels over the others."""
        assert isinstance(prediction, EntityPrediction)
        if label:
            require_label(label, self.types)
        scores = []
        for span, entity in zip(prediction.words, prediction.value):
            if label in ("", span.type):
                tags = write_tags([EntitySpan(0, span.end - span.start, span.type)], span.end - span.start, self.scheme)
                rows = np.stack([contrast(self.labels.index(tag), len(self.labels)) for tag in tags])
                weights = entity_weights(span, rows, examples, overlap=self.overlap, first=self.pieces == "first")
                scores.append(ExplainedScore(label=span.type, text=entity.text, weights=weights))
        return scores

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return precision, recall and F1 as conlleval and seqeval, and the fraction of repaired labels."""
        scores = entity_scores(
            [prediction.comparable for prediction in predictions], [record.label for record in records], self.types
        )
        words = sum(len(record.words) for record in records if isinstance(record, TaggedText))
        illegal = sum(prediction.illegal for prediction in predictions if isinstance(prediction, EntityPrediction))
        return scores | {"illegal": illegal / max(words, 1)}

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> tuple[Self, tuple[int, ...]]:
        """Return the task whose labels are these in any order, with the scheme of their spelling."""
        types, scheme, order = scheme_of(labels)
        return cls(types=types, scheme=scheme), order

    def export_metadata(self) -> dict[str, Any]:
        return {"labels": self.labels}

    def _chain(self) -> Chain:
        """Return the transition scores without learnt ones; with `legal` illegal transitions are excluded."""
        from osbert.models.heads.chain import Chain

        free = Chain.free(len(self.labels))
        return free.legal(self.labels, lambda before, tag: follows(before, tag, self.scheme)) if self.legal else free

    def _targets(self, record: TaggedText, run: PieceRun, parts: Sequence[TextWindow]) -> Iterator[Target | None]:
        """Yield the labels of the tokens that count in each window, None if there are none."""
        known = {label: index for index, label in enumerate(self.labels)}
        tags = write_tags(record.label, len(record.words), self.scheme)
        labels = np.array([known[tag] for tag in tags], np.int64)
        numbers = np.cumsum(run.words) - 1  # the word of each piece
        for part in parts:
            positions = np.arange(part.first, part.last)
            if self.pieces == "first":
                positions = positions[run.words[positions]]
            if self.decoder == "crf":
                positions = positions[uncut(numbers[positions], record.label)]
            if not len(positions):
                yield None
                continue
            token_labels = labels[numbers[positions]]
            if self.decoder == "crf":
                begins = np.isin(numbers[positions], record.sentences)
                begins[0] = True
                # Labels from K on mark the first token of a chain: its label plus K.
                token_labels = token_labels + begins * len(known)
            yield Target(labels=token_labels, index=positions + 1 - part.start)

    def _decode_with_chain(
        self, chain: Chain, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> EntityPrediction:
        assert isinstance(record, TaggedText)
        scores = word_scores(outputs, examples, overlap=self.overlap, pieces=self.pieces)
        spans: list[EntitySpan] = []
        probabilities: list[float] = []
        illegal = 0
        for first, last in record.parts:
            if first == last:
                continue
            path = chain.best(scores[first:last])
            tags = [self.labels[index] for index in path.tolist()]
            part_spans = read_tags(tags, words=self.scheme == "words")
            probabilities += chain.probabilities(
                scores[first:last], path, [(span.start, span.end) for span in part_spans]
            )
            illegal += sum(tag != other for tag, other in zip(tags, write_tags(part_spans, len(tags), self.scheme)))
            spans += [EntitySpan(start + first, end + first, type_) for start, end, type_ in part_spans]
        value = tuple(record.entity(span, probability) for span, probability in zip(spans, probabilities))
        return EntityPrediction(value=value, words=tuple(spans), illegal=illegal)
