"""Span corruption: a decoder generates the spans that are missing in the source (T5, Raffel et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Integers
from osbert.data.pack import Packer
from osbert.text.file_tokenizer import AnyTokenizer, sentinel_ids
from osbert_lab.writing.decoder_inputs import decoder_example
from osbert_lab.writing.objectives.contract import WritingObjective


@dataclass(frozen=True, kw_only=True)
class Spans(WritingObjective):
    """Spans of a text are cut out and replaced with sentinels, and the decoder generates them (section 3.3.4).

    The source is the text with sentinel k instead of span k. The target is sentinel 0, span 0, sentinel 1, span 1, ...,
    and the end piece. There are at most as many spans as sentinels. Without sentinels, the mask is used for all spans.
    """

    title: ClassVar[str] = "missing spans"

    rate: float = 0.15
    """Fraction of a text's tokens that are cut out."""
    span: float = 3.0
    """Mean number of tokens in a span."""

    def __post_init__(self) -> None:
        """Raise ValueError for a rate outside (0, 1), and for a mean length of spans below 1."""
        if not 0 < self.rate < 1:
            raise ValueError(f"rate must be a fraction between 0 and 1, not {self.rate}")
        if not self.span >= 1:
            raise ValueError(f"span is the mean number of tokens in a span and must be at least 1, not {self.span}")

    def cut(self, tokens: int) -> tuple[int, int]:
        """Return the number of tokens that are cut out of `tokens`, and the number of spans.

        >>> Spans().cut(568), Spans().cut(4), Spans().cut(1)
        ((85, 28), (1, 1), (0, 0))
        """
        # At least one token is cut out and one is kept; a text of one token stays whole.
        noise = min(max(round(tokens * self.rate), 1), tokens - 1)
        # Every span is at least one token, and at least one kept token precedes each.
        return noise, min(max(round(noise / self.span), 1), noise, tokens - noise)

    def room(self, length: int, specials: int) -> int:
        """Return the most tokens of text, `specials` included, whose source fits into `length`.

        >>> Spans().room(512, 1)
        569
        """
        tokens = length - specials
        # One more token of text either lengthens the source by one, or is cut out: search from below.
        while (more := tokens + 1) - self.cut(more)[0] + self.cut(more)[1] <= length - specials:
            tokens = more
        return tokens + specials

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the spans as the decoder's text; its source is the text with sentinels instead of them."""
        form, tokenizer = packer.form, packer.tokenizer
        inside = slice(len(form.before), len(example) - len(form.after))
        ids = example.ids[inside].astype(np.int64)
        marks = sentinels(tokenizer)
        noise, count = self.cut(len(ids))
        # Two spans of a text never have the same sentinel: with few, the spans are longer. Only the mask may repeat.
        count = min(count, len(sentinel_ids(tokenizer)) or count)
        # Lengths of the kept parts and of the spans, in turn; a text begins with a kept part.
        text_lengths = pieces_of(len(ids) - noise, count, rng)
        span_lengths = pieces_of(noise, count, rng)
        bounds = np.cumsum(
            np.stack([text_lengths, span_lengths], axis=1).ravel()
        )  # text and span in turn; a span is the last
        source: list[Integers] = [np.array(form.before, np.int64)]
        text: list[Integers] = []
        begin = 0
        for number, (first, last) in enumerate(bounds.reshape(-1, 2).tolist()):
            # A slice, not an item: the parts are arrays that are concatenated.
            mark = marks[number % len(marks) : number % len(marks) + 1]
            source += [ids[begin:first], mark]
            text += [mark, ids[first:last]]
            begin = last
        # Nothing is left of `ids` if there is a span; without one this is the whole text.
        source += [ids[begin:], np.array(form.after, np.int64)]
        text.append(np.array([] if form.end is None else [form.end], np.int64))
        read = _sequence(source, len(form.before), len(form.after), example)
        return decoder_example(read, _sequence(text, 0, len(text[-1]), example), tokenizer, name=self.name)

    @property
    def asked(self) -> str:
        """Return the rate and its value."""
        return f"rate {self.rate:.0%}"


def sentinels(tokenizer: AnyTokenizer) -> Integers:
    """Return the ids of a tokenizer's sentinels, from number 0 on; if it has none, the id of its mask."""
    ids = sentinel_ids(tokenizer)
    return ids if len(ids) else np.array([tokenizer.mask], np.int64)


def pieces_of(total: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sample `count` lengths of at least 1 whose sum is `total`, uniformly among all such compositions.

    >>> pieces_of(3, 3, np.random.default_rng(0)).tolist()
    [1, 1, 1]
    """
    if not count:
        return np.zeros(0, np.int64)
    # Stars and bars: count - 1 distinct cuts in the total - 1 gaps between tokens.
    inner = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1 if count > 1 else np.zeros(0, np.int64)
    return np.diff(np.concatenate([[0], inner, [total]])).astype(np.int64)


def _sequence(parts: Sequence[Integers], before: int, after: int, example: Example) -> Example:
    """Return a sequence with the record of `example`, whose first `before` and last `after` tokens are special."""
    ids = np.concatenate(parts)
    indices = np.arange(len(ids))
    special = (indices < before) | (indices >= len(ids) - after)
    return Example(
        ids=ids,
        segments=np.zeros(len(ids), np.int8),
        words=~special,
        special=special,
        record=example.record,
        truncated=example.truncated,
    )
