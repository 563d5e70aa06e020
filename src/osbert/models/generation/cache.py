"""The keys and values of all tokens that were read, so that each step reads its new token alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


class KeyValueCache:
    """Of each layer the keys and values (rows, room, H, K); of a row they lie from the left, `lengths` (rows,) of them.

    `shared`: so many first columns are the same in all rows that came of one prompt.
    """

    def __init__(self, lengths: Tensor, *, layers: int, room: int) -> None:
        """Begin with rows of `lengths` tokens, and room for `room` tokens each."""
        self.lengths = lengths
        self.used = int(lengths.max())
        self.shared = int(lengths.min())
        self.room = room
        self.even = self.used == self.shared
        self.keys: list[Tensor] = [lengths.new_empty(0)] * layers
        self.values: list[Tensor] = [lengths.new_empty(0)] * layers

    def fill(self, layer: int, key: Tensor, value: Tensor, places: Tensor) -> None:
        """Keep keys and values (N, H, K) of a layer; `places` (N,) are row * room + column."""
        for kept, given in ((self.keys, key), (self.values, value)):
            kept[layer] = rectangle(given, places, len(self.lengths), self.room)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, added: Tensor | None) -> Tensor:
        """Keep each row's Q new keys and values (rows, Q, H, K), and return what `query` (rows, Q, H, K) takes of all.

        `added` (rows or 1, H or 1, Q, used + Q): to the scaled scores, -inf where a key is not seen; None for nothing.
        """
        keys, values = self.keys[layer], self.values[layer]
        query, key, value = query.to(keys.dtype), key.to(keys.dtype), value.to(keys.dtype)
        end = self.used + query.shape[1]
        if self.even:
            keys[:, self.used : end], values[:, self.used : end] = key, value
        else:
            rows, columns = torch.arange(len(self.lengths), device=key.device)[:, None], self.columns(query.shape[1])
            keys[rows, columns], values[rows, columns] = key, value
        keys, values = keys[:, :end].transpose(1, 2), values[:, :end].transpose(1, 2)  # (rows, H, T, K)
        mixed = functional.scaled_dot_product_attention(query.transpose(1, 2), keys, values, attn_mask=added)
        return mixed.transpose(1, 2)

    def columns(self, count: int) -> Tensor:
        """Return where each row's next `count` tokens go, (rows, count)."""
        return self.lengths[:, None] + torch.arange(count, device=self.lengths.device)

    def advance(self) -> None:
        """Count the first token of the last step as kept; those behind it are written over by the next step."""
        self.lengths = self.lengths + 1
        self.used += 1

    def choose(self, rows: Tensor, *, related: bool) -> None:
        """Go on with these rows (rows',); `related`: each has the prompt of the row whose place it takes."""
        self.lengths = self.lengths[rows]
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1) if related else rows
        for kept in (self.keys, self.values):
            for layer, whole in enumerate(kept):
                if related:  # the prompts stay where they are, and so do rows that go on in their own place
                    written = slice(self.shared, self.used)
                    whole[moved, written] = whole[rows[moved], written]
                else:
                    kept[layer] = whole[rows]


def rectangle(part: Tensor, places: Tensor, rows: int, room: int) -> Tensor:
    """Return `part` (N, H, K) as (rows, room, H, K); `places` (N,) are row * room + column.

    It is 0 where no token is: what lies behind a row's tokens is multiplied by 0, which NaN would outlive.
    """
    return part.new_zeros(rows * room, *part.shape[1:]).index_copy_(0, places, part).unflatten(0, (rows, room))
