"""Texts that come one by one -> windows of them: as many together as help the speed, and few enough for memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from osbert.errors import Problems, UserError

ROWS, CHARACTERS = 1024, 2**19
"""Most texts of a window, and about the most characters: how far a window reads ahead of what was given back."""

Text = str | tuple[str, ...]
"""One text, or two that make a pair; for a task that reads more, all of them in its order."""
Sample = tuple[str, ...]
"""The texts that are read together."""


def samples(texts: Iterable[Text], call: str) -> list[Sample]:
    """Return the texts of each sample. Raises TypeError at what is no list of them, UserError at all that are no text.

    >>> samples(["a", ("b", "c")], "predict")
    [('a',), ('b', 'c')]
    """
    if isinstance(texts, str | bytes | Mapping) or hasattr(texts, "columns"):
        what = "[text]" if isinstance(texts, str) else "of one column, table['text']"
        raise TypeError(f"{call} takes a list of texts, not {type(texts).__name__}: {call}({what})")
    if not isinstance(texts, Iterable):
        raise TypeError(f"{call} takes a list of texts, not {type(texts).__name__}: {call}([text])")
    found, problems = [], Problems(heading=f"{call} takes texts, or tuples of texts")
    for place, given in enumerate(texts):
        sample, problem = _sample(given)
        if problem:
            problems.add(f"texts[{place}] {problem}", code="invalid-value")
        found.append(sample)
    problems.stop_if_any()
    return found


def windows(texts: Iterator[Text], call: str) -> Iterator[tuple[int, list[Sample]]]:
    """Yield the samples of an iterator, a window at a time, each with the index of its first.

    What the iterator raises, and UserError at what is no text, comes when the window before it was yielded.

    >>> list(windows(iter(["a", ("b", "c")]), "predict"))
    [(0, [('a',), ('b', 'c')])]
    """
    window: list[Sample] = []
    first = size = 0
    try:
        for place, given in enumerate(texts):
            sample, problem = _sample(given)
            if problem:
                raise UserError(
                    f"{call} takes texts, or tuples of texts: texts[{place}] {problem}", code="invalid-value"
                )
            window.append(sample)
            size += sum(map(len, sample))
            if len(window) >= ROWS or size >= CHARACTERS:
                whole, window, size = window, [], 0
                yield first, whole
                first = place + 1
    except Exception:
        if window:
            yield first, window
        raise
    if window:
        yield first, window


def _sample(given: Any) -> tuple[Sample, str]:
    """Return the texts of a sample, and what is wrong with it, "" for nothing."""
    group = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    sample: tuple[Any, ...] = tuple(given) if group else (given,)
    is_text = sample and all(isinstance(text, str) for text in sample)
    return sample, "" if is_text else f"is {given!r:.60}, no text."
