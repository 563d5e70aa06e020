"""The tasks of a fine-tuning and their records, which are read and checked completely before training.

Warnings about the data do not prevent a run; all come before the work.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from osbert.errors import Problems, UserError, differ_in_one_letter
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.finetune.odd_texts import MISSING, describe_entities, number_warnings, text_warnings
from osbert.runs.finetune.plan import FinetunePlan, call_schema, name_of, read_plan, read_settings
from osbert.runs.seen_texts import TELLING, are_swapped, size_of, text_key
from osbert.tasks import Record, Task, findings, load
from osbert.tasks.record import records_per_step
from osbert.tasks.tables.classes import list_labels, plain_label
from osbert.terminal import format_count, one_line

SPLITS = ("train", "dev")
Splits = Mapping[str, Sequence[Record]]
"""The records of a task by split ("train", "dev")."""
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


class Overlap(NamedTuple):
    """The development records that repeat texts of training records, in words, and their fraction."""

    description: str = ""
    fraction: float = 0.0


def read_tasks(
    tasks: Sequence[str | Task], settings: Mapping[str, Any], *, model: Path, data: Any, watch: Watch = ignore
) -> tuple[FinetunePlan, list[Splits]]:
    """Return the plan of a run with fitted tasks, and the records of each. "dev" is empty if no row can be held out.

    `data`: for one task, its data; for several, a mapping from their names, or a folder with the data of each.

    Raises UserError that lists everything wrong with the tasks' names, their data and the settings.
    """
    if len(tasks) == 1:
        plans = [_read(tasks[0], settings, model=model, data=data, watch=watch)]
    else:
        plans = _read_several(tasks, settings, model=model, data=data, watch=watch)
    plan = plans[0][0] if len(plans) == 1 else FinetunePlan.combine([plan for plan, _ in plans])
    return plan, [splits for _, splits in plans]


def report_tasks(tasks: Sequence[Task], records: Sequence[Splits], watch: Watch) -> None:
    """Report descriptions of the data of all tasks, then the warnings."""
    warnings = []
    for task, splits in zip(tasks, records):
        warnings += report_data(task, splits, watch, before="" if len(tasks) == 1 else f"{task.name}: ")
    for text in warnings:
        watch(Notice(text, warning=True))


def _read(
    task: str | Task, settings: Mapping[str, Any], *, model: Path, data: Any, watch: Watch
) -> tuple[FinetunePlan, dict[str, list[Record]]]:
    plan = read_plan(task, settings, model=model, data=data)
    try:
        fitted, records = load(plan.task, SPLITS)
    except UserError as error:
        if error.code != "no-data" or plan.task.frozen_states != "pooled" or not plan.task.source.is_held_out("dev"):
            raise
        # No row can be held out: a linear layer can be fitted to all (`learn_from_all`).
        fitted, records = load(plan.task, ("train",))
        records["dev"] = []
    if plan.training.deduplicate:
        before = len(records["train"])
        records = deduplicate(records)
        left_out = f"{before - len(records['train']):,} of {before:,} training rows are left out (--deduplicate)"
        watch(Notice(f"{fitted.name}: {left_out}: their texts are in the development rows, too"))
    return dataclasses.replace(plan, tasks=(fitted,)), records


def _read_several(
    tasks: Sequence[str | Task], settings: Mapping[str, Any], *, model: Path, data: Any, watch: Watch
) -> list[tuple[FinetunePlan, dict[str, list[Record]]]]:
    from osbert.runs.finetune.model import ModelReader

    names = {name_of(task): task for task in tasks}
    task_names = [name.rpartition(".")[2] for name in names]
    if len(set(task_names)) < len(tasks) or not tasks:
        raise UserError(
            f"The tasks {', '.join(map(name_of, tasks))} cannot be learnt together: give one task or more, each once.",
            code="duplicate-name" if tasks else "missing-value",
        )
    if "dev" in settings:
        raise UserError(
            f"--dev applies to one task. Give each task its own, such as --{task_names[0]}.dev FILE.",
            code="ambiguous-setting",
        )
    folders = data_of(names, data)
    reader = ModelReader.of(model)
    problems = Problems(heading="These tasks cannot be learnt together")
    plans = []
    for name, task in names.items():
        try:
            task_settings = own_settings(settings, name, names)
            plan, records = _read(task, task_settings, model=model, data=folders[name], watch=watch)
            if plan.comparison.wanted or plan.learning_curve:
                raise UserError(
                    "--seeds, --search, --folds and --learning-curve work for one task at a time. Fine-tune "
                    "each by itself.",
                    code="options-exclude-each-other",
                )
            reader.check(plan.task, records)
        except UserError as error:
            problems.add_from(name, error)
            continue
        plans.append((plan, records))
    problems.stop_if_any()
    return plans


def check_settings(tasks: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raise UserError that lists wrong names and values of the settings of each task. No data is read."""
    problems = Problems(heading="These tasks cannot be learnt together")
    names = [name_of(task) for task in tasks]
    for name in names:
        try:
            task_settings = own_settings(settings, name, names)
            read_settings(call_schema(name), name.rpartition(".")[2], task_settings, {"data": ""})
        except UserError as error:
            if len(names) == 1:
                raise
            problems.add_from(name, error)
    problems.stop_if_any()


