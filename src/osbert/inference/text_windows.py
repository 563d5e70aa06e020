"""Splits a stream of texts into windows: large enough for efficient batches, small enough for memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from osbert.errors import Problems, UserError

ROWS, CHARACTERS = 1024, 2**19
"""Most texts in a window, and about the most characters: how far the input is read ahead of the output."""

Text = str | tuple[str, ...]
"""One text, a pair, or all texts that a task reads together, in the task's order."""
Sample = tuple[str, ...]
"""The texts that are read together, as a tuple."""


def samples(texts: Iterable[Text], call: str) -> list[Sample]:
    """Return the samples. Raises TypeError if `texts` is not a list, UserError that lists every item without text.

    >>> samples(["a", ("b", "c")], "predict")
    [('a',), ('b', 'c')]
    """
    if isinstance(texts, str | bytes | Mapping) or hasattr(texts, "columns"):
        what = "[text]" if isinstance(texts, str) else "of one column, table['text']"
        raise TypeError(f"{call} takes a list of texts, not {type(texts).__name__}: {call}({what})")
    if not isinstance(texts, Iterable):
        raise TypeError(f"{call} takes a list of texts, not {type(texts).__name__}: {call}([text])")
    valid_samples, problems = [], Problems(heading=f"{call} takes texts, or tuples of texts")
    for index, given in enumerate(texts):
        sample, problem = _sample(given)
        if problem:
            problems.add(f"texts[{index}] {problem}", code="invalid-value")
        valid_samples.append(sample)
    problems.stop_if_any()
    return valid_samples


def windows(texts: Iterator[Text], call: str) -> Iterator[tuple[int, list[Sample]]]:
    """Yield (index of the first sample, samples) for each window of an iterator.

    If the iterator raises, or an item is not a text (UserError), the samples before it are yielded first.

    >>> list(windows(iter(["a", ("b", "c")]), "predict"))
    [(0, [('a',), ('b', 'c')])]
    """
    window: list[Sample] = []
    first = size = 0
    try:
        for index, given in enumerate(texts):
            sample, problem = _sample(given)
            if problem:
                raise UserError(
                    f"{call} takes texts, or tuples of texts: texts[{index}] {problem}", code="invalid-value"
                )
            window.append(sample)
            size += sum(map(len, sample))
            if len(window) >= ROWS or size >= CHARACTERS:
                whole, window, size = window, [], 0
                yield first, whole
                first = index + 1
    except Exception:
        if window:
            yield first, window
        raise
    if window:
        yield first, window


def _sample(given: Any) -> tuple[Sample, str]:
    """Return a sample as a tuple, and a problem with it, "" for none."""
    group = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    sample: tuple[Any, ...] = tuple(given) if group else (given,)
    is_text = sample and all(isinstance(text, str) for text in sample)
    return sample, "" if is_text else f"is {given!r:.60}, no text."
