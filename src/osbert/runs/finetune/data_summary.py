"""The data section of a fine-tuning's report: number of rows, lengths, labels, and rows in both splits."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from osbert.reports.charts import BarRow, bar_plot
from osbert.reports.outcomes import text_lengths
from osbert.reports.page import paragraph, table
from osbert.runs.finetune.rows import TaskRows
from osbert.runs.finetune.warnings import find_repeats
from osbert.tasks import Record

MEASURED = 20_000
"""Most rows of a split whose tokens are counted; of more rows, this many at equal distances."""
MOST_LABELS = 30
"""Number of labels shown, the most frequent ones."""
BINS = 8
"""Approximate number of bins in the histogram of lengths."""
SHOWN, LONGEST = 5, 80
"""Most listed rows that are in both splits, and most characters of each text."""
SPLITS = ("training", "development")


def data_parts(rows: TaskRows) -> Iterator[str]:
    """Yield tables and plots of a task's training and development rows."""
    splits = dict(zip(SPLITS, (rows.training, rows.development)))
    lengths = {name: _lengths(records, rows) for name, records in splits.items()}
    yield table(_figures(splits, lengths), head=("", *SPLITS))
    if rows.truncation:
        yield paragraph(rows.truncation)
    counts = {
        name: Counter(label for record in records for label in rows.task.names(record))
        for name, records in splits.items()
    }
    if any(counts.values()):
        yield _labels(counts)
    yield _histogram(lengths)
    yield from _overlap(rows.training, rows.development)


def _lengths(records: Sequence[Record], rows: TaskRows) -> list[int]:
    stride = -(-len(records) // MEASURED) or 1
    return text_lengths(records[::stride], rows.packer)


def _figures(splits: Mapping[str, Sequence[Record]], lengths: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, ...]]:
    yield ("rows", *(f"{len(records):,}" for records in splits.values()))
    for name, figure in (("median", statistics.median), ("longest", max)):
        yield (
            f"tokens of a row, {name}",
            *(f"{figure(row_lengths):,.0f}" if row_lengths else "" for row_lengths in lengths.values()),
        )
    numbers = [[record.label for record in records if isinstance(record.label, float)] for records in splits.values()]
    if any(len({*values}) > 1 for values in numbers):
        yield ("labels", *(f"{min(values):g} to {max(values):g}" if values else "" for values in numbers))


def _labels(counts: Mapping[str, Counter[str]]) -> str:
    """Return a bar chart of the fraction of each label in a split."""
    total = sum(counts.values(), Counter[str]())
    top_labels = [label for label, _ in total.most_common(MOST_LABELS)]
    bars = [
        BarRow(name=label, values=[counter[label] / max(counter.total(), 1) for counter in counts.values()])
        for label in top_labels
    ]
    more = f", the {len(top_labels)} most frequent of {len(total):,}" if len(total) > len(top_labels) else ""
    return bar_plot(bars, [*counts], title=f"Labels{more}")


def _histogram(lengths: Mapping[str, Sequence[int]]) -> str:
    """Return a histogram of the lengths of a split's rows."""
    longest = max((max(row_lengths) for row_lengths in lengths.values() if row_lengths), default=1)
    step = max(1, round(longest / BINS))
    groups = [Counter(length // step for length in row_lengths) for row_lengths in lengths.values()]
    bars = [
        BarRow(
            name=f"{index * step:,} to {(index + 1) * step - 1:,}" if step > 1 else f"{index:,}",
            values=[counter[index] / max(counter.total(), 1) for counter in groups],
        )
        for index in range(longest // step + 1)
    ]
    return bar_plot(bars, [*lengths], title="Rows by their tokens")


def _overlap(training: Sequence[Record], development: Sequence[Record]) -> Iterator[str]:
    """Yield the number of development rows that have the texts of a training row, and the first of them."""
    repeats = find_repeats(training, development)
    if not repeats:
        yield paragraph("No development row has the texts of a training row.")
        return
    other = sum(repr(record.label) != repr(first.label) for record, first in repeats)
    yield paragraph(
        f"{len(repeats):,} of {len(development):,} development rows have the texts of a training row, up to case and "
        f"spaces; {other:,} of them with another label. They make the scores look better than they are."
    )
    cells = [
        (" | ".join(text[:LONGEST] for text in record.texts), record.place, first.place)
        for record, first in repeats[:SHOWN]
    ]
    yield table(cells, head=("text", "development", "training"))
