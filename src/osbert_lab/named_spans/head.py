"""The head of spans by name: states of words and of type markers -> a score for each span and type.

A span is represented by MLP([start; end]) of the states of its first and its last word, a type by MLP(state), and the
score is their dot product (Zaratiana et al. 2024, section 2.2). The state is that of the type's marker in published
models, and in new ones the mean of its marker and its pieces: at first all markers have nearly the same state, so that
a head that reads them alone learns what a span is long before it distinguishes types. The last two products are taken
in the other order: (W h) . t = h . (W^T t), which costs a product per type, not one per output of the span's layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Head, Loss, States
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear

FACTOR = 4
"""Width of the inner layer of each MLP, in widths of its output."""
LOGIT = -5.0
"""The mean logit of a new head: one span of 150 is of a type."""


class Projection(nn.Module):
    """(M, D) -> (M, E): two layers with a ReLU between them."""

    def __init__(self, width: int, outputs: int, dropout: float) -> None:
        """Make the layers, which keep the size of their input (He et al. 2015, equation 10)."""
        super().__init__()
        self.inner = Linear(width, FACTOR * outputs)
        self.dropout = Dropout(dropout)
        self.outer = Linear(FACTOR * outputs, outputs)
        for layer in (self.inner, self.outer):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear" if layer is self.inner else "relu")
            nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Return the projected states."""
        return self.outer(self.dropout(functional.relu(self.inner(states))))


