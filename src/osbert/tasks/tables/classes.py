"""Labels that are classes: listed in messages, joined in one cell, weighted in the loss, and their temperature."""

from __future__ import annotations

import ast
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.errors import Problems, UserError, nearest
from osbert.tasks import Prediction, Record
from osbert.tasks.calibration import Calibration, calibrate, columns
from osbert.terminal import one_line

LISTED = 10
"""Most labels that a message or a description lists."""


def list_labels(labels: Sequence[str]) -> str:
    """Return the first labels, and how many more there are.

    >>> list_labels(["a", "b"]), list_labels([*"abcdefghijkl"])
    ('a, b', 'a, b, c, d, e, f, g, h, i, j and 2 more')
    """
    first_labels = one_line(", ".join(labels[:LISTED]))
    return first_labels if len(labels) <= LISTED else f"{first_labels} and {len(labels) - LISTED} more"


def list_counts(counts: Mapping[str, int], items: str = "more") -> str:
    """Return the first LISTED names with their counts, and how many more there are.

    >>> list_counts({"pos": 3, "neg": 1200}), list_counts(dict.fromkeys("abcdefghijkl", 1))[-19:]
    ('neg 1,200, pos 3', 'i 1, j 1 and 2 more')
    """
    listed = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())[:LISTED])
    return f"{listed} and {len(counts) - LISTED} {items}" if len(counts) > LISTED else listed


SEPARATORS = (",", ";", "|")
_DECIMAL = re.compile(r"\s*[+-]?\d+,\d+\s*")
_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])")
_NUMBER = re.compile(r"[+-]?\d*[.,]?\d+")
_FRACTION = re.compile(r"[.,]\d*[1-9]")
_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")
_ITEM = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d+\.?\d*""")
_ARRAY = re.compile(rf"\[\s*(?:{_ITEM.pattern})(?:\s+(?:{_ITEM.pattern}))+\s*\]")
"""An array of numpy's as text: several items with spaces between them. pandas writes it into CSV files."""


def find_joined_labels(labels: Sequence[str]) -> list[str]:
    """Return the labels that look like several joined labels, in order.

    These are lists, and labels with a part that is a label itself. Labels whose parts all occur in other labels count
    too, if at least half of the labels with that separator are like that: a single one may be chance, such as
    "Portland, OR" among towns.

    >>> find_joined_labels(["neg", "neg,long", "pos", "pos,long"]), find_joined_labels(["a", "b", "a#b", "C#"])
    (['neg,long', 'pos,long'], ['a#b'])
    >>> find_joined_labels(["Boston, MA", "New York, NY", "Albany, NY"])
    []
    >>> find_joined_labels(["1,0", "1,3", "2,0", "2,3"])
    []
    """
    if lists := [label for label in labels if parse_list(label) is not None]:
        return lists
    for separator in (*SEPARATORS, "#"):  # doccano's CSV joins labels by #
        parts = {label: parts for label in labels if len(parts := _parts(label, separator)) > 1}
        single = {*labels} - {*parts}
        # In how many joined labels each part occurs.
        uses = Counter(part for label_parts in parts.values() for part in label_parts)
        # A part that is a label itself: "neg,long" beside "neg".
        certain = [label for label, label_parts in parts.items() if label_parts & single]
        likely = [
            label
            for label, label_parts in parts.items()
            if all(part in single or uses[part] > 1 for part in label_parts)
        ]
        if certain or (likely and 2 * len(likely) >= len(parts)):
            return [label for label in parts if label in {*certain, *likely}]
    return []


def _parts(label: str, separator: str) -> set[str]:
    """Return the distinct parts of a label; an empty set for a number with a decimal comma."""
    if separator == "," and _DECIMAL.fullmatch(label):
        return set()
    return {part.strip() for part in label.split(separator)} - {""}


