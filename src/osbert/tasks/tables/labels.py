"""Known labels in messages, and the report of unknown ones."""

from __future__ import annotations

from collections.abc import Sequence

from osbert.errors import Problems, nearest
from osbert.terminal import one_line

LISTED = 10
"""Most labels that a message lists."""


def list_labels(labels: Sequence[str]) -> str:
    """Return the first labels, and how many more there are.

    >>> list_labels(["a", "b"]), list_labels([*"abcdefghijkl"])
    ('a, b', 'a, b, c, d, e, f, g, h, i, j and 2 more')
    """
    first_labels = one_line(", ".join(labels[:LISTED]))
    return first_labels if len(labels) <= LISTED else f"{first_labels} and {len(labels) - LISTED} more"


def note_unknown(label: str, known: Sequence[str], *, location: str, problems: Problems) -> None:
    """Report a label that was not seen in training, with the most similar known one."""
    problems.add(
        f"{location}: unknown label '{one_line(label)}' (known: "
        f"{list_labels(known)}).{one_line(nearest(label, known))}",
        code="unknown-label",
    )
