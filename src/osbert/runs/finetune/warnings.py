"""Warnings about the data of a fine-tuning. They do not prevent it, and all come before the work."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from osbert.errors import UserError, differ_in_one_letter
from osbert.runs.seen_texts import TELLING, size_of, text_key
from osbert.tasks import Record, Task
from osbert.tasks.record import records_per_step
from osbert.terminal import format_count, one_line

REMARKS = "remarks.txt"
"""File in a run's folder that lists corrected and faulty records."""
FEWEST_ROWS = 16
"""Number of training rows below which there is a warning."""
RARE = 20
"""A label may be a typo of a similar one that has at least this many times as many rows."""
SHORTEST = 5
"""Shortest label for which one different letter may be a typo: NNP and NNPS are two tags."""
FAMILY = 32
"""Most frequent names that differ in the same letter, from which on that is a system of names and no typo."""
SHOWN = 3
"""Most examples in a warning."""
_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])")

Splits = Mapping[str, Sequence[Record]]


class Overlap(NamedTuple):
    """The development records that repeat texts of training records, in words, and their fraction."""

    description: str = ""
    fraction: float = 0.0


def data_warnings(task: Task, records: Splits, repeats: Overlap) -> Iterator[str]:
    """Yield warnings about the training ("train") and development ("dev") records of a fitted task."""
    training = [record for record in records["train"] if not task.lacks(record)]
    yield from map(one_line, task.description.warnings())
    yield from _few(task, training)
    if repeats.fraction >= TELLING:
        yield repeats.description
    classes = _classes(task, training)
    yield from _alike({name: len(locations) for name, locations in classes.items()}, classes)
    yield from _single(classes)
    if count := sum(1 for _ in record_remarks(task, records)):
        yield (
            f"{format_count(count, 'record')} {'was' if count == 1 else 'were'} corrected or cannot be "
            f"used: see {REMARKS}"
        )


def record_remarks(task: Task, records: Splits) -> Iterator[str]:
    """Yield a line for each record that was corrected, and for each training record without a usable label."""
    for split, split_records in records.items():
        for record in split_records:
            if record.remark:
                yield f"{record.place}: {record.remark}"
            elif split == "train" and task.lacks(record):
                yield f"{record.place}: its label is not known: it is not learnt from"


def deduplicate(records: Splits) -> dict[str, list[Record]]:
    """Return the records without training records that have the same texts as a development record.

    Raises UserError if no training record is left.
    """
    development = {text_key(record) for record in records["dev"]}
    training = [record for record in records["train"] if text_key(record) not in development]
    if not training:
        raise UserError(
            "Every training text is also a development text, so --deduplicate leaves no training rows. Give other "
            "development rows.",
            code="no-data",
        )
    return {"train": training, "dev": [*records["dev"]]}


def _few(task: Task, training: Sequence[Record]) -> Iterator[str]:
    if 0 < len(training) < records_per_step(FEWEST_ROWS, training):  # a document counts as its sentences
        yield (
            f"there are only {format_count(len(training), 'training row')}: what is learnt from so "
            "few holds for little "
            f"else. Give {FEWEST_ROWS} or more, some of every label."
        )