def parse_list(label: str) -> list[Any] | None:
    """Parse a list in a cell, as JSON, Python or numpy write it, or a tuple; None for other texts, such as "[spam]".

    >>> parse_list("['a' 'b']"), parse_list("[1 2]"), parse_list("('a',)"), parse_list("[spam]")
    (['a', 'b'], [1, 2], ['a'], None)
    """
    if label[:1] + label[-1:] not in ("[]", "()"):
        return None
    if _ARRAY.fullmatch(label):  # Python would join its texts to one
        return [parse_literal(item) for item in _ITEM.findall(label)]
    items = parse_literal(label)
    return [*items] if isinstance(items, list | tuple) else None


def parse_object(label: str) -> dict[str, float] | None:
    """Parse a JSON or Python object of numbers in a cell, None for other texts. Raises ValueError for other objects.

    >>> parse_object('{"neg": 0.25, "pos": 0.75}'), parse_object("{'neg': 1}"), parse_object("{neg}")
    ({'neg': 0.25, 'pos': 0.75}, {'neg': 1}, None)
    """
    if not label.startswith(('{"', "{'")):
        return None
    try:
        pairs = json.loads(label, object_pairs_hook=list)  # a dict would keep the last of two equal names
    except (ValueError, RecursionError):
        values = parse_literal(label)
        pairs = [*values.items()] if isinstance(values, dict) else [("", None)]
    if twice := [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]:
        raise ValueError(f"the label {label[:40]} names '{twice[0]}' twice")
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for _, number in pairs):
        raise ValueError(
            f'the label {label[:40]} is no object of labels and numbers, such as {{"neg": 0.2, "pos": 0.8}}'
        )
    if any(not str(name).strip() for name, _ in pairs):
        raise ValueError(f"the label {label[:40]} has an empty name")
    return {str(name): number for name, number in pairs}


def parse_literal(text: str) -> Any:
    """Parse JSON or a Python literal, None for neither."""
    # literal_eval: pandas writes lists as Python does, with single quotes.
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def describe_joined(labels: Sequence[str], advice: str) -> list[str]:
    """Return a warning about labels that look like several in one cell, with advice; [] if there are none."""
    if not (joined := find_joined_labels(labels)):
        return []
    examples = ", ".join(f"'{label}'" for label in joined[:3])
    return [f"{len(joined):,} of {len(labels):,} labels look like several in one cell ({examples}): {advice}"]


def describe_fractions(labels: Sequence[str]) -> list[str]:
    """Return a warning about more than LISTED labels that are all numbers, some with a fraction; [] for others.

    >>> len(describe_fractions([f"{n},5" for n in range(20)])), describe_fractions([f"{n}.0" for n in range(20)])
    (1, [])
    """
    if len(labels) <= LISTED or not all(map(_NUMBER.fullmatch, labels)) or not any(map(_FRACTION.search, labels)):
        return []
    return [
        f"all {len(labels):,} labels are numbers ({', '.join(labels[:3])}, ...), and each is a class of its own. To "
        "learn the numbers: osbert finetune regress."
    ]


def plain_label(label: str) -> str:
    """Return a label in NFKC, case-folded, without invisible characters, signs between words and final points.

    A whole number is without the decimals that pandas adds in a column with empty cells.

    >>> plain_label("Not_Spam"), plain_label("not\N{ZERO WIDTH SPACE} spam"), plain_label("1.0"), plain_label("1.5")
    ('notspam', 'notspam', '1', '1.5')
    """
    letters = unicodedata.normalize("NFKC", label).casefold()
    letters = "".join(letter for letter in letters if unicodedata.category(letter) != "Cf").strip()
    return _WHOLE.sub(r"\1", _BETWEEN_LETTERS.sub("", letters.rstrip(".") or letters))


