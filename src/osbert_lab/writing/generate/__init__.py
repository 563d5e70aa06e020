"""generate: generates a text from a text, piece by piece: summaries, translations, questions, answers (ROUGE, BLEU)."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from osbert.data.example import Booleans, Example
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.errors import Problems as Problems
from osbert.errors import UserError
from osbert.models.forms import Writing
from osbert.reading.columns import Header, headings
from osbert.reading.splits import hold_out
from osbert.reading.table import Origin, Row, Table
from osbert.tasks import Description, Prediction, Record, Source, Task
from osbert.tasks.contract import TrainedSentences, no_sentences
from osbert.tasks.edges import Edge
from osbert.tasks.record import RecordOutcome
from osbert.tasks.tables import TableDescription, TableSource, TableTask, UnlabelledRow, cell_texts, require_cells
from osbert_lab.writing.generate.scores import TextScore, text_score, text_scores
from osbert_lab.writing.generate.sequences import Sight, SourceLayout, UnifiedLayout
from osbert_lab.writing.settings import Generation, GenerationOptions

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Learner
    from osbert.models.sizes import Sizes
    from osbert.text.file_tokenizer import AnyTokenizer


_INSTRUCTED = ("instruction", "input", "inputs", "context")
"""Names of a column with an instruction, and of one with what it is about."""


@dataclass(frozen=True, kw_only=True)
class SourceColumns:
    """The columns in use: one or several of the source, and that of the target, "" if there is none."""

    source: tuple[str, ...]
    label: str = ""

    def describe(self, *, labelled: bool = True) -> str:
        """Describe the columns. Without `labelled`, mention that the target is not read."""
        sources = f"source from {' and '.join(map(repr, self.source))}"
        target = f"target from '{self.label}'" if labelled else f"the targets in '{self.label}' are not read"
        return f"{sources}, {target if self.label else 'no target'}"


def choose(columns: Sequence[str], *, user_columns: SourceColumns, path: str, labelled: bool) -> SourceColumns:
    """Return the columns to use: the given ones (`user_columns`), else those with usual names; of two columns the other
    one. An instruction is read with its input (Alpaca) or context (Dolly).

    Raises UserError listing the columns if a given one is absent or none can be detected.
    """
    header = Header(columns, path)
    for name in user_columns.source:
        header.require(name, option="text")
    header.require(user_columns.label if labelled else "", option="target")
    target = header.find("target", user_columns.label, but=user_columns.source)
    instruction = [header.by_name[name] for name in _INSTRUCTED if name in header.by_name][:2]
    source = user_columns.source or tuple(filter(None, [header.find("source", but=(target,))]))
    if not user_columns.source and _INSTRUCTED[0] in header.by_name and target not in instruction:
        source = tuple(instruction)
    # A single remaining column is the source or the target, whichever is missing.
    others = [name for name in columns if name not in (*source, target)]
    if len(others) == 1 and (not source or (labelled and not target)):
        source, target = (source, others[0]) if source else ((others[0],), target)
    if not source:
        raise header.missing("source", ": give --text NAME (or NAME,NAME), the column that is read.")
    if labelled and not target:
        raise header.missing("target", ": give --target NAME, the column with the text to write.")
    if labelled and target in source:
        raise UserError(
            f"{path}: '{target}' is both source and target, and the model would learn to copy it: change "
            "--text or --target.",
            code="options-exclude-each-other",
        )
    return SourceColumns(source=source, label=target)


def record_of(row: Row, columns: SourceColumns, *, path: str) -> Record:
    """Return the source and the references of a row. Raises ValueError with the reason if they are unusable.

    A list in a source cell is joined with spaces. A list in a target cell holds several references of one source, all
    of which are used for training.
    """
    require_cells(row, columns.source, labels=[columns.label])
    texts = tuple(" ".join(cell_texts(row, name)) for name in columns.source)
    references: tuple[str, ...] | None = None
    if columns.label:
        references = tuple(text for text in cell_texts(row, columns.label) if text.strip())
        if not references:
            raise UnlabelledRow("the target is empty")
    return Record(number=0, texts=texts, label=references, path=path, line=row.line)


TargetPrediction = Literal["auto", "next", "masked", "shifted"]


class PairedTextSource(TableSource):
    """Reads tables with sources and targets."""

    task: Generate
    indivisible: ClassVar[str] = "there is one row"
    redetected = ("text", "target")

    @property
    def named(self) -> tuple[str, ...]:
        """Return the columns that the user named, and the usual names."""
        return (*self.task.text, self.task.target, *headings("source", "target"))

    def columns(self, table: Table, *, labelled: bool) -> SourceColumns:
        """Return the columns to read; without `labelled` the target may be absent."""
        user_columns = SourceColumns(source=self.task.text, label=self.task.target)
        return choose(table.columns, user_columns=user_columns, path=table.called, labelled=labelled)

    def record(self, row: Row, columns: SourceColumns, *, path: str = "") -> Record:
        """Return the record of a row. Raises ValueError with the reason if its texts are unusable."""
        return record_of(row, columns, path=path)

    def describe_empty(self, record: Record, *, labelled: bool) -> str:
        """Describe an empty text, "" if the row is usable: an instruction need not have an input (Alpaca)."""
        instructed = bool(self.task.text) and self.task.text[0].strip().lower() == _INSTRUCTED[0]
        optional = instructed and bool(record.texts[0].strip())
        return super().describe_empty(record, labelled=labelled and not optional)

    def resolve(self) -> Task:
        """Return the task with the detected columns of its training file."""
        columns = self.columns(self.open(self.file("train")), labelled=True)
        return self.attach_to(dataclasses.replace(self.task, text=columns.source, target=columns.label))

    def fit_columns(self, origin: Origin, before: Any, given: Collection[str]) -> dict[str, Any]:
        """Return the settings that name columns, empty where the table lacks these."""
        # The prompt of several columns has their names, which therefore stay.
        return super().fit_columns(origin, before, {*given, "text"} if len(before.text) > 1 else given)

    def mark_held_out(self, records: Sequence[Record]) -> Booleans:
        """Return which of the training rows (n,) are held out: a random fraction."""
        return hold_out([None] * len(records), self.task.held_out, stratified=False)


@dataclass(frozen=True, kw_only=True)
class WrittenText(Prediction):
    """The text generated for a source: `value`; the other fields are as in `Generation`."""

    pieces: int
    log_probability: float
    ended: Literal["end", "most"]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, ready for JSON; the text comes first, as "prediction"."""
        return {
            "prediction": self.value,
            "pieces": self.pieces,
            "log_probability": self.log_probability,
            "ended": self.ended,
            "truncated": self.truncated,
        }