def find_repeats(training: Sequence[Record], development: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Return (development record, first training record) for each development record with equal texts."""
    known: dict[tuple[str, ...], Record] = {}
    for record in training:
        known.setdefault(text_key(record), record)
    return [(record, known[text]) for record in development if (text := text_key(record)) in known]


def overlap(task: Task, records: Splits) -> Overlap:
    """Return the development records that repeat texts of training records.

    The fraction is that of records or of characters, whichever is lower: short texts such as "Thanks !" recur by
    nature.
    """
    development: Sequence[Record] = records["dev"]
    pairs = find_repeats([record for record in records["train"] if not task.lacks(record)], development)
    if not pairs:
        return Overlap()
    examples = [f"'{_shorten(record)}' ({record.place}; {other.place})" for record, other in pairs[:SHOWN]]
    other_label = sum(repr(record.label) != repr(other.label) for record, other in pairs)
    differ = f", {other_label:,} of them with another label" if other_label else ""
    description = (
        f"{len(pairs):,} of {len(development):,} development rows have the text of a training row{differ}, which "
        f"flatters the scores: {', '.join(examples)}. --deduplicate leaves those training rows out."
    )
    size = sum(map(size_of, development))
    fraction_of_text = sum(size_of(record) for record, _ in pairs) / max(size, 1)
    return Overlap(description, min(len(pairs) / len(development), fraction_of_text))


def _shorten(record: Record) -> str:
    """Return the beginning of a record's texts on one line."""
    return f"{one_line(' '.join(' | '.join(record.texts).splitlines())):.60}"


def _classes(task: Task, training: Sequence[Record]) -> dict[str, list[str]]:
    """Return the file and line of the training records of each class."""
    locations = defaultdict(list)
    for record in training if task.classes else ():
        for name in dict.fromkeys(task.names(record)):
            locations[name].append(record.place)
    return locations


def _alike(counts: Mapping[str, int], locations: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a warning about classes that may be two spellings of one, with the first row of the rarer one."""
    pairs = [
        f"'{one_line(rare)}' ({format_count(counts[rare], 'row')}, first: {locations[rare][0]}) and "
        f"'{one_line(usual)}' "
        f"({counts[usual]:,})"
        for rare, usual in slips(counts)
    ]
    if pairs:
        more = f" and {len(pairs) - SHOWN:,} more pairs" if len(pairs) > SHOWN else ""
        yield f"these labels may be one, spelt in two ways: {', '.join(pairs[:SHOWN])}{more}. Mend the rows if so."


def _single(classes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    single = [f"'{one_line(name)}' ({locations[0]})" for name, locations in classes.items() if len(locations) == 1]
    if single:
        more = f" and {len(single) - SHOWN:,} more" if len(single) > SHOWN else ""
        what = "one label has" if len(single) == 1 else f"{len(single):,} of {len(classes):,} labels have"
        yield (
            f"{what} a single training row: {', '.join(single[:SHOWN])}{more}. One row teaches little: add rows, or "
            "remove the label."
        )


def slips(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the pairs (rare, usual) of classes that may be two spellings of one, given their frequencies.

    They differ only in case, spaces and hyphens between letters; or in one letter after the first, if the usual one is
    at least `RARE` times as frequent and has at least `SHORTEST` letters. Single letters that differ in case do not
    count.

    >>> slips({"positive": 512, "postive": 1, "Not spam": 30, "not_spam": 31, "pos": 500, "poc": 1})
    [('Not spam', 'not_spam'), ('postive', 'positive')]
    """
    plain = {name: _plain(name) for name in counts}
    spellings = defaultdict(list)
    for name, letters in plain.items():
        spellings[letters].append(name)
    pairs = []
    for letters, names in spellings.items():
        *rarer, usual = sorted(names, key=counts.__getitem__)
        pairs += [(rare, usual) for rare in rarer if len(letters) > 1]
    # All pairs would be too many: names that differ in one letter are equal once a letter is left out of one or both.
    frequent = RARE * min(counts.values(), default=0)
    neighbours = defaultdict(list)
    for usual in (name for name, count in counts.items() if count >= frequent):
        for form in _shortened_forms(plain[usual]):
            neighbours[form].append(usual)
    for rare in counts if neighbours else ():
        near = [neighbours.get(form, ()) for form in _shortened_forms(plain[rare])]
        for usual in dict.fromkeys(name for names in near if len(names) <= FAMILY for name in names):
            if counts[usual] >= RARE * counts[rare] and _one_letter(plain[rare], plain[usual]):
                pairs.append((rare, usual))
    return pairs


def _shortened_forms(letters: str) -> dict[tuple[str, str], None]:
    """Return a plain name, and it without each of its letters but the first, each with the name's digits."""
    digits = "".join(letter for letter in letters if letter.isdigit())
    places = [index for index, letter in enumerate(letters) if index and not letter.isdigit()]
    return dict.fromkeys([(digits, letters), *((digits, letters[:index] + letters[index + 1 :]) for index in places)])


def _plain(name: str) -> str:
    """Return a name in normal form: NFKC, case-folded, without spaces, hyphens or underscores between letters."""
    return _BETWEEN_LETTERS.sub("", unicodedata.normalize("NFKC", name).casefold().strip())


def _one_letter(first: str, second: str) -> bool:
    """Return whether two plain names differ in one letter. Digits must agree: "type 1" and "type 2" are two names."""
    digits = [[letter for letter in name if letter.isdigit()] for name in (first, second)]
    longest = max(len(first), len(second))
    return longest >= SHORTEST and digits[0] == digits[1] and differ_in_one_letter(first, second)
