"""The names of classes and how a model is asked for them: read from words, files and Python, and checked."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from osbert.errors import Problems, UserError
from osbert.terminal import one_line

SLOT = "{label}"
"""Where a template has the name of a class."""

HEADERS = (["label"], ["label", "description"])
"""First lines of a file of labels that are no label."""


class LabelName(NamedTuple):
    """A class by its name, and a description that a model reads instead of it; "" for none."""

    name: str
    description: str = ""

    @property
    def text(self) -> str:
        """What a model reads."""
        return self.description or self.name


LabelNames = tuple[LabelName, ...]
GivenLabels = str | Iterable[str | LabelName] | Mapping[str, str]
"""Names; or names with descriptions; or a text as on the command line."""


@dataclass(frozen=True, kw_only=True)
class NamingOptions:
    """How a model is asked for classes by name."""

    multi: bool = False
    """Several of the classes may hold, or none: each has a probability of its own. For models of entailment; in runs of
    spans a span may stand within another."""
    template: str = ""
    """The sentence in which a class is asked for. Default: "This text is about {label}.", and for sentence encoders
    "{label}" alone."""
    calibrate: bool | None = None
    """Divide the probability of a class by its mean over the texts (the first 1,024, from 32 on), as if all classes
    were equally frequent. Default: for masked-language models only. Not for models of entailment, nor where rows bring
    labels of their own."""

    def template_or(self, default: str) -> tuple[str, str]:
        """Return what is before and behind the name of a class. Raises UserError unless there is one {label}.

        >>> NamingOptions(template="About {}.").template_or(SLOT)
        ('About ', '.')
        """
        template = (self.template or default).replace("{}", SLOT)
        parts = template.split(SLOT)
        if len(parts) != 2:
            raise UserError(
                f"The template {template!r:.80} must have {SLOT} once, where the name of a class is to stand, as in "
                f'"This text is about {SLOT}."',
                code="invalid-value",
            )
        return parts[0], parts[1]


@dataclass(frozen=True, kw_only=True)
class LabelOptions(NamingOptions):
    """Classes by name, without training."""

    labels: str = ""
    """Predict these classes, which the model was not trained for: names with commas between them, in quotes where a
    name has a comma; or a file with a name on each line, behind it a tab and a description if there is one. For models
    of entailment, sentence encoders and masked-language models; in runs of spans these are types of spans."""
    labels_column: str = ""
    """The column in which rows have labels of their own, written as in --labels, or a JSON list. Where it is empty,
    --labels counts. A table then has --top-k, but no column for each class; .jsonl has all probabilities."""

    def names(self) -> LabelNames:
        """Return the classes. Raises UserError, as `read_labels`, and if nothing names any."""
        if not self.labels and not self.labels_column:
            raise UserError(
                "No class is named. Give --labels with names and commas between them, or --labels-column; --multi, "
                "--template and --calibrate need one of these.",
                code="missing-value",
            )
        return read_labels(self.labels, where="--labels") if self.labels else ()


def spell_labels(labels: GivenLabels) -> str:
    """Return labels as they are written on the command line.

    >>> spell_labels(["refund, late", "other"]), spell_labels({"other": "anything else"})
    ('"refund, late",other', 'other\\tanything else')
    """
    if isinstance(labels, str):
        return labels
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow("\t".join(filter(None, label)) for label in list_names(labels))
    return line.getvalue()


def read_labels(labels: GivenLabels, *, where: str) -> LabelNames:
    """Return labels from a file, from a text with commas, or from Python.

    Raises UserError, which begins with `where`, for every name that is empty or repeated, and if there is none.

    >>> read_labels('billing,"refund, late"', where="labels")
    (LabelName(name='billing', description=''), LabelName(name='refund, late', description=''))
    """
    path = Path(labels) if isinstance(labels, str) and len(labels) < 256 and "\0" not in labels else None
    if path is not None and path.is_file():
        where, names = str(path), _read_file(path)
    else:
        names = split_names(labels) if isinstance(labels, str) else list_names(labels)
    problems = Problems(heading=f"{where}: these classes cannot be predicted")
    for message, code in name_problems(names):
        problems.add(f"{where}: {message}", code=code)
    if path and not path.is_file() and path.suffix.lower() in (".txt", ".tsv", ".csv") and len(names) == 1:
        problems.add(f"{where}: there is no file '{one_line(str(labels))}'.", code="missing-file")
    problems.stop_if_any()
    return names


def name_problems(names: LabelNames) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with names, each with the code of its error: empty or repeated ones, or none at all."""
    if empty := [index for index, label in enumerate(names, 1) if not label.name]:
        yield f"the name number {empty[0]} is empty.", "invalid-value"
    if tabs := [label.name for label in names if "\t" in label.name]:
        yield f"'{one_line(tabs[0])}' has a tab, which ends a name.", "invalid-value"
    for name, count in Counter(label.name for label in names if label.name).items():
        if count > 1:
            yield f"'{one_line(name)}' is named {count} times.", "duplicate-name"
    if not names:
        yield "there is no name.", "nothing-to-learn"


def list_names(labels: Iterable[str | LabelName] | Mapping[str, str]) -> LabelNames:
    """Return labels that Python gives. Raises UserError for one that is no text."""
    given = labels.items() if isinstance(labels, Mapping) else labels
    if not isinstance(given, Iterable):
        raise UserError(f"labels are names, or descriptions by name, not {given!r:.60}.", code="invalid-value")
    names = [tuple(label) if isinstance(label, (tuple, list)) else (label,) for label in given]
    if wrong := [parts for parts in names if len(parts) > 2 or not all(isinstance(part, str) for part in parts)]:
        raise UserError(f"labels are names, or descriptions by name, not {wrong[0]!r:.60}.", code="invalid-value")
    return tuple(LabelName(*(part.strip() for part in parts)) for parts in names)


def _read_file(path: Path) -> LabelNames:
    """Return the labels of a file: one a line with a tab before its description, or in a .csv with a comma."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: the names of classes are not UTF-8: {error}.", code="wrong-encoding") from error
    is_csv = path.suffix.lower() == ".csv"
    rows = [*(csv.reader(lines) if is_csv else (line.split("\t") for line in lines))]
    if rows and [cell.strip().lower() for cell in rows[0]] in HEADERS:
        del rows[0]
    return list_names([LabelName(*(*row, "")[:2]) for row in rows if any(cell.strip() for cell in row)])


def split_names(text: str) -> LabelNames:
    """Return the names of a text, separated by commas. Raises UserError for a quote that is not closed."""
    try:
        cells: Sequence[str] = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error:
        raise UserError(
            f"{one_line(text)[:80]!r}: a quote is not closed, or text follows it before the next comma. Write names as "
            """billing,"refund, late".""",
            code="invalid-value",
        ) from None
    return list_names([LabelName(*(*cell.split("\t"), "")[:2]) for cell in cells])
