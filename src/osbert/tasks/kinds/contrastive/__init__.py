"""contrastive: text vectors, close for alike texts: of pairs, negatives, scores and judgements, or of texts alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example, Target
from osbert.data.long_texts import lay_out_texts
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.models.forms import Distillation, VectorKind, split_pooling, vector_kind
from osbert.reading.columns import AlikeColumns, AlikeRows, Header, TextColumns, choose_alike, is_label
from osbert.reading.splits import hold_out
from osbert.reading.table import Origin, Row, Table
from osbert.tasks import Description, Prediction, Record, Source, Task
from osbert.tasks.contract import TrainedSentences, no_sentences
from osbert.tasks.edges import Edge
from osbert.tasks.kinds.contrastive.rows import alike_texts, join_judged, split_others
from osbert.tasks.kinds.contrastive.token_vectors import (
    AUTO,
    MARKERS,
    LateInteractionTask,
    compare_texts,
    stack_texts,
)
from osbert.tasks.kinds.regress import correlation
from osbert.tasks.record import RecordOutcome
from osbert.tasks.tables import READING, TableDescription, listed_texts
from osbert.tasks.tables.numbers import DecimalMark, NumberSource, ScoredPairs
from osbert.tasks.tables.texts import TextSource

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head
    from osbert.models.forms import Writing
    from osbert.models.sizes import Sizes
    from osbert.text.file_tokenizer import AnyTokenizer

BLOCK = 1024
"""Number of rows that are compared with all others together."""
READ = ("text", "pair", "label", *READING, "decimal")
"""The settings for reading a file."""
DISTILLATION: Mapping[Distillation, str] = {"kl": "order (KL divergence)", "margin_mse": "differences (margin-MSE)"}
"""What is learnt from a teacher's scores, in words."""
IN_MEMORY = "rows in memory"
"""The name of scored pairs in memory, in place of a file."""


@dataclass(frozen=True, kw_only=True)
class SimilarityPrediction(Prediction):
    """The similarity of two texts: the cosine of their `vectors` (2, D), from -1 to 1.

    Of sparse vectors their dot product; of many vectors a text, (tokens, D) each, their MaxSim.
    """

    vectors: NDArray[np.floating] | Sequence[NDArray[np.floating]]


