"""Known labels in messages, and the report of unknown ones."""

from __future__ import annotations

from collections.abc import Sequence

from osbert.errors import Problems, nearest
from osbert.terminal import one_line

LISTED = 10
"""Most labels that a message lists."""


def listed_labels(labels: Sequence[str]) -> str:
    """Return the first labels, and how many more there are.

    >>> listed_labels(["a", "b"]), listed_labels([*"abcdefghijkl"])
    ('a, b', 'a, b, c, d, e, f, g, h, i, j and 2 more')
    """
    shown = one_line(", ".join(labels[:LISTED]))
    return shown if len(labels) <= LISTED else f"{shown} and {len(labels) - LISTED} more"


def note_unknown(label: str, known: Sequence[str], *, place: str, problems: Problems) -> None:
    """Report a label that was not seen in training, with the most similar known one."""
    problems.add(
        f"{place}: unknown label '{one_line(label)}' (known: {listed_labels(known)}).{one_line(nearest(label, known))}",
        code="unknown-label",
    )