def own_settings(settings: Mapping[str, Any], task: str, tasks: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of one task: without those of the other tasks, and without its prefix.

    >>> own_settings({"epochs": 2, "mrpc.length": 256}, "rte", ["rte", "mrpc"])
    {'epochs': 2}
    """
    foreign = tuple(f"{name.rpartition('.')[2]}." for name in tasks if name != task)
    return {name: value for name, value in settings.items() if not name.startswith(foreign)}


def data_of(names: Iterable[str], data: Any) -> dict[str, Any]:
    """Return the data of each task: from a mapping, or the file or folder with the task's name in a folder."""
    if not isinstance(data, Mapping):
        return {name: Path(data) / _entry(name, Path(data)) for name in names}
    data = {name_of(name): task_data for name, task_data in data.items()}
    if unlike := {*names} ^ {*data}:
        raise UserError(
            f"data must have exactly one entry for each task; it differs in {', '.join(unlike)}.", code="invalid-value"
        )
    return data


def _entry(name: str, data: Path) -> str:
    """Return the entry of a folder with a task's name: "SST-2" for sst2, or sst2.csv; by default the name."""
    name = name.rpartition(".")[2]
    entries = sorted(data.glob("*"), key=lambda path: (path.is_dir(), path.name))  # of two of one name the folder
    names_by_stem = {(path if path.is_dir() else Path(path.name.partition(".")[0])).name: path.name for path in entries}
    plain = {stem.lower().replace("-", ""): entry for stem, entry in names_by_stem.items()}
    return plain.get(name.lower(), name)


def report_data(task: Task, records: Splits, watch: Watch, *, before: str = "") -> list[str]:
    """Report descriptions of the data; return warnings, which come after those of other tasks. `before`: its prefix."""
    repeats = overlap(task, records)  # all texts are compared: once for both
    for text in data_notices(task, records, repeats):
        watch(Notice(f"{before}{text}"))
    return [f"{before}{text}" for text in data_warnings(task, records, repeats)]


def data_notices(task: Task, records: Splits, repeats: Overlap) -> Iterator[str]:
    """Yield descriptions of the data: the form of each file, the columns, the rows, the labels."""
    untrue = "" if records["dev"] else task.source.describe_held_out()  # if all rows are learnt from
    yield from (one_line(line) for line in findings(task) if line != untrue)
    for split, split_records in ((split, rows) for split, rows in records.items() if rows):
        yield f"{split}: {one_line(task.description.describe_split(split_records))}"
        names = {name for record in split_records for name in task.names(record)}
        if absent := [name for name in task.classes if name not in names]:
            yield f"{split}: none of them has {list_labels(absent)}"
    if skipped := [record for record in records["train"] if task.lacks(record)]:
        yield one_line(
            f"train: {len(skipped):,} of {len(records['train']):,} have no {task.lacks(skipped[0])} "
            f"(first: {skipped[0].place}) and are skipped in training."
        )
    yield from describe_entities(records["train"])
    if 0 < repeats.fraction < TELLING:  # else it is a warning
        yield repeats.description


def data_warnings(task: Task, records: Splits, repeats: Overlap) -> Iterator[str]:
    """Yield warnings about the training ("train") and development ("dev") records of a fitted task."""
    training = [record for record in records["train"] if not task.lacks(record)]
    yield from map(one_line, task.description.warnings())
    if 0 < len(training) < records_per_step(FEWEST_ROWS, training):  # a document counts as its sentences
        yield (
            f"training has only {format_count(len(training), 'row')}: what is learnt from so few holds for "
            f"little else. Give {FEWEST_ROWS} or more, some of every label."
        )
    if repeats.fraction >= TELLING:
        yield repeats.description
    yield from text_warnings(task, training)
    yield from number_warnings([*training, *records["dev"]])
    locations = defaultdict(list)  # file and line of the records of each class
    for record in training if task.classes else ():
        for name in dict.fromkeys(task.names(record)):
            locations[name].append(record.place)
    counts = {name: len(lines) for name, lines in locations.items()}
    if pairs := slips(counts):
        spellings = [
            f"'{one_line(rare)}' ({format_count(counts[rare], 'row')}, first: {locations[rare][0]}) and "
            f"'{one_line(usual)}' ({counts[usual]:,})"
            for rare, usual in pairs[:SHOWN]
        ]
        more = f" and {len(pairs) - SHOWN:,} more pairs" if len(pairs) > SHOWN else ""
        yield f"these labels may be one, spelt in two ways: {', '.join(spellings)}{more}. Mend the rows if so."
    if quoted := [name for name in locations if len(name) > 1 and name[0] == name[-1] and name[0] in "'\""]:
        yield (
            f"the label {one_line(quoted[0])} ({locations[quoted[0]][0]}) has quotes in its name, and texts may have "
            "theirs. If these quote cells, remove the spaces before them, or write double quotes."
        )
    missing = MISSING - {"-"} if "+" in locations else MISSING
    for name in (name for name in locations if name.casefold() in missing or _is_no_class(name, counts)):
        rows = f"{format_count(counts[name], 'row')}, first: {locations[name][0]}"
        yield f"the label '{name}' ({rows}) is what programs write for a missing one. Remove such rows if it is."
    if single := [f"'{one_line(name)}' ({lines[0]})" for name, lines in locations.items() if len(lines) == 1]:
        more = f" and {len(single) - SHOWN:,} more" if len(single) > SHOWN else ""
        what = "one label has" if len(single) == 1 else f"{len(single):,} of {len(locations):,} labels have"
        yield (
            f"{what} a single training row: {', '.join(single[:SHOWN])}{more}. One row teaches little: add rows, or "
            "remove the label."
        )
    if count := sum(1 for _ in record_remarks(task, records)):
        was = "was" if count == 1 else "were"
        yield f"{format_count(count, 'record')} {was} corrected or cannot be used: see {REMARKS}"


def _is_no_class(name: str, counts: Mapping[str, int]) -> bool:
    """Return whether a class is the -1 of SNLI and Snorkel for no label, beside 0, 1, ...; as one of -1, 0, 1 if rare.

    >>> [_is_no_class("-1", counts) for counts in ({"-1": 5, "0": 9, "1": 9, "2": 9}, {"-1": 5, "0": 9, "1": 9})]
    [True, False]
    """
    if plain_label(name) != "-1":
        return False
    by_number = {plain_label(label): count for label, count in counts.items()}
    others = [by_number.get(str(number), 0) for number in range(len(counts) - 1)]
    return len(others) > 1 and min(others) > 0 and (len(others) > 2 or min(others) >= RARE * counts[name])


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


def find_repeats(training: Sequence[Record], development: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Return (development record, first training record) for each development record with equal texts, in any order."""
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
    examples = []
    for record, other in pairs[:SHOWN]:
        text = one_line(" ".join(" | ".join(record.texts).splitlines()))
        examples.append(f"'{text:.60}' ({record.place}; {other.place})")
    other_label = sum(repr(record.label) != repr(other.label) for record, other in pairs)
    differ = f", {other_label:,} of them with another label" if other_label else ""
    if swapped := sum(are_swapped(record, other) for record, other in pairs):
        differ += f", {swapped:,} of them with its texts swapped"
    description = (
        f"{len(pairs):,} of {len(development):,} development rows have the text of a training row{differ}, which "
        f"flatters the scores: {', '.join(examples)}. --deduplicate leaves those training rows out."
    )
    size = sum(map(size_of, development))
    fraction_of_text = sum(size_of(record) for record, _ in pairs) / max(size, 1)
    return Overlap(description, min(len(pairs) / len(development), fraction_of_text))


def slips(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the pairs (rare, usual) of classes that may be two spellings of one, given their frequencies.

    They are one as `plain_label`; or differ in one letter after the first, if the usual one is at least `RARE` times as
    frequent and has at least `SHORTEST` letters. Single letters that differ in case do not count.

    >>> slips({"positive": 512, "postive": 1, "Not spam": 30, "not_spam": 31, "pos": 500, "poc": 1})
    [('Not spam', 'not_spam'), ('postive', 'positive')]
    """
    plain = {name: plain_label(name) for name in counts}
    spellings = defaultdict(list)
    for name, letters in plain.items():
        spellings[letters].append(name)
    pairs = []
    for letters, names in spellings.items():
        *rarer, usual = sorted(names, key=counts.__getitem__)
        pairs += [(rare, usual) for rare in rarer if len(letters) > 1 or letters.isdigit()]
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


def _one_letter(first: str, second: str) -> bool:
    """Return whether two plain names differ in one letter. Digits must agree: "type 1" and "type 2" are two names."""
    digits = [[letter for letter in name if letter.isdigit()] for name in (first, second)]
    longest = max(len(first), len(second))
    return longest >= SHORTEST and digits[0] == digits[1] and differ_in_one_letter(first, second)
