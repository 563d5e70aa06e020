"""text_mixture: several data sets as texts for texts, learnt together by one model (T5, Raffel et al. 2020)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Places
from osbert.errors import Problems
from osbert.tasks import Description, Prediction, Record, Source, Task
from osbert.tasks.record import RecordOutcome
from osbert_lab.data_sets.text_to_text import SETTLED
from osbert_lab.text_mixture.mixing import draw_rows, epoch_rows, mixing_rates
from osbert_lab.text_mixture.parts import PartRecord, opening_of, part_name, part_task, reading_settings
from osbert_lab.text_mixture.source import MixtureDescription, MixtureSource
from osbert_lab.writing.generate import Generate as Generate

if TYPE_CHECKING:
    from osbert.text.file_tokenizer import AnyTokenizer

MEAN = "mean"
"""Name of the mean of the data sets' own criteria, by which the best epoch is kept."""


@dataclass(frozen=True, kw_only=True)
class TextMixture(Generate):
    """Several data sets, each in its folder or file in `data`, as sources and targets of one task.

    One model with one output layer writes the targets of all. A source begins with the words of its data set, as in
    T5: `sst2 sentence: ...`, `question: ... context: ...` of squad, `summarize: ...` of scitldr, `translate English to
    German: ...` of multi30k. Any other name is that of a table with sources and targets, and stands before each source.
    Each data set has its own scores.
    """

    reader: ClassVar[type[Source]] = MixtureSource
    describer: ClassVar[type[Description]] = MixtureDescription
    row_score: ClassVar[str] = "score"

    data_sets: tuple[str, ...] = ()
    """The data sets, separated by commas: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, squad, scitldr, multi30k, or
    the name of a table of your own. Each is a folder or file of its name in `data`."""
    mixing_limit: int = 2**19
    """Most rows that count of a data set: its share in training is min(rows, mixing_limit) over the sum of all (section
    3.5.2)."""
    temperature: float = 1.0
    """The shares are raised to the power 1 / temperature: above 1 small data sets are seen more often."""

    def __post_init__(self) -> None:
        """Raise ValueError for data sets that are given twice, and settings that follow from them."""
        super().__post_init__()
        if twice := {name for name in self.data_sets if self.data_sets.count(name) > 1}:
            raise ValueError(f"data_sets has {', '.join(sorted(twice))} twice: each needs its own name")
        if self.mixing_limit < 1:
            raise ValueError(f"mixing_limit must be at least 1, not {self.mixing_limit}")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be above 0, not {self.temperature:g}")
        for name in SETTLED:
            if getattr(self, name) != getattr(Generate, name):
                raise ValueError(f"{name} is fixed by each data set: remove it")

    @cached_property
    def parts(self) -> dict[str, Generate]:
        """The task of each data set, without its data."""
        settings = reading_settings(self)
        return {name: part_task(name, settings) for name in self.data_sets}

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for pickling, without the cached tasks."""
        return {name: value for name, value in super().__getstate__().items() if name != "parts"}

    @property
    def criterion(self) -> str:
        """Return the mean of the data sets' own criteria."""
        return MEAN

    @property
    def sample(self) -> str:  # type: ignore[override]
        """Return a sample argument of `osbert predict RUN`: the words of the first data set, and a text."""
        openings: list[str] = [opening_of(part) for part in self.parts.values()]
        return f'"{openings[0]}a text of yours"' if openings else Task.sample

    def require_room(self, tokenizer: AnyTokenizer, most: int) -> None:
        """Raise UserError if a label of a data set has more than `most` pieces."""
        for part in self.parts.values():
            part.require_room(tokenizer, most)

    # Mixing.

    def epoch_counts(self, sizes: Sequence[int]) -> NDArray[np.int64]:
        """Return how many rows of an epoch are of each data set, given the training rows of each, all at least 1."""
        rates = mixing_rates(sizes, limit=self.mixing_limit, temperature=self.temperature)
        return epoch_rows(rates, sum(sizes))

    def draw_epoch(self, records: Sequence[Record], rng: np.random.Generator) -> Places:
        """Return the training rows of an epoch, as many as there are, with the share of each data set."""
        owners = np.unique([part_name(record) for record in records], return_inverse=True)[1]
        return draw_rows(owners, self.epoch_counts(np.bincount(owners).tolist()), rng)

    # Rows to texts, and texts to predictions.

    def as_texts(self, name: str, part: Generate, record: Record) -> PartRecord:
        """Return a row of a data set as a source and its targets.

        >>> task = TextMixture(data_sets=("stsb", "rte"))
        >>> row = Record(number=0, texts=("A plane.", "A jet."), label=3.75)
        >>> row = task.as_texts("stsb", task.parts["stsb"], row)
        >>> row.texts, row.label
        (('stsb sentence1: A plane. sentence2: A jet.',), ('3.8',))
        """
        return PartRecord(
            number=record.number,
            texts=(part.source_text(record),),
            label=None if record.label is None else part.target_texts(record),
            path=record.path,
            line=record.line,
            unit=record.unit,
            remark=record.remark,
            part=name,
            row=record,
        )

    def part_of(self, record: Record) -> str:
        """Return the data set of a record: its own, or the one whose words begin its source; "" for none.

        >>> task = TextMixture(data_sets=("sst2", "rte"))
        >>> task.part_of(task.record_of(["rte sentence1: It rains. sentence2: It is wet."]))
        'rte'
        """
        if isinstance(record, PartRecord):
            return record.part
        names = [name for name, part in self.parts.items() if record.texts[0].startswith(opening_of(part))]
        return names[0] if names else ""

    def decode(self, outputs: Sequence[Any], record: Record, examples: Sequence[Example]) -> Prediction:
        """Return the written text; a label as its data set spells it."""
        part = self.parts.get(self.part_of(record))
        return super().decode(outputs, record, examples) if part is None else part.decode(outputs, record, examples)

    # What the data sets' own tasks say.

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task unchanged. Raises UserError if every row of a data set has the same label."""
        for part, indices in self._by_part(records):
            part.fit([own_record(records[index]) for index in indices])
        return self

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        """Report each row whose label is not one of its data set's."""
        for part, indices in self._by_part(records):
            part.check([own_record(records[index]) for index in indices], problems)

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the scores of each data set with its name before, and the mean of their criteria."""
        criteria: list[float] = []
        scores: dict[str, float] = {}
        for part, indices in self._by_part(records):
            rows = [records[index] for index in indices]
            part_scores = part.metrics([predictions[index] for index in indices], [own_record(row) for row in rows])
            criteria.append(part_scores[part.criterion])
            name = part_name(rows[0])
            scores |= {f"{name}.{score}" if name else score: value for score, value in part_scores.items()}
        return {MEAN: statistics.fmean(criteria), **scores}

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the outcome of a prediction for a row by the task of its data set."""
        [(part, _)] = self._by_part([record])
        return part.outcome(prediction, own_record(record))

    def _by_part(self, records: Sequence[Record]) -> Iterator[tuple[Generate, list[int]]]:
        """Yield the task of each data set with the indices of its records; of records of none a plain `generate`."""
        groups: dict[str, list[int]] = {}
        for index, record in enumerate(records):
            groups.setdefault(part_name(record), []).append(index)
        for name, indices in groups.items():
            yield self.parts.get(name) or Generate(), indices


def own_record(record: Record) -> Record:
    """Return the record of a row as its data set's own task reads it; a record of no data set as it is."""
    return record.row if isinstance(record, PartRecord) else record
