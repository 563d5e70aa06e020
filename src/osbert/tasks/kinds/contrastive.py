"""contrastive: text vectors, close for similar texts: pairs, or texts twice with dropout (SimCSE, Gao et al. 2021)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Target
from osbert.data.long_texts import lay_out_texts
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.models.forms import Pooling
from osbert.reading.columns import Header, TextColumns
from osbert.reading.table import Origin, Row, Table
from osbert.tasks import Prediction, Record, Source, Task
from osbert.tasks.edges import Edge
from osbert.tasks.kinds.regress import correlation
from osbert.tasks.tables import default_of
from osbert.tasks.tables.numbers import DecimalMark, NumberSource, ScoredPairs
from osbert.tasks.tables.texts import TextSource, TextTask

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head

BLOCK = 1024
"""Number of rows that are compared with all others together."""
READ = ("text", "pair", "label", "delimiter", "header", "quotes", "encoding", "decimal")
"""The settings for reading a file."""
AUTO = "auto"
"""The value of a prompt that the model decides."""
IN_MEMORY = "rows in memory"
"""The name of scored pairs in memory, in place of a file."""


@dataclass(frozen=True, kw_only=True)
class SimilarityPrediction(Prediction):
    """The similarity of two texts, from -1 to 1: the cosine of their `vectors` (2, D)."""

    vectors: NDArray[np.floating]


class ContrastiveSource(TextSource):
    """Reads texts or pairs of similar texts, without labels; and scored pairs, if the task has some."""

    task: Contrastive
    pairs: Mapping[str, Origin] | None = None
    """The scored pairs, if they are in memory."""

    @property
    def called(self) -> str:
        """Return the name of the data in messages; when a run is scored, that of the pairs."""
        return super().called or self.task.sts

    def columns(self, table: Table, *, labelled: bool) -> TextColumns:
        """Return the columns with the texts; a file with two columns, beside that of negatives, has pairs."""
        negative = self.negative(table)
        names = [name for name in table.columns if name != negative]
        only = len(names) == 2 and not any(self.named)
        try:
            text_columns = super().columns(table, labelled=False)
        except UserError:
            if not only:
                raise
            text_columns = TextColumns(text=names[0])
        if only and not (text_columns.pair or text_columns.label):
            # Prompts and roles depend on the order: a column of queries comes first.
            first = Header(names, table.called).find("query") or text_columns.text
            (other,) = (name for name in names if name != first)
            text_columns = TextColumns(text=first, pair=other)
        if negative and not text_columns.pair:
            raise UserError(
                f"{table.called} has negatives in '{negative}', but no second text like the first: give --pair.",
                code="unknown-column",
            )
        return text_columns

    def negative(self, table: Table) -> str:
        """Return the column with the hard negatives: the one of the setting, or of a usual name; "" if none."""
        if self.task.negative:
            return self.task.negative if self.task.negative in table.columns else ""
        return Header(table.columns, table.called).find("hard negative", but=(self.task.text, self.task.pair))

    def resolve(self) -> Task:
        """Return the task with the columns of its training file. Raises UserError without them, or scored pairs."""
        table = self.open(self.file("train"))
        Header(table.columns, table.called).require(self.task.negative, option="negative")
        columns = self.columns(table, labelled=False)
        if self.task.sts:
            self._describe_scored()
        negative = self.negative(table)
        named = dataclasses.replace(self.task, text=columns.text, pair=columns.pair, negative=negative)
        return self.attach_to(named)

    def findings(self) -> list[str]:
        """Describe the data that were read, and the negatives of a text."""
        table = self.open(self.file("train"))
        columns = self.columns(table, labelled=False)
        kind = "pairs of alike texts" if columns.pair else "texts, each shown twice: dropout makes the difference"
        lines = [
            table.describe(),
            f"{TextColumns(text=columns.text, pair=columns.pair).describe().removesuffix(', no label')}: {kind}",
        ]
        if columns.label:
            lines.append(f"the column '{columns.label}' is not read: every row counts as alike")
        hard = f", and all in '{self.task.negative}'" if self.task.negative else ""
        lines.append(f"a text's negatives are the other texts of its step (--batch), which is one pass{hard}")
        read = {columns.text, columns.pair, columns.label, self.task.negative}
        if unread := [f"'{name}'" for name in table.columns if name not in read]:
            lines.append(f"not read: {', '.join(unread)}")
        if self.task.sts:
            return [*lines, f"scored pairs: {self._describe_scored()}"]
        if "dev" not in self.files():
            lines.append(f"no scored pairs (--sts): {self.task.held_out:.0%} of the rows are held out")
        return lines

    def left_out(self, split: str) -> list[str]:
        """Return nothing: no row is known to be unusable."""
        return []

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data: pairs, which are scored if there is a column with numbers."""
        forms = {name: default_of(type(self.task), name) for name in (*READ, "negative")}
        task = super(TextSource, self).switch_data(data, forms | dict(given))
        source = type(self)(task)
        source.pairs = None if isinstance(data, Path) else data
        path = str(data) if isinstance(data, Path) else IN_MEMORY
        return source.attach_to(dataclasses.replace(source.task, sts=path, data=""))

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the rows of a split; with scored pairs all splits but training consist of these."""
        if not self.task.sts:
            yield from super().records(split, problems)
        elif split != "train":
            yield from self.scored.records(self._split(split), problems)
        else:
            for number, record in enumerate(self.read(self.file("train"), problems, labelled=False)):
                yield dataclasses.replace(record, number=number)

    def is_held_out(self, split: str) -> bool:
        """Return whether the rows of a split are held out; scored pairs are held out of their own training file."""
        return self.scored.is_held_out(self._split(split)) if self.task.sts else super().is_held_out(split)

    def record(self, row: Row, columns: TextColumns, *, path: str = "") -> Record:
        """Return the record of a row of texts, which are similar. Raises ValueError if one of a pair is empty."""
        record = super().record(row, dataclasses.replace(columns, label=""), path=path)
        if len({bool(text.strip()) for text in record.texts}) > 1:
            raise ValueError("one of its two texts is empty")
        negative = row.values.get(self.task.negative, "") if self.task.negative else ""
        texts = (*record.texts, negative) if negative.strip() else record.texts
        return dataclasses.replace(record, texts=texts, label=1.0)

    @cached_property
    def scored(self) -> TextSource:
        """The reader of the scored pairs, with the columns that were named for them."""
        task = self.task
        names = ("decimal",) if task.data or self.given else READ
        return NumberSource(ScoredPairs(data=task.sts, **{name: getattr(task, name) for name in names}), self.pairs)

    def _split(self, split: str) -> str:
        """Return the split of the scored pairs for a split of the task."""
        return split if self.scored.alone is None else "all"

    def _describe_scored(self) -> str:
        """Describe the source of the scored pairs. Raises UserError if it is missing."""
        table = self.scored.open(self.scored.file(self._split("dev")))
        return f"{table.describe()}; {self.scored.columns(table, labelled=True).describe()}"


@dataclass(frozen=True, kw_only=True)
class Contrastive(TextTask):
    """Texts, each encoded twice with different dropout; or pairs of similar texts.

    In a step each first text is scored against the second texts of all records; the others are its negatives (in-batch
    negatives), and so are the hard negatives of all records. So a step is one pass, whatever micro_tokens says, and
    `batch` is part of the task. Labels are ignored: all rows count as similar pairs.
    """

    form = "vectors"
    edge = Edge(kind="encoder")
    numbers: ClassVar[bool] = True
    reader: ClassVar[type[Source]] = ContrastiveSource
    batching: ClassVar[Literal["sequences", "records", "step"]] = "step"
    sample: ClassVar[str] = '"a text of yours" "and another one"'
    row_score: ClassVar[str] = "minus the mean distance from the score"

    length: int = 128
    """Most tokens in a text, [CLS] and [SEP] included; at most the model's limit."""
    negative: str = ""
    """The column with a text that is not like the first although it may seem so (a hard negative); detected by its
    name. Only pairs have one, and a cell may be empty."""
    sts: str = ""
    """A file of pairs with a score of similarity, or GLUE's folder STS-B. The Spearman correlation of these scores with
    the cosines is reported before training and after every epoch, and selects the best epoch."""
    decimal: DecimalMark = "auto"
    """The decimal mark of these scores: point or comma; detected, but a comma only if all fractions have it."""
    pooling: Pooling = "cls"
    """Pooling of a text's hidden states to its vector: cls in SimCSE, mean in Sentence-BERT."""
    temperature: float = 0.05
    """Divisor of the cosines before the softmax."""
    query_prompt: str = AUTO
    """What is put before each first text, such as "query: ". auto: the model's prompt for queries; of single texts its
    default prompt."""
    document_prompt: str = AUTO
    """What is put before each second text and each negative. auto: the model's prompt for documents; of single texts
    its default prompt."""

    def __post_init__(self) -> None:
        """Raise ValueError for a temperature that is not positive, and for windows."""
        super().__post_init__()
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, not {self.temperature}")
        if self.long == "window":
            raise ValueError("long = window would give a text several vectors: give truncate, head+tail or error")

    @property
    def request_fields(self) -> tuple[str, ...]:
        """Return a single field, because a vector belongs to one text."""
        return ("text",)

    @property
    def criterion(self) -> str:
        """Return Spearman's correlation if there are scored pairs, else the retrieval accuracy."""
        return "spearman" if self.sts else "accuracy"

    @property
    def by_rows(self) -> bool:  # type: ignore[override]
        """Return whether there are scored pairs; else texts are searched among all rows, easier among fewer."""
        return bool(self.sts)

    def record_of(self, texts: Sequence[str]) -> Record:
        """Return the record of two texts; UserError for another number."""
        if len(texts) != 2:
            raise UserError(f"The run compares two texts: give two, not {len(texts)}.", code="wrong-number-of-texts")
        return Record(number=0, texts=tuple(texts))

    # The model.

    def with_prompts(self, prompt_of: Callable[[str | None], str]) -> Self:
        """Return the task with the model's prompts in place of auto; single texts have no role."""
        model_prompts: dict[str, Any] = {
            f"{role}_prompt": prompt_of(role if self.pair else None)
            for role in ("query", "document")
            if getattr(self, f"{role}_prompt") == AUTO
        }
        return dataclasses.replace(self, **model_prompts)

    @property
    def prompts(self) -> Mapping[str, str]:
        """Return the prompts of both roles, {} if there are none. Runs of earlier versions have none."""
        settings = {"query": self.query_prompt, "document": self.document_prompt}
        prompts = {role: "" if prompt == AUTO else prompt for role, prompt in settings.items()}
        return prompts if any(prompts.values()) else {}

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the two texts of a record as sequences, a single text twice; the first has the target.

        In training a hard negative is a third sequence, whose target of weight 0 names it.
        """
        if len(record.texts) > 2 + bool(self.negative):
            raise UserError(
                f"{record.place}: {self.name} reads one text or two, not {len(record.texts)}.",
                code="wrong-number-of-texts",
            )
        query, document = (self.prompts.get(role, "") for role in ("query", "document"))
        first_text, *others = record.texts
        examples = [self._sequence(first_text, packer, record.number, query)]
        examples += [self._sequence(text, packer, record.number, document) for text in others or [first_text]]
        first, second, *negatives = examples
        if record.label is None:
            return [first, second]
        return [self._aimed(first, 0), second, *(self._aimed(negative, 1) for negative in negatives)]

    def _aimed(self, example: Example, label: int) -> Example:
        weights = np.array([1.0 - label], np.float32) if self.negative else None
        target = Target(labels=np.array([label], np.int64), weights=weights)
        return dataclasses.replace(example, targets={self.name: target})

    def _sequence(self, text: str, packer: Packer, number: int, prompt: str) -> Example:
        (example,) = lay_out_texts([text], packer, prompt=prompt, long=self.long, overlap=self.overlap, record=number)
        return example

    def head(self, backbone: Backbone) -> Head:
        """Return the head. Raises UserError for single texts without dropout, whose two vectors would be equal."""
        from osbert.models.heads.contrastive import ContrastiveHead

        if self.text and not self.pair and not any(backbone.architecture.dropouts):
            raise UserError(
                "Without dropout both vectors of a text are equal: remove --dropout 0, or give pairs.",
                code="options-exclude-each-other",
            )
        return ContrastiveHead(backbone, target=self.name, pooling=self.pooling, temperature=self.temperature)

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> SimilarityPrediction:
        """Return the cosine of the two vectors."""
        vectors = np.stack([outputs[0], outputs[-1]]).astype(np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return SimilarityPrediction(value=float(vectors[0] @ vectors[1]), vectors=vectors)

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the correlations with the scores; without scored pairs the retrieval accuracy of the pairs."""
        if not self.sts:
            return {
                "accuracy": retrieval_accuracy(
                    [prediction.vectors for prediction in predictions if isinstance(prediction, SimilarityPrediction)]
                )
            }
        from scipy.stats import rankdata

        cosines = np.array([prediction.value for prediction in predictions], np.float64)
        true = np.array([record.label for record in records], np.float64)
        return {"spearman": correlation(rankdata(cosines), rankdata(true)), "pearson": correlation(cosines, true)}


def retrieval_accuracy(vectors: Sequence[NDArray[np.floating]]) -> float:
    """Return the fraction of n pairs of vectors (2, D) whose first vector is closest to its own second vector."""
    first, second = (np.stack([pair[side] for pair in vectors]) for side in (0, 1))
    pair_cosines = (first * second).sum(axis=1)
    hits = 0
    for start in range(0, len(first), BLOCK):
        best = (first[start : start + BLOCK] @ second.T).max(axis=1)
        # Blocks bound the memory of the n x n cosines; 1e-9 allows for rounding.
        hits += int((pair_cosines[start : start + BLOCK] >= best - 1e-9).sum())
    return hits / len(first)