class WritingDescription(TableDescription):
    """Describes sources and targets."""

    task: Generate

    def describe_split(self, records: Sequence[Record]) -> str:
        """Describe the number of rows of a split, and of targets if rows have several."""
        targets = sum(len(references(record)) for record in records if record.label is not None)
        more = f" ({targets:,} targets)" if targets > len(records) else ""
        return f"{len(records):,} rows{more}"

    @property
    def unread(self) -> str:
        """Describe the position of pieces that are not used: of a source, or of a target after `most`."""
        return "at the end of a source or target"

    def bound(self, length: int) -> str:
        """Describe how long a source and a target may be without truncation."""
        return f"{length} tokens, or their targets than {self.task.most:,} pieces"

    @property
    def longer(self) -> str:
        """Describe the settings that allow longer sources and targets."""
        return "Of a source --length N reads more, up to the model's own; of a target --most N."

    def limit(self, packer: Packer) -> str:
        """Describe how much of a source is used."""
        left = "" if self.task.sight == "source" else ", the length that the targets leave"
        return f"{self.task.sequence_layout(packer).room:,} pieces{left}"


@dataclass(frozen=True, kw_only=True)
class Generate(TableTask):
    """Sources with their target texts; if a source has several targets, all of them are used for training.

    A row has the source in one or several columns, and the target in another; a cell may hold a list. Source and target
    form one sequence; the loss covers the pieces of the target, each predicted at the token before it. In an
    encoder-decoder the encoder reads the source and the decoder generates the target.
    """

    form = "text"
    edge = Edge(kind="generate", call="generate")
    reader: ClassVar[type[Source]] = PairedTextSource
    describer: ClassVar[type[Description]] = WritingDescription

    prefix: str = ""
    """Text before every source, such as "summarize: " (T5, Raffel et al. 2020, section 2.4)."""
    text: tuple[str, ...] = ()
    """The column with the source, detected by its name if not given; or several, whose texts are then prefixed with the
    column's name and a colon."""
    target: str = ""
    """The column with the target; detected by its name if not given."""
    sight: Sight = "auto"
    """Attention of source tokens: left_to_right, to tokens before; prefix, to the whole source (UniLM, Dong et al.
    2019, section 2.3); source, an encoder reads it and a decoder generates; auto, as the model was pretrained."""
    prediction: TargetPrediction = "auto"
    """Where a piece of a target is predicted: next, at the token before it; masked, at its [MASK], or shifted, as next,
    both in the segments of a unified model (UniLM); auto, as the model was pretrained."""
    masked: float = 0.7
    """With masked: the fraction of a target that is masked, sampled anew in each epoch (section 2.4)."""
    label_smoothing: float = 0.0
    """Probability mass that the loss distributes evenly over all pieces; UniLM: 0.1."""
    most: int = 0
    """Most pieces of a target, its end included; the source has the remaining length. 0 for 64, or half of the model's
    limit if that is less."""
    least: int = 1
    """Fewest pieces of a generated text; 0 if it may be empty."""
    beams: int = 1
    """Beams of beam search; 1: greedy decoding."""
    length_penalty: float = 0.0
    """With beams: the log-probability is divided by ((5 + pieces) / 6) to this power."""
    no_repeat: int = 0
    """Runs of this many pieces are never repeated; 0 for no limit."""
    kept_by: Literal["rougeL", "bleu", "exact_match"] = "rougeL"
    """The metric that selects the best epoch."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings of generation that are out of range or contradict each other."""
        super().__post_init__()
        if not 0 < self.masked <= 1:
            raise ValueError(f"masked is a share above 0, and 1 at most, not {self.masked:g}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, not {self.label_smoothing:g}")
        self.writing.require_possible()

    @property
    def writing(self) -> GenerationOptions:
        """Return the options of generation, from the settings."""
        return GenerationOptions(
            most=self.most,
            least=self.least,
            beams=self.beams,
            length_penalty=self.length_penalty,
            no_repeat=self.no_repeat,
        )

    def writing_by(self, options: GenerationOptions) -> Self:
        """Return the task with other options of generation; sampling options are no settings of it."""
        names = ("most", "least", "beams", "length_penalty", "no_repeat")
        return dataclasses.replace(self, **{name: getattr(options, name) for name in names})

    def write(self, learner: Learner, tokenizer: AnyTokenizer, prompts: Sequence[Example]) -> list[Generation]:
        """Return the text generated after each prompt, in order."""
        from osbert_lab.writing.decoders import decoder_of
        from osbert_lab.writing.prompt_writer import PromptWriter

        head: Any = learner.heads[self.name]
        writer = PromptWriter.of(learner, decoder_of(learner.backbone, head), head, tokenizer, self.writing)
        assert writer is not None  # else `head` would have refused the model
        return writer.write(prompts)

    @property
    def criterion(self) -> str:
        """Return the score by which the best epoch is kept."""
        return self.kept_by

    @property
    def row_score(self) -> str:  # type: ignore[override]
        """Return the metric of single rows: exact match, or ROUGE-L, because BLEU is defined on many texts."""
        return "exact match" if self.kept_by == "exact_match" else "ROUGE-L"

    @property
    def request_fields(self) -> tuple[str, ...]:
        """Return the names of the texts of a source: "text", or its columns."""
        return self.text if len(self.text) > 1 else ("text",)

    @property
    def sample(self) -> str:  # type: ignore[override]
        """Return sample arguments of `osbert predict RUN`: one for each text of a source."""
        if len(self.request_fields) == 1:
            return Task.sample
        # Quotes and other signs of a column's name would mean something to the shell.
        names = (re.sub(r"[^\w .-]", "", name) for name in self.request_fields)
        return " ".join(f'"{name} of yours"' for name in names)

    @property
    def writes(self) -> Writing | None:
        """Return where a unified model predicts pieces; None for other models."""
        return self.prediction if self.prediction in ("masked", "shifted") else None

    def for_model(
        self,
        sizes: Sizes,
        tokenizer: AnyTokenizer,
        *,
        writes: Writing | None = None,
        read_sentences: Callable[[], TrainedSentences | None] = no_sentences,
    ) -> Self:
        """Return the task with `sight` and `most` resolved for a model."""
        # `writes` is how the model was pretrained.
        prediction = (writes or "next") if self.prediction == "auto" else self.prediction
        if prediction != "next" and (sizes.has_decoder or sizes.causal):
            what = "an encoder with a decoder" if sizes.has_decoder else "one that reads from left to right"
            raise UserError(
                f"--prediction {prediction} needs an encoder that sees the whole source, but the model is {what}. "
                "Remove --prediction.",
                code="invalid-setting",
            )
        if prediction != "masked" and self.masked != Generate.masked:
            raise UserError(
                f"--masked {self.masked:g} has no effect: with --prediction {prediction} no piece of a target is "
                "masked. Remove --masked.",
                code="invalid-setting",
            )
        sight = self.sight
        if sight == "auto":
            sight = "source" if sizes.has_decoder else "left_to_right" if sizes.causal else "prefix"
        if (sight == "source") != sizes.has_decoder:
            what = "an encoder with a decoder, which needs it" if sizes.has_decoder else "no encoder with a decoder"
            raise UserError(
                f"--sight {sight} cannot be used: the model is {what}. Remove --sight.", code="invalid-setting"
            )
        # The target can have no more pieces than the shorter of the two limits leaves.
        most = self.writing.fitting(min(self.length, sizes.length)).most
        self.require_room(tokenizer, most)
        return dataclasses.replace(self, sight=sight, most=most, prediction=prediction)

    def require_room(self, tokenizer: AnyTokenizer, most: int) -> None:
        """Raise UserError if a target that is known before training has more than `most` pieces; by default none is."""

    def names(self, record: Record) -> tuple[str, ...]:
        """Return no names, because generated texts are not classes."""
        return ()

    def record_of(self, texts: Sequence[str]) -> Record:
        """Return the record of the texts of one source. Raises UserError if their number differs from training."""
        if len(texts) != (count := len(self.request_fields)):
            names = ", ".join(self.request_fields)
            raise UserError(
                f"The run writes for {f'{count} texts ({names})' if count > 1 else 'one text'}, not {len(texts)}.",
                code="wrong-number-of-texts",
            )
        return super().record_of(texts)

    def source_text(self, record: Record) -> str:
        """Return the source as one text, with prefix and names of columns; without those that are empty.

        >>> task = Generate(prefix="ask ", text=("answer", "context"))
        >>> task.source_text(task.record_of(["Paris", "Paris is in France."]))
        'ask answer: Paris context: Paris is in France.'
        """
        if len(record.texts) == 1:
            return self.prefix + record.texts[0]
        # Without any text all names stay: they are the opening of a prompt.
        blank, named = not any(map(str.strip, record.texts)), zip(self.text, record.texts, strict=True)
        return self.prefix + " ".join(f"{name}: {text}" for name, text in named if blank or text.strip())

    def target_texts(self, record: Record) -> tuple[str, ...]:
        """Return the targets of a labelled record, all of which are used for training."""
        return references(record)

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the source followed by each of its targets, or alone if there is no label."""
        layout = self.sequence_layout(packer)
        source = self.source_text(record)
        if record.label is None:
            return [layout.prompt(source, record=record.number)]
        targets = self.target_texts(record)
        several = [layout.with_target(source, target, record=record.number) for target in targets]
        if len(several) == 1:
            return several
        # Each target repeats the source, so that the pieces cut from it would be counted for every target.
        cut = layout.prompt(source).truncated  # of the source, which counts once
        return [
            several[0],
            *(dataclasses.replace(example, truncated=example.truncated - cut) for example in several[1:]),
        ]

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return sequences with the labels of a unified model; those of other models are labelled already."""
        return self.sequence_layout(packer).add_labels(examples, noise, rate=self.masked)

    def sequence_layout(self, packer: Packer) -> SourceLayout | UnifiedLayout:
        """Return the layout of sources and targets in sequences."""
        most = self.writing.fitting(packer.length).most
        if self.writes:
            return UnifiedLayout(packer=packer, most=most, name=self.name, writes=self.writes)
        return SourceLayout(packer=packer, most=most, name=self.name, sight=self.sight)

    def head(self, backbone: Backbone) -> Head:
        """Return the language-model head. Raises UserError if the model cannot generate."""
        from osbert.models.heads.predictions import TextHead

        head = None
        if backbone.embedding is not None:
            # A head is needed to ask the backbone for a decoder; without embeddings there is neither.
            head = TextHead(backbone, target=self.name, prefix=self.sight in ("auto", "prefix"), writes=self.writes)
            head.smoothing = self.label_smoothing
        if head is None or not backbone.writes(head):
            raise UserError(
                "The model cannot generate text: that needs piece embeddings, and attention whose keys can be cached. "
                "Models with recurrent layers, disentangled positions or states by queries have none. Use a different "
                "model.",
                code="unsupported-model",
            )
        return head

    def decode(self, outputs: Sequence[Any], record: Record, examples: Sequence[Example]) -> Prediction:
        """Return the prediction from the Generation of the record's only sequence."""
        [generation] = outputs
        assert isinstance(generation, Generation)
        return WrittenText(
            value=generation.text.strip(),
            pieces=generation.pieces,
            log_probability=generation.log_probability,
            ended=generation.ended,
        )

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the means of ROUGE-1, 2 and L (F1) and of exact match, and the BLEU of all texts, each 0 to 1."""
        return text_scores(
            [score_of(prediction, record) for prediction, record in zip(predictions, records, strict=True)]
        )

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the texts, with the row's score; only exact texts are right or wrong."""
        texts_score = score_of(prediction, record)
        error = 1 - (texts_score.exact_match if self.kept_by == "exact_match" else texts_score.rougeL)
        return RecordOutcome(
            truth=" / ".join(references(record)),
            guess=str(prediction.value),
            score=1 - error,
            right=math.isclose(error, 0) if self.kept_by == "exact_match" else None,
            error=error,
        )


def references(record: Record) -> tuple[str, ...]:
    """Return the reference texts of a record."""
    return record.label if isinstance(record.label, tuple) else (record.label,)


def score_of(prediction: Prediction, record: Record) -> TextScore:
    """Return the scores of the text generated for a record."""
    return text_score(str(prediction.value), references(record))