class NamedSpanHead(Head):
    """States (N, D) -> logits (N, width * C): at the first word of a span, by its number of words and its type.

    C is the largest number of types of a sequence in the batch. Rows and columns without a span or a type are 0.
    """

    def __init__(
        self, backbone: Backbone, *, target: str, width: int, hidden: int, recurrent: bool, marker: int, pooled: bool
    ) -> None:
        """Stand on `backbone`.

        `width`: words of the longest span. `hidden`: width D of the layers. `recurrent`: whether there is an LSTM over
        words. `marker`: the piece before each type. `pooled`: whether the state of a type is that of all its pieces.
        """
        super().__init__()
        sizes = backbone.architecture
        self.target, self.width, self.marker, self.pooled = target, width, marker, pooled
        self.project = nn.Identity() if hidden == sizes.width else Linear(sizes.width, hidden)
        self.recurrent = nn.LSTM(hidden, hidden // 2, bidirectional=True) if recurrent else None
        self.start = Projection(hidden, hidden, sizes.dropout)
        self.end = Projection(hidden, hidden, sizes.dropout)
        self.span = Projection(2 * hidden, hidden, sizes.dropout)
        self.query = Projection(hidden, hidden, sizes.dropout)
        # Scores begin with a size of 1 around LOGIT, as hardly any span is of a type. With scores around 0 training
        # would take hundreds of steps to learn that alone.
        with torch.no_grad():
            self.query.outer.weight /= hidden**0.25
            self.query.outer.bias.fill_(hidden**-0.5)
            self.span.outer.bias.fill_(LOGIT * hidden**-0.5)

    @property
    def per_token(self) -> bool:
        """Return True: the rows are those of tokens."""
        return True

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the logits (N, width * C)."""
        assert batch.head_words is not None
        counts = [int(count) for count in self._count(self._markers(batch), batch)]
        most = max(1, *counts)
        table = states.hidden.new_zeros(len(batch.ids), self.width, most)
        tokens = batch.head_words.nonzero().squeeze(1)
        for first, count, logits in self._score_in_float32(states, batch):
            starts, lasts = _list_spans(count, self.width, tokens.device)
            table[tokens[first + starts], lasts - starts, : logits.shape[1]] = logits.to(table.dtype)
        return table.flatten(1)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed binary cross-entropy over all spans and types; the mean is over words and gold spans."""
        assert batch.head_words is not None
        target = batch.targets[self.target]
        ranks = batch.head_words.cumsum(0) - 1  # (N,): the index of a word among those of the batch
        gold = target.labels >= 0
        words, labels = ranks[target.index[gold]], target.labels[gold]
        total = states.hidden.new_zeros((), dtype=torch.float32)
        for first, count, logits in self._score_in_float32(states, batch):
            inside = (words >= first) & (words < first + count)
            longer = labels[inside] % self.width  # words behind the first one
            rows = longer * count - longer * (longer - 1) // 2 + words[inside] - first  # behind all shorter spans
            truth = torch.zeros_like(logits)
            truth[rows, labels[inside] // self.width] = 1.0
            total = total + functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
        return Loss(total=total, count=target.count)

    def _markers(self, batch: Batch) -> Tensor:
        """Return which tokens (N,) mark a type."""
        return (batch.ids == self.marker) & ~batch.head_words if batch.head_words is not None else batch.ids < 0

    def _count(self, mask: Tensor, batch: Batch) -> list[int]:
        """Return how many tokens of each sequence a mask (N,) has."""
        sums = functional.pad(mask.cumsum(0), (1, 0))
        bounds = functional.pad(batch.starts, (0, 1), value=len(mask))
        return torch.diff(sums[bounds]).tolist()

    def _score_in_float32(self, states: States, batch: Batch) -> Iterator[tuple[int, int, Tensor]]:
        """Yield what `_score` yields, without bf16: on CPUs each new shape of a product would be compiled for it."""
        with torch.autocast(states.hidden.device.type, enabled=False):
            yield from self._score(states, batch)

    def _score(self, states: States, batch: Batch) -> Iterator[tuple[int, int, Tensor]]:
        """Yield, for each sequence with words and types: the index of its first word in the batch, the number of its
        words, and the logits (P, C) of its spans in the order of `_list_spans`."""
        assert batch.head_words is not None
        markers = self._markers(batch)
        type_counts, word_counts = self._count(markers, batch), self._count(batch.head_words, batch)
        words = self._mix(self.project(states.hidden[batch.head_words].float()), word_counts)
        read = self._pool_types(states, markers, batch.head_words) if self.pooled else states.hidden[markers].float()
        types = self.query(self.project(read))  # (all types, D)
        # The span's layers, apart: W_1 [s; e] is a sum of two products, and W_2 acts on the types.
        left, right = self.span.inner.weight.chunk(2, dim=1)
        starts = functional.linear(functional.relu(self.start(words)), left, self.span.inner.bias)  # (words, 4 D)
        ends = functional.linear(functional.relu(self.end(words)), right)
        queries, offsets = types @ self.span.outer.weight, types @ self.span.outer.bias  # (types, 4 D), (types,)
        queries = self.span.dropout(queries)  # by type, not by span: each score loses as many products, for less work
        first_word = first_type = 0
        for count, number in zip(word_counts, type_counts, strict=True):
            if count and number:
                part, text = slice(first_type, first_type + number), slice(first_word, first_word + count)
                scores: Tensor = _SpanScores.apply(starts[text], ends[text], queries[part], self.width)
                yield first_word, count, scores + offsets[part]  # (P, C)
            first_word, first_type = first_word + count, first_type + number

    def _pool_types(self, states: States, markers: Tensor, words: Tensor) -> Tensor:
        """Return the mean state of each type's marker and pieces, up to the next marker or the piece before a word."""
        firsts, starts, count = markers.nonzero().squeeze(1), words.nonzero().squeeze(1), len(markers)
        following = torch.cat([firsts[1:], firsts.new_tensor([count])])
        text = torch.cat([starts, starts.new_tensor([count])])[torch.searchsorted(starts, firsts)] - 1
        lengths = (torch.minimum(following, text) - firsts).clamp(min=1)  # the marker at least, without a separator too
        rows = torch.arange(len(firsts), device=firsts.device).repeat_interleave(lengths)  # the type of each piece
        behind = torch.arange(len(rows), device=rows.device) - (lengths.cumsum(0) - lengths)[rows]
        sums = states.hidden.new_zeros(len(firsts), states.hidden.shape[1], dtype=torch.float32)
        return sums.index_add(0, rows, states.hidden[firsts[rows] + behind].float()) / lengths[:, None]

    def _mix(self, words: Tensor, counts: list[int]) -> Tensor:
        """Return the states of words after the LSTM over each sequence, if there is one."""
        if self.recurrent is None or not len(words):
            return words
        parts = words.split([count for count in counts if count])  # sequences without a word are left out
        mixed, _ = self.recurrent(pack_sequence(list(parts), enforce_sorted=False))
        return torch.cat(unpack_sequence(mixed))


class _SpanScores(torch.autograd.Function):
    """Starts and ends of words (n, E), queries (C, E) -> relu(start + end) . query for each span (P, C).

    The sums, E numbers for each span, are made while they are in the processor's cache, and again in the backward pass.
    Automatic differentiation would keep them in memory in four forms: gathered twice, added, and after the ReLU.
    """

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        starts, ends, queries, width = given
        ctx.save_for_backward(starts, ends, queries)
        ctx.width = width
        return _add_ends(starts, ends, width) @ queries.T

    @staticmethod
    def backward(ctx: Any, *towards: Any) -> Any:
        starts, ends, queries = ctx.saved_tensors
        inner = _add_ends(starts, ends, ctx.width)
        to_queries = towards[0].T @ inner
        to_inner = torch.ops.aten.threshold_backward(towards[0] @ queries, inner, 0.0)  # the derivative of the ReLU
        to_starts, to_ends = torch.zeros_like(starts), torch.zeros_like(ends)
        for longer, part in _parts_by_width(len(starts), ctx.width):
            to_starts[: len(starts) - longer] += to_inner[part]
            to_ends[longer:] += to_inner[part]
        return to_starts, to_ends, to_queries, None


def _add_ends(starts: Tensor, ends: Tensor, width: int) -> Tensor:
    """Return relu(start + end) for each span (P, E)."""
    parts = [*_parts_by_width(len(starts), width)]
    inner = starts.new_empty(parts[-1][1].stop, starts.shape[1])
    for longer, part in parts:
        torch.add(starts[: len(starts) - longer], ends[longer:], out=inner[part])
    return inner.relu_()


def _parts_by_width(count: int, width: int) -> Iterator[tuple[int, slice]]:
    """Yield the spans of 1, 2, ... words among `count`, as the number of words less one and their part of all spans."""
    begin = 0
    for longer in range(min(width, count)):
        yield longer, slice(begin, begin + count - longer)
        begin += count - longer


def _list_spans(count: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the first and the last words (P,) of all spans of at most `width` among `count` words, the shortest
    first."""
    words = torch.arange(count, device=device)
    parts = [(words[: count - longer], words[longer:]) for longer in range(min(width, count))]
    first, last = (torch.cat(ends) for ends in zip(*parts))
    return first, last