class ContrastiveSource(NumberSource):
    """Reads texts, alike pairs with or without negatives, scored or judged pairs; and scored pairs for development."""

    task: Contrastive
    indivisible: ClassVar[str] = "there is one row"
    pairs: Mapping[str, Origin] | None = None
    """The scored pairs, if they are in memory."""

    @property
    def called(self) -> str:
        """Return the name of the data in messages; when a run is scored, that of the pairs."""
        return super().called or self.task.sts

    def columns(self, table: Table, *, labelled: bool) -> AlikeColumns:
        task = self.task
        return choose_alike(
            table.columns,
            user_columns=TextColumns(text=task.text, pair=task.pair, label=task.label if labelled else ""),
            # A file of development rows need not have negatives.
            negatives=[name for name in task.negatives(table.columns) if name in table.columns],
            rows=task.rows if labelled else "auto",
            path=table.called,
        )

    def resolve(self) -> Task:
        table = self.open(self.file("train"))
        for name in self.task.negatives(table.columns):
            Header(table.columns, table.called).require(name, option="negative")
        columns = self.columns(table, labelled=True)
        if self.task.sts:
            self._describe_scored()
        names = dataclasses.asdict(columns)
        return self.attach_to(dataclasses.replace(self.task, negative=",".join(names.pop("negatives")), **names))

    def findings(self) -> list[str]:
        table = self.open(self.file("train"))
        columns = self.columns(table, labelled=True)
        left_out = dict.fromkeys([*self.left_out("train"), *self.left_out("dev")])
        lines = [table.describe(), *left_out, columns.describe()]
        if columns.rows == "distilled":
            lines.append(f"the teacher's scores are learnt by their {DISTILLATION[self.task.distillation]}")
        elif columns.rows != "graded":
            hard = "".join(f", and all in '{name}'" for name in columns.negatives)
            lines.append(f"a text's negatives are the other texts of its step (--batch){hard}")
        if columns.rows == "judged" and {name.lower() for name in columns.texts} == {"premise", "hypothesis"}:
            lines.append("in NLI data 0 is often entailment: write 1 for texts that are alike and 0 for the others")
        read = {columns.text, columns.pair, *columns.labels, *columns.negatives}
        unread = [name for name in table.columns if name not in read]
        if labels := [name for name in unread if is_label(name)]:
            lines.append(f"the column '{labels[0]}' is not read: every row counts as alike")
        if others := [f"'{name}'" for name in unread if name not in labels]:
            lines.append(f"not read: {', '.join(others)}")
        if self.task.sts:
            return [*lines, f"scored pairs: {self._describe_scored()}"]
        if "dev" not in self.files():
            lines.append(f"no scored pairs (--sts): {100 * self.task.held_out:g}% of the rows are held out")
        return lines

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data: pairs, which are scored if there is a column with numbers."""
        defaults = {name: getattr(type(self.task), name) for name in (*READ, "negative")}
        task = Source.switch_data(self, data, defaults | dict(given))
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
            for number, record in enumerate(self.read(self.file("train"), problems, labelled=True)):
                yield dataclasses.replace(record, number=number)

    def is_held_out(self, split: str) -> bool:
        """Return whether the rows of a split are held out; scored pairs are held out of their own training file."""
        return self.scored.is_held_out(self._split(split)) if self.task.sts else super().is_held_out(split)

    def mark_held_out(self, records: Sequence[Record]) -> Booleans:
        """Return which of the training rows (n,) are held out: all of a first text, or none."""
        texts, first = np.unique([record.texts[0] for record in records], return_inverse=True)
        if len(texts) in (1, len(records)):
            return super().mark_held_out(records)
        return hold_out(range(len(texts)), self.task.held_out, stratified=False)[first]

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        """Yield the records of a file: one for each text that is like another."""
        records = split_others(super().read(origin, problems, labelled=labelled))
        if not labelled or self.task.rows != "judged":
            yield from records
            return
        joined = [*join_judged(records)]
        if not joined and not problems.count:
            problems.add(
                f"no number in '{self.task.label}' is above 0, so no text is like another. To learn from every row as "
                "a pair of alike texts, give --rows pairs.",
                code="nothing-to-learn",
            )
        yield from joined

    def record(self, row: Row, columns: TextColumns, *, path: str = "") -> Record:
        assert isinstance(columns, AlikeColumns)
        first, positives = row, list[str]()
        if columns.pair in row.values:
            positives = [text for text in listed_texts(row, columns.pair) if text.strip()]
            values = {**row.values, columns.pair: positives[0] if positives else ""}
            first = dataclasses.replace(row, values=values, nested=row.nested - {columns.pair})
        record = super().record(first, dataclasses.replace(columns, label=""), path=path)
        return alike_texts(row, columns, record, positives or record.texts[:1])

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


class AlikeDescription(TableDescription):
    """Describes texts that are alike or not."""

    def warnings(self) -> list[str]:
        """Return a warning about single texts whose labels look like second texts: most differ, and have letters."""
        source = self.task.source
        assert isinstance(source, ContrastiveSource)
        table = source.open(source.file("train"))
        label = next(filter(is_label, table.columns), "")
        if not label or source.columns(table, labelled=True).rows != "texts":
            return []
        cells = source.cells(label).values()
        texts = {cell for cell in cells if any(map(str.isalpha, cell))}
        advice = f"To learn that such a text is like the first of its row, give --pair {label}."
        return [f"most cells of '{label}' differ, and none is read. {advice}"] if 2 * len(texts) > len(cells) else []


@dataclass(frozen=True, kw_only=True)
class Contrastive(LateInteractionTask):
    """Texts, each encoded twice with different dropout (SimCSE, Gao et al. 2021); or pairs of texts.

    In a step each first text is scored against the second texts of all records and all their hard negatives; those that
    are not its own are its negatives (in-batch negatives), unless they are texts that are like it in any row. So
    `batch` is part of the task. A step of more than micro_tokens is computed in several passes with the same gradient,
    each twice (gradient caching, Gao et al. 2021a). Pairs with a score learn the order of the scores by their cosines
    (CoSENT), which is what Spearman's correlation measures: the scores need no particular range. A teacher's scores are
    learnt within each row.
    """

    form = "vectors"
    edge = Edge(kind="encoder")
    numbers: ClassVar[bool] = True
    reader: ClassVar[type[Source]] = ContrastiveSource
    describer: ClassVar[type[Description]] = AlikeDescription
    batching: ClassVar[Literal["sequences", "records", "step"]] = "step"
    request_fields: ClassVar[tuple[str, ...]] = ("text",)  # a vector belongs to one text
    sample: ClassVar[str] = '"a text of yours" "and another one"'
    row_score: ClassVar[str] = "minus the mean distance from the score"

    length: int = 128
    """Most tokens in a text, [CLS] and [SEP] included; at most the model's limit."""
    rows: Literal["auto", AlikeRows] = "auto"
    """What a row says. texts: nothing more; pairs: that its two texts are alike, perhaps with texts that are not;
    graded: how alike they are, by a number; judged: whether the second is like the first, by a number above 0;
    distilled: what a teacher, such as a reranker, scores the text that is like the first and those that are not. auto:
    by the columns."""
    negative: str = ""
    """The column with a text, or a list of texts, that is not like the first although it may seem so (hard negatives),
    or several columns with commas between them; detected by their names (negative, or negative_1, negative_2, ...). A
    cell may be empty."""
    sts: str = ""
    """A file of pairs with a score of similarity, or GLUE's folder STS-B. The Spearman correlation of these scores with
    the cosines is reported before training and after every epoch, and selects the best epoch."""
    decimal: DecimalMark = "auto"
    """The decimal mark of these scores: point or comma; detected, but a comma only if all fractions have it."""
    pooling: str = AUTO
    """Pooling of a text's hidden states to its vector: cls (SimCSE), mean (Sentence-BERT), max, weighted, mean_sqrt or
    last; several joined by "+" are concatenated. splade (splade_sum, splade_log, splade_log_sum): sparse vectors, of a
    model with a head that predicts masked pieces. colbert: many vectors a text, one of each token. auto: that of a
    model that was trained for sentence vectors, else cls."""
    query_flops: float = 5e-5
    """With sparse vectors, the weight of the penalty for the pieces of first texts: the sum of their squared mean
    weights (FLOPS, Paria et al. 2020). It grows over the first third of the steps, with their square."""
    document_flops: float = 3e-5
    """The weight of the penalty for the pieces of all other texts."""
    projection: Literal["auto", "yes", "no"] = "auto"
    """Whether a dense layer and tanh follow the pooling in training only (SimCSE's "w/ MLP (train)"). auto: for an
    encoder that was not trained for sentence vectors, without scores and --dimensions."""
    dimensions: tuple[int, ...] = ()
    """Fewer numbers that are to do for a vector, such as 256,128,64: the loss is the sum over the whole vectors and
    over their first numbers (Matryoshka, Kusupati et al. 2022). `embed --dimensions` then cuts them."""
    temperature: float | None = None
    """Divisor of the cosines before the softmax, and of their differences with scores: 0.05. Of the dot products of
    sparse vectors, and of MaxSim: 1."""
    distillation: Distillation = "kl"
    """How a teacher's scores of a row's texts are learnt, by the cosines over the temperature. kl: the distribution
    that they give the texts (Kullback-Leibler divergence); margin_mse: their differences (Hofstätter et al. 2020)."""
    query_prompt: str = AUTO
    """What is put before each first text, such as "query: ". auto: the model's prompt for queries; of single texts its
    default prompt."""
    document_prompt: str = AUTO
    """What is put before each second text and each negative. auto: the model's prompt for documents; of single texts
    its default prompt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature is not None and not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, not {self.temperature}")
        if self.long == "window":
            raise ValueError("long = window would give a text several vectors: give truncate, head+tail or error")
        if self.pooling != AUTO and self.kind == "dense":
            try:
                split_pooling(self.pooling)
            except UserError as error:
                raise ValueError(str(error)) from error
        if any(size < 1 for size in self.dimensions):
            raise ValueError(f"dimensions must be at least 1, not {min(self.dimensions)}")
        if self.kind != "dense" and (self.dimensions or self.projection == "yes"):
            raise ValueError(f"dimensions and projection are for dense vectors, but pooling = {self.pooling}")
        if self.dimensions and self.projection == "yes":
            raise ValueError("dimensions are those of the vectors, which projection = yes replaces in training")

    @property
    def criterion(self) -> str:
        """Return Spearman's correlation if there are scored pairs, else the retrieval accuracy."""
        return "spearman" if self.by_rows else "accuracy"

    @property
    def by_rows(self) -> bool:  # type: ignore[override]
        """Return whether there are scored pairs; else texts are searched among all rows, easier among fewer."""
        return bool(self.sts) or self.rows == "graded"

    def negatives(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the columns of negatives that the setting has, for a table with these columns."""
        return [self.negative] if self.negative in columns else list(filter(None, self.negative.split(",")))

    def record_of(self, texts: Sequence[str]) -> Record:
        if len(texts) != 2:
            raise UserError(f"The run compares two texts: give two, not {len(texts)}.", code="wrong-number-of-texts")
        return Record(number=0, texts=tuple(texts))

    def lacks(self, record: Record) -> str:
        """Describe why a record is skipped: with a teacher's scores it needs a text that is not like the first."""
        return super().lacks(record) if record.label != () else "text that is not like the first, with a score,"

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task. Raises UserError if the loss of the training rows is 0 whatever the model's vectors are."""
        lacking = ""
        if self.rows == "graded":
            if len({record.label for record in records}) < 2:
                lacking = "have one score only, so they have no order that could be learnt. Add rows with other scores."
        elif len({record.texts[0] for record in records}) < 2 and all(len(record.texts) <= 2 for record in records):
            lacking = "have one first text only, so it has no negatives. Add rows with other texts."
        if lacking:
            raise UserError(f"the training rows ({len(records):,}) {lacking}", code="nothing-to-learn")
        return self

    # The model.

    def for_model(
        self,
        sizes: Sizes,
        tokenizer: AnyTokenizer,
        *,
        writes: Writing | None = None,
        read_sentences: Callable[[], TrainedSentences | None] = no_sentences,
    ) -> Self:
        """Return the task with the model's pooling and prompts in place of auto; single texts have no role.

        Many vectors have markers for prompts if the tokenizer has them. Raises UserError if a query has too few tokens
        for a text.
        """
        trained = read_sentences()
        settings: dict[str, Any] = {}
        if self.pooling == AUTO:
            settings["pooling"] = trained.pooling if trained else "cls"
        kind = vector_kind(settings.get("pooling", self.pooling))
        if kind == "multi":
            settings |= self.late_settings(trained.token_vectors if trained else None)
        if self.projection == AUTO:
            without = trained or self.rows in ("graded", "distilled") or self.dimensions or kind != "dense"
            settings["projection"] = "no" if without else "yes"
        for role in ("query", "document"):
            if getattr(self, f"{role}_prompt") == AUTO:
                prompt = trained.prompt(role if self.pair else None) if trained else ""
                marker = MARKERS[role] if kind == "multi" else ""
                settings[f"{role}_prompt"] = prompt or (marker if marker in tokenizer.vocabulary else "")
        if trained and trained.lower_case:
            settings["lower_case"] = True
        least = tokenizer.form.specials(2) + 3  # with a marker and two pieces
        if kind == "multi" and settings["query_length"] < least:
            raise UserError(
                f"--query-length {settings['query_length']} leaves no room for a text: give at least {least}.",
                code="invalid-value",
            )
        return dataclasses.replace(self, **settings)

    @property
    def kind(self) -> VectorKind:
        """The kind of the vectors: dense, sparse (SPLADE) or multi (ColBERT)."""
        return vector_kind(self.pooling)

    @property
    def per_token(self) -> bool:
        """Whether the head gives each token a vector."""
        return self.kind == "multi"

    @property
    def prompts(self) -> Mapping[str | None, str]:
        """Return the prompts of both roles, "" for none; of single texts one for None, if both are the same."""
        settings = {"query": self.query_prompt, "document": self.document_prompt}
        prompts = {role: "" if prompt == AUTO else prompt for role, prompt in settings.items()}
        if self.text and not self.pair and len(set(prompts.values())) == 1:
            prompts = {None: prompts["query"]}  # type: ignore[dict-item]
        return prompts  # type: ignore[return-value]

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the two texts of a record as sequences, a single text twice; the first has the target.

        In training hard negatives follow, each with a target of weight 0 that names it.
        """
        if len(record.texts) > 2 and self.rows not in ("pairs", "judged", "distilled"):
            raise UserError(
                f"{record.place}: {self.name} reads one text or two, not {len(record.texts)}.",
                code="wrong-number-of-texts",
            )
        first_text, *others = record.texts if record.label is not None else record.texts[:2]
        examples = [self._sequence(first_text, packer, record.number, "query")]
        examples += [self._sequence(text, packer, record.number, "document") for text in others or [first_text]]
        first, second, *negatives = examples
        if record.label is None:
            return examples
        if self.rows == "graded":
            target = Target(labels=np.array([record.label], np.float32))
            return [dataclasses.replace(first, targets={self.name: target}), second]
        if self.rows == "distilled":
            # The mean is over queries, or over the margins.
            over_queries = self.distillation == "kl"
            first = self._aimed(first, 0.0, weight=over_queries)
            margins = zip(negatives, record.label, strict=True)
            return [first, second, *(self._aimed(text, margin, weight=not over_queries) for text, margin in margins)]
        weight = True if self.negative or self.rows == "judged" else None
        negatives = [self._aimed(negative, 1, weight=False) for negative in negatives]
        return [self._aimed(first, 0, weight=weight), second, *negatives]

    def _aimed(self, example: Example, label: float, *, weight: bool | None) -> Example:
        weights = None if weight is None else np.array([weight], np.float32)
        kind = np.float32 if isinstance(label, float) else np.int64
        target = Target(labels=np.array([label], kind), weights=weights)
        return dataclasses.replace(example, targets={self.name: target})

    def _sequence(self, text: str, packer: Packer, number: int, role: str) -> Example:
        if self.kind == "multi":
            return self.lay_out_role(text, packer, role=role, record=number)
        prompts = self.prompts
        prompt = prompts.get(role, prompts.get(None, ""))
        text, prompt = (text.lower(), prompt.lower()) if self.lower_case else (text, prompt)
        (example,) = lay_out_texts([text], packer, prompt=prompt, long=self.long, overlap=self.overlap, record=number)
        return example

    def head(self, backbone: Backbone) -> Head:
        from osbert.models.heads.contrastive import ContrastiveHead, VectorComparison

        if self.text and not self.pair and not any(backbone.architecture.dropouts):
            raise UserError(
                "Without dropout both vectors of a text are equal: remove --dropout 0, or give pairs.",
                code="options-exclude-each-other",
            )
        pooling = "cls" if self.pooling == AUTO else self.pooling
        comparison = VectorComparison(
            target=self.name,
            temperature=self.temperature or (0.05 if self.kind == "dense" else 1.0),
            loss={"graded": "cosent", "distilled": self.distillation}.get(self.rows, "in_batch"),
        )
        if self.kind == "multi":
            from osbert.models.heads.colbert import ColbertHead

            if self.query_length > backbone.architecture.length:
                raise UserError(
                    f"--query-length {self.query_length} is more than the {backbone.architecture.length} tokens that "
                    "the model reads. Give fewer.",
                    code="invalid-value",
                )
            return ColbertHead(
                backbone,
                comparison=comparison,
                width=self.token_width,
                late=self.late,
                skipped=tuple(self.skipped.split()),
            )
        if self.kind == "sparse":
            from osbert.models.heads.splade import SpladeHead

            flops = {"query_flops": self.query_flops, "document_flops": self.document_flops}
            return SpladeHead(backbone, comparison=comparison, pooling=pooling, **flops)
        width = backbone.architecture.width * len(split_pooling(pooling))
        if too_many := [size for size in self.dimensions if size >= width]:
            raise UserError(
                f"--dimensions {too_many[0]} is not fewer than the {width} numbers of a vector. Remove it.",
                code="invalid-value",
            )
        return ContrastiveHead(
            backbone,
            comparison=comparison,
            pooling=pooling,
            dimensions=self.dimensions,
            projection=self.projection != "no",
        )

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> SimilarityPrediction:
        """Return the similarity of the two texts."""
        if self.kind == "multi":
            texts = [rows[example.head_words] for rows, example in zip(outputs[:2], examples)]
            score = compare_texts(*(stack_texts([rows]) for rows in texts))
            return SimilarityPrediction(value=float(score[0, 0]), vectors=texts)
        vectors: NDArray[np.floating] = np.stack([outputs[0], outputs[1]])
        if self.kind == "dense":
            vectors = vectors.astype(np.float64)
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return SimilarityPrediction(value=float(vectors[0] @ vectors[1]), vectors=vectors)

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the distance of the cosine from the score, or from 1 where the second text is like the first."""
        label = 1.0 if isinstance(record.label, tuple) else record.label
        return super().outcome(prediction, dataclasses.replace(record, label=label))

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the correlations with the scores; without scored pairs the retrieval accuracy of the pairs."""
        if not self.by_rows:
            vectors = [prediction.vectors for prediction in predictions if isinstance(prediction, SimilarityPrediction)]
            return {"accuracy": retrieval_accuracy(vectors, [record.texts[0] for record in records])}
        from scipy.stats import rankdata

        cosines = np.array([prediction.value for prediction in predictions], np.float64)
        true = np.array([record.label for record in records], np.float64)
        return {"spearman": correlation(rankdata(cosines), rankdata(true)), "pearson": correlation(cosines, true)}


def retrieval_accuracy(vectors: Sequence[Any], texts: Sequence[str]) -> float:
    """Return the fraction of n pairs of texts whose first is closest to a second one of the same text.

    `vectors`: of each pair the vectors of both, (D,) or (tokens, D). `texts` (n,): the first texts, of which several
    pairs may have the same.
    """
    first, second = (stack_texts([pair[side] for pair in vectors]) for side in (0, 1))
    _, numbers = np.unique(texts, return_inverse=True)
    hits = 0
    # Blocks bound the memory of the n x n similarities; 1e-9 allows for rounding.
    for start in range(0, len(first), BLOCK):
        similarities = compare_texts(first[start : start + BLOCK], second)
        own = np.where(numbers[start : start + BLOCK, None] == numbers, similarities, -np.inf)
        hits += int((own.max(axis=1) >= similarities.max(axis=1) - 1e-9).sum())
    return hits / len(first)