def note_unknown(label: str, known: Sequence[str], *, location: str, problems: Problems) -> None:
    """Report a label that was not seen in training, with the most similar known one."""
    advice = ""
    if len(problems.messages) < problems.limit:  # the search takes a while: not for those that are only counted
        same = [name for name in known if plain_label(name) == plain_label(label)]
        advice = f" Is it '{same[0]}' in another spelling?" if same else nearest(label, known)
    problems.add(
        f"{location}: unknown label '{one_line(label)}' (known: {list_labels(known)}).{one_line(advice)}",
        code="unknown-label",
    )


GIVEN = ("none", "balanced")


def check_weights(class_weights: str, weights: Sequence[float]) -> None:
    """Raise ValueError for weights that are not above 0, and for an invalid table of weights."""
    table = {} if class_weights in GIVEN else weight_table(class_weights)
    if wrong := [weight for weight in (*weights, *table.values()) if not 0 < weight < math.inf]:
        raise ValueError(f"weights must be above 0, not {wrong[0]:g}")


def label_weights(
    class_weights: str, weights: tuple[float, ...], labels: Sequence[str], balanced: Sequence[float]
) -> tuple[float, ...]:
    """Return the weights of labels in the loss, () if all are equal; `balanced`: the weights computed from the rows.

    Raises UserError if there is not one weight per label, if weights are set twice, and for unknown labels.
    """
    if weights and class_weights != "none":
        raise UserError(
            f"--class-weights {class_weights} and --weights cannot be combined. Remove one of the two.",
            code="options-exclude-each-other",
        )
    if weights and len(weights) != len(labels):
        raise UserError(
            f"--weights has {len(weights)} numbers, but there are {len(labels)} labels: give one for each of "
            f"{list_labels(labels)}, in this order.",
            code="wrong-number-of-values",
        )
    if class_weights in GIVEN:
        return tuple(balanced) if class_weights == "balanced" else weights
    table = weight_table(class_weights)
    if unknown := [name for name in table if name not in labels]:
        raise UserError(
            f"--class-weights: there is no label '{unknown[0]}' (there are {list_labels(labels)})."
            f"{nearest(unknown[0], labels)}",
            code="unknown-label",
        )
    return tuple(table.get(label, 1.0) for label in labels)


def weight_table(text: str) -> dict[str, float]:
    """Parse weights by label.

    Raises ValueError if the text is no such table, or names a label twice.

    >>> weight_table("spam=3, a=b=0.5")
    {'spam': 3.0, 'a=b': 0.5}
    """
    table: dict[str, float] = {}
    for part in text.split(","):
        # rpartition: names of labels may contain "=".
        name, _, number = (cell.strip() for cell in part.rpartition("="))
        if name in table:
            raise ValueError(f"class_weights gives '{name}' two weights: '{text}'")
        try:
            table[name] = float(number)
        except ValueError:
            # An empty name leads to the one error message below.
            name = ""
        if not name:
            raise ValueError(f"class_weights is none, balanced, or weights by label (spam=3,ham=0.5), not '{text}'")
    return table


def check_temperature(temperature: float) -> None:
    """Raise ValueError for a temperature below 0."""
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be above 0, or 0 to have it fitted, not {temperature:g}")


def softmax(scores: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Return the softmax of scores (K,) at a temperature; 0, which is not fitted yet, is 1."""
    # Subtracting the maximum avoids overflow.
    exponentials = np.exp((scores - scores.max()) / (temperature or 1))
    return exponentials / exponentials.sum()


def fit_temperature(
    temperature: float, predictions: Sequence[Prediction], records: Sequence[Record], *, weighed: bool = True
) -> tuple[float, Calibration | None]:
    """Return the temperature fitted to the records, and the calibration.

    No calibration if a temperature was given, there are too few rows, or the probabilities are not the model's
    (`weighed`).
    """
    calibration_data = columns(predictions, records) if weighed and not temperature else None
    calibration = calibrate(*calibration_data) if calibration_data else None
    return calibration.temperature if calibration else temperature or 1.0, calibration
