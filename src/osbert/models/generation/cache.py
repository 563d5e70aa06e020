"""The cache of keys and values of all tokens read so far, so that a step computes its new token only."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


class KeyValueCache:
    """The keys and values (rows, room, H, K) of each layer. The first `lengths` (rows,) columns of a row are filled.

    `shared`: number of first columns that belong to the prompt in every row.
    """

    def __init__(self, lengths: Tensor, *, layers: int, room: int) -> None:
        """Start with rows of `lengths` tokens, and room for `room` tokens each."""
        self.lengths = lengths
        self.used = int(lengths.max())
        self.shared = int(lengths.min())
        self.room = room
        # Rows grow by one token each, so equal lengths stay equal.
        self.even = self.used == self.shared
        self.keys: list[Tensor] = [lengths.new_empty(0)] * layers
        self.values: list[Tensor] = [lengths.new_empty(0)] * layers

    def fill(self, layer: int, key: Tensor, value: Tensor, cells: Tensor) -> None:
        """Store keys and values (N, H, K) of a layer; `cells` (N,) are row * room + column."""
        for tensors, given in ((self.keys, key), (self.values, value)):
            tensors[layer] = rectangle(given, cells, len(self.lengths), self.room)

    def reserve(self, layer: int, key: Tensor, precision: torch.dtype) -> None:
        """Make room for a layer's keys and values, of the shape of `key` (rows, Q, H, K), where no prompt was read."""
        for tensors in (self.keys, self.values):
            tensors[layer] = key.new_zeros(len(key), self.room, *key.shape[2:], dtype=precision)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, added: Tensor | None) -> Tensor:
        """Store Q new keys and values of each row, and return attention's output; all are (rows, Q, H, K).

        `added` (rows or 1, H or 1, Q, used + Q): bias of the scaled scores, -inf for masked keys; None for no bias.
        """
        keys, values = self.keys[layer], self.values[layer]
        query, key, value = query.to(keys.dtype), key.to(keys.dtype), value.to(keys.dtype)
        end = self.used + query.shape[1]
        if self.even:
            # All rows have the same length: one slice. Otherwise an index per row.
            keys[:, self.used : end], values[:, self.used : end] = key, value
        else:
            rows, columns = torch.arange(len(self.lengths), device=key.device)[:, None], self.columns(query.shape[1])
            keys[rows, columns], values[rows, columns] = key, value
        # Only the columns in use; those of shorter rows beyond their end are masked by `added`.
        keys, values = keys[:, :end].transpose(1, 2), values[:, :end].transpose(1, 2)  # (rows, H, T, K)
        mixed = functional.scaled_dot_product_attention(query.transpose(1, 2), keys, values, attn_mask=added)
        # (rows, H, Q, K) -> (rows, Q, H, K).
        return mixed.transpose(1, 2)

    def columns(self, count: int) -> Tensor:
        """Return the columns (rows, count) of each row's next `count` tokens."""
        return self.lengths[:, None] + torch.arange(count, device=self.lengths.device)

    def advance(self) -> None:
        """Keep the first token of the last step; the next step overwrites the others."""
        self.lengths = self.lengths + 1
        self.used += 1

    def choose(self, rows: Tensor, *, related: bool) -> None:
        """Continue with these rows (rows',); `related`: each has the same prompt as the row that it replaces."""
        self.lengths = self.lengths[rows]
        # Related rows: only those that change their index have to be copied.
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1) if related else rows
        for tensors in (self.keys, self.values):
            for layer, whole in enumerate(tensors):
                if related:  # prompts stay, and so do rows that keep their index: copy the rest
                    written = slice(self.shared, self.used)
                    # The right side is an advanced index, hence a copy: rows may be exchanged in place.
                    whole[moved, written] = whole[rows[moved], written]
                else:
                    tensors[layer] = whole[rows]


def rectangle(part: Tensor, cells: Tensor, rows: int, room: int) -> Tensor:
    """Return `part` (N, H, K) as (rows, room, H, K); `cells` (N,) are row * room + column.

    Unused columns are 0, not uninitialised: attention multiplies them by a weight of 0, and 0 * NaN is NaN.
    """
    return part.new_zeros(rows * room, *part.shape[1:]).index_copy_(0, cells, part).unflatten(0, (rows, room))
