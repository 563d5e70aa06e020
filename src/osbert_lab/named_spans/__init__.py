"""spans: spans of types that are given as text with the input, seen in training or not (GLiNER, Zaratiana et al. 2024).

Types and text go through the encoder together, in one pass. A bi-encoder would compute each type once for all texts,
but its types and texts could not attend to each other; and most published models have the one pass, so that one head
serves for training and for opening them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Target
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.reading.tagged.schemes import EntitySpan, entity_scores
from osbert.tasks import Description, Prediction, Record, Source
from osbert.tasks.contract import TrainedSentences, no_sentences
from osbert.tasks.edges import Edge
from osbert.tasks.kinds.tag.passages import EntityPrediction, EntityTask, TaggedText, cut_words, only_entities
from osbert.tasks.tables.classes import list_counts
from osbert.terminal import format_count
from osbert.text.words import Split, ranges
from osbert_lab.named_spans.decoding import LOWEST_THRESHOLD, best_threshold, choose_spans, likely_spans
from osbert_lab.named_spans.layout import Markers, PromptLayout, SpanWindow, choose_types
from osbert_lab.named_spans.source import NamedSpansSource, NamedSpansText, parse_names, without_spaces

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head
    from osbert.models.forms import Writing
    from osbert.models.sizes import Sizes
    from osbert.tasks.calibration import Calibration
    from osbert.text.file_tokenizer import AnyTokenizer

HEAD_SETTINGS = ("width", "hidden", "recurrent", "pooled", "spaced", "entity_id", "separator_id")
"""Settings that the weights of a model need."""


class SpansDescription(Description):
    """Describes texts with spans."""

    task: NamedSpans

    def describe_split(self, records: Sequence[Record]) -> str:
        """Describe the numbers of texts and spans of a split."""
        spans = [span for record in records for span in record.label or ()]
        counts = Counter(span.type for span in spans)
        wide = sum(span.end - span.start > self.task.width for span in spans)
        remark = f"; {wide:,} longer than {self.task.width} words are not learnt (--width)" if wide else ""
        if crowded := 0 if self.task.nested else sum(map(count_crowded, records)):
            remark += f"; {crowded:,} overlap a longer one (--nested predicts those that stand within it)"
        sizes = f"{format_count(len(records), 'text')}, {format_count(len(spans), 'span')}"
        return f"{sizes} ({list_counts(counts)}){remark}"

    def only_answer(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> str:
        """Return an answer also if no true span is found."""
        return only_entities(predictions, records, words=False) or super().only_answer(predictions, records)


def count_crowded(record: Record) -> int:
    """Return how many spans of a record overlap a longer one, or one of the same words: not both can be found."""
    spans = sorted(record.label or (), key=lambda span: span.start - span.end)
    return sum(
        any(span.start < other.end and other.start < span.end for other in spans[:index])
        for index, span in enumerate(spans)
    )


@dataclass(frozen=True, kw_only=True)
class NamedSpans(EntityTask):
    """Spans of types given by name with the input. Reads tagged text as `tag` does, or a folder of several data sets.

    A run also finds types that training has not seen (--labels of predict). Long texts are read in windows.
    """

    component = "spans"
    form = "tokens"
    edge = Edge(kind="tag", call="tag")
    reader: ClassVar[type[Source]] = NamedSpansSource
    describer: ClassVar[type[Description]] = SpansDescription
    row_score: ClassVar[str] = "texts with all spans right"
    head_settings: ClassVar[tuple[str, ...]] = HEAD_SETTINGS
    context: ClassVar[str] = "sentence"
    scheme: ClassVar[str] = "bio"

    types: tuple[str, ...] = ()
    """The types that are asked for where none are given, learnt from the training rows if not given."""
    descriptions: tuple[str, ...] = ()
    """What the model reads for each of the types; "" for its name."""
    type_names: tuple[str, ...] = ()
    """Names for tags of the data, as PER=person. Other tags get a usual name (LOC: location), or their own words."""
    width: int = 12
    """Most words of a span."""
    threshold: float = 0.0
    """Probability above which a span is predicted; 0: the one with the highest F1 on the development texts."""
    nested: bool = False
    """Predict spans within other spans, too."""
    most_types: int = 30
    """Most types that are asked for in a pass through the model; more take several. 0 for as many as fit."""
    overlap: int = 128
    """Overlap of two windows of a long text in pieces, at most half a window."""
    split: Split = "words"
    """The unit of words if a file does not define it: words, by spaces and punctuation; hyphenated, with words like
    well-known as one; or characters, for Chinese."""
    text: str = ""
    """The name of the text in JSON lines, or in a table to predict; detected by its name if not given."""
    column: int = 0
    """The tags' column in a file of columns, counted from 1; 0 for the last one."""
    encoding: str = ""
    """The file's encoding, such as gb18030; by default UTF-8 or that of its byte order mark."""
    held_out: float = 0.1
    """Fraction of the training texts held out for development if there is no development file."""
    hidden: int = 0
    """Width of the layers behind the encoder; 0 for that of the encoder."""
    recurrent: bool = False
    """Put a bidirectional LSTM over the words, as published models have."""
    pooled: bool = True
    """Read a type by the mean of its marker's state and its pieces', not as published models by its marker's alone."""
    spaced: bool = True
    """Read a word with the space before it, if the tokenizer has such pieces; published models read each word alone."""
    entity_id: int = -1
    """The piece before each type, as its id; -1 for the mask, which pretraining has taught to stand for a meaning."""
    separator_id: int = -1
    """The piece between types and text, as its id; -1 for what stands between two texts."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings out of range."""
        super().__post_init__()
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be a fraction between 0 and 1, not {self.held_out}")
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must be a probability from 0 up to 1, not {self.threshold}")
        for name, least in (("width", 1), ("overlap", 0), ("most_types", 0), ("hidden", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.descriptions and len(self.descriptions) != len(self.types):
            raise ValueError(f"there are {len(self.descriptions)} descriptions of {len(self.types)} types")
        parse_names(self.type_names)

    @property
    def tag_names(self) -> dict[str, str]:
        """Return the names that the user gives to tags."""
        return parse_names(self.type_names)

    # The data.

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        """Report a split without any span. Types that training has not seen are fine."""
        labelled = [record for record in records if record.label is not None]
        untyped = [record for record in labelled if not getattr(record, "types", ())]  # of a data set without any span
        if untyped or (labelled and not any(record.label for record in labelled)):
            problems.add(
                f"{(untyped or labelled)[0].path}: no text has a span (every tag is O): there is nothing to learn or "
                "score. Give texts that have some.",
                code="nothing-to-learn",
            )

    def record_of(self, texts: Sequence[str]) -> NamedSpansText:
        """Return the record of one text."""
        if len(texts) != 1:
            raise UserError(f"{self.name} reads one text at a time, not {len(texts)}.", code="wrong-number-of-texts")
        return NamedSpansText(number=0, texts=tuple(texts), words=tuple(ranges(texts[0], self.split)))

    def for_labels(self, labels: Sequence[tuple[str, str]], *, several: bool = False) -> Self:
        """Return the task that asks for these types; `several`: spans may be nested."""
        return dataclasses.replace(
            self,
            types=tuple(name for name, _ in labels),
            descriptions=tuple(text for _, text in labels),
            nested=self.nested or several,
        )

    def label_scorer(self) -> type[Any]:
        from osbert_lab.named_spans.scorer import NamedSpansScorer  # after this module

        return NamedSpansScorer

    # The model.

    def for_model(
        self,
        sizes: Sizes,
        tokenizer: AnyTokenizer,
        *,
        writes: Writing | None = None,
        read_sentences: Callable[[], TrainedSentences | None] = no_sentences,
    ) -> Self:
        """Return the task with the width of its layers, and the ids of its markers."""
        markers = Markers.of(tokenizer, self.entity_id, self.separator_id)
        return dataclasses.replace(self, hidden=self.hidden or sizes.width, entity_id=markers.entity)

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the sequences of a text: its windows, for each group of types.

        Raises UserError if there is no type to ask for.
        """
        assert isinstance(record, TaggedText)
        layout = self._layout(packer)
        types, texts = self._asked(record)
        if not types:
            raise UserError(
                "This run has no types of its own: give labels to look for, such as person,city.",
                code="missing-value",
            )
        run = cut_words(record if self.spaced else without_spaces(record), packer.tokenizer)
        windows = layout.windows(texts, run, record=record.number)
        if record.label is None:
            return list(windows)
        targets = (self._target(window, record.label, types) for window in windows)
        return [
            dataclasses.replace(window, targets={self.name: target}) if target else window
            for window, target in zip(windows, targets)
        ]

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the sequence with some of its types, in random order: the types that it lacks are sampled."""
        target = example.targets.get(self.name)
        if target is None or target.index is None:
            return example
        changed, labels, index = choose_types(
            example,
            target.labels.astype(np.int64),
            target.index.astype(np.int64),
            markers=self._layout(packer).markers,
            width=self.width,
            rng=rng,
        )
        return dataclasses.replace(changed, targets={self.name: Target(labels=labels, index=index)})

    def head(self, backbone: Backbone) -> Head:
        """Return the head that scores spans by types."""
        from osbert_lab.named_spans.head import NamedSpanHead

        return NamedSpanHead(
            backbone,
            target=self.name,
            width=self.width,
            hidden=self.hidden or backbone.architecture.width,
            recurrent=self.recurrent,
            marker=self.entity_id,
            pooled=self.pooled,
        )

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> EntityPrediction:
        """Return the likeliest spans that do not overlap, or with `nested` do not cross."""
        assert isinstance(record, TaggedText)
        spans = likely_spans(
            outputs, examples, words=len(record.words), width=self.width, threshold=self.threshold or LOWEST_THRESHOLD
        )
        types, _ = self._asked(record)
        chosen = choose_spans(spans, nested=self.nested)
        words = tuple(EntitySpan(span.start, span.end, types[span.type]) for span in chosen)
        value = tuple(record.entity(span, scored.probability) for span, scored in zip(words, chosen))
        return EntityPrediction(value=value, words=words)

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return precision, recall and F1, as `tag` does: a span counts if its words and its type are right."""
        types = dict.fromkeys([*self.types, *(span.type for record in records for span in record.label or ())])
        return entity_scores(
            [prediction.comparable for prediction in predictions], [record.label for record in records], [*types]
        )

    def tune(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Self, Calibration | None]:
        """Return the task with the threshold that gives these texts the highest F1, unless one is set."""
        return dataclasses.replace(self, threshold=self._tuned_threshold(predictions, records)), None

    def at_best(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[Prediction]:
        """Return the predictions at the tuned threshold."""
        threshold = self._tuned_threshold(predictions, records)
        return [prediction.above(threshold)[0] for prediction in predictions]

    # The results.

    def export_metadata(self) -> dict[str, Any]:
        """Return the types."""
        return {"labels": self.types}

    def _tuned_threshold(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> float:
        if self.threshold:
            return self.threshold
        scored = [
            (entity.probability, span in {*record.label})
            for prediction, record in zip(predictions, records, strict=True)
            if isinstance(prediction, EntityPrediction)
            for entity, span in zip(prediction.value, prediction.words, strict=True)
        ]
        return best_threshold(scored, true=sum(len(record.label) for record in records))

    def _layout(self, packer: Packer) -> PromptLayout:
        return PromptLayout(
            packer=packer,
            markers=Markers.of(packer.tokenizer, self.entity_id, self.separator_id),
            most_types=self.most_types,
            width=self.width,
            overlap=self.overlap,
        )

    def _asked(self, record: Record) -> tuple[Sequence[str], Sequence[str]]:
        """Return the types that are asked for in a text, and what the model reads for each."""
        if types := getattr(record, "types", ()):
            known = dict(zip(self.types, self.descriptions))
            return types, [known.get(type_) or type_ for type_ in types]
        texts = self.descriptions or self.types
        return self.types, [text or type_ for text, type_ in zip(texts, self.types)]

    def _target(self, window: SpanWindow, spans: Sequence[EntitySpan], types: Sequence[str]) -> Target | None:
        """Return -1 for each word of a window, and the type and width of each span that is whole in it."""
        tokens = np.flatnonzero(window.words)
        indices = {type_: index for index, type_ in enumerate(types[window.first_type :][: window.types])}
        labels, index = [-1] * len(tokens), tokens.tolist()
        for start, end, type_ in spans:
            first = start - window.first_word
            if type_ in indices and first >= 0 and first + end - start <= len(tokens) and end - start <= self.width:
                labels.append(indices[type_] * self.width + end - start - 1)
                index.append(int(tokens[first]))
        return Target(labels=np.array(labels, np.int64), index=np.array(index, np.int64)) if index else None
