"""The data section of a fine-tuning's report: number of rows, lengths, labels, and rows in both splits."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from osbert.reports.bars import BarRow, bar_plot
from osbert.reports.outcomes import text_lengths
from osbert.reports.page import paragraph, table
from osbert.runs.finetune.rows import TaskRows
from osbert.runs.finetune.warnings import repeated
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
    counts = {name: Counter(label for one in found for label in rows.task.names(one)) for name, found in splits.items()}
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
        yield (f"tokens of a row, {name}", *(f"{figure(found):,.0f}" if found else "" for found in lengths.values()))
    numbers = [[one.label for one in records if isinstance(one.label, float)] for records in splits.values()]
    if any(len({*found}) > 1 for found in numbers):
        yield ("labels", *(f"{min(found):g} to {max(found):g}" if found else "" for found in numbers))


def _labels(counts: Mapping[str, Counter[str]]) -> str:
    """Return a bar chart of the fraction of each label in a split."""
    total = sum(counts.values(), Counter[str]())
    shown = [label for label, _ in total.most_common(MOST_LABELS)]
    bars = [BarRow(name=label, values=[own[label] / max(own.total(), 1) for own in counts.values()]) for label in shown]
    more = f", the {len(shown)} most frequent of {len(total):,}" if len(total) > len(shown) else ""
    return bar_plot(bars, [*counts], title=f"Labels{more}")


def _histogram(lengths: Mapping[str, Sequence[int]]) -> str:
    """Return a histogram of the lengths of a split's rows."""
    longest = max((max(found) for found in lengths.values() if found), default=1)
    step = max(1, round(longest / BINS))
    groups = [Counter(length // step for length in found) for found in lengths.values()]
    bars = [
        BarRow(
            name=f"{place * step:,} to {(place + 1) * step - 1:,}" if step > 1 else f"{place:,}",
            values=[own[place] / max(own.total(), 1) for own in groups],
        )
        for place in range(longest // step + 1)
    ]
    return bar_plot(bars, [*lengths], title="Rows by their tokens")


def _overlap(training: Sequence[Record], development: Sequence[Record]) -> Iterator[str]:
    """Yield the number of development rows that have the texts of a training row, and the first of them."""
    found = repeated(training, development)
    if not found:
        yield paragraph("No development row has the texts of a training row.")
        return
    other = sum(repr(record.label) != repr(first.label) for record, first in found)
    yield paragraph(
        f"{len(found):,} of {len(development):,} development rows have the texts of a training row, up to case and "
        f"spaces; {other:,} of them with another label. They make the scores look better than they are."
    )
    cells = [
        (" | ".join(text[:LONGEST] for text in record.texts), record.place, first.place)
        for record, first in found[:SHOWN]
    ]
    yield table(cells, head=("text", "development", "training"))
