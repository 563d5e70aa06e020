"""The blocks of a Transformer for generation steps: few rows, no gradients, weights prepared once.

A step reads one piece of each row, so most of its time is reading the weights and calling small products. Therefore the
parts of each block are looked up once, and for longer texts its matrices are copied in the order in which they are read
fastest: transposed for one row, else in oneDNN's order. A product of few rows then takes about half the time. `Block`
is the definition; tests compare both.

The keys and values of all tokens read so far are cached, so that a step computes its new token only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from osbert.models.fast.linear import is_compiled, spares_time
from osbert.models.transformer.attention import Attention
from osbert.models.transformer.block import Block, ResidualOrder, StateFunction
from osbert.models.transformer.positions import rotate
from osbert_lab.writing.decoder_block import DecoderBlock


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


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values (rows, Q, H, K) of the new tokens -> the output of attention (rows, Q, H, K)."""
AcrossAttend = Callable[[Tensor], Tensor]
"""The same for cross-attention: queries (rows, Q, H, K) -> output, with the keys and values of a source."""
WORTHWHILE = 8
"""Fewest pieces of a text for which weights are laid out anew: that takes about as long as two or three steps."""
MANY = 32
"""Rows of a step for which weights are laid out if there is more than one."""


class StepProduct:
    """A linear layer or a product with a table, (M, inputs) -> (M, outputs), in a fixed precision."""

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: torch.dtype) -> None:
        """Take weight (outputs, inputs) and bias (outputs,). They are copied only if their precision differs."""
        self.weight = weight.detach().to(precision)
        self.bias = None if bias is None else bias.detach().to(precision)
        self.precision = precision
        self.order: Literal["plain", "transposed", "blocked"] = "plain"

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the product (M, outputs) in the precision of the weight; rows of another precision are converted."""
        rows = rows.to(self.precision)
        if self.order == "transposed":
            return rows @ self.weight if self.bias is None else torch.addmm(self.bias, rows, self.weight)
        if self.order == "plain":
            return functional.linear(rows, self.weight, self.bias)
        # The operator that accepts a reordered weight; "none": no activation is fused with it.
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.weight, self.bias, "none", [], "")
        return product

    def lay_out(self, rows: int) -> None:
        """Replace the weight by a copy in the order that is fastest for products of about `rows` rows, if any is."""
        if not is_laid_out(self.weight.device, self.precision):
            return
        outputs, inputs = self.weight.shape
        if rows == 1 and self.precision == torch.float32 and outputs > inputs:
            # MKL adds up the rows of a transposed matrix twice as fast as it computes dot products with its rows. If
            # there are more inputs than outputs, the sums are read and written so often that it is slower.
            self.weight, self.order = self.weight.t().contiguous(), "transposed"
        else:
            self.weight, self.order = torch.ops.mkldnn._reorder_linear_weight(self.weight, rows), "blocked"


def is_laid_out(device: torch.device, precision: torch.dtype) -> bool:
    """Return whether another order of weights is faster: for bf16 where oneDNN has it, for float32 where it is faster.

    oneDNN multiplies in bf16 on CPUs with AVX-512 or later alone.
    """
    if device.type != "cpu":
        return False
    if is_compiled(device.type, precision):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return spares_time()


class StepAttention:
    """The products of a self-attention or cross-attention."""

    def __init__(self, attention: Attention, precision: torch.dtype) -> None:
        """Look up the parts of `attention`."""
        self.heads, self.sharing = attention.heads, attention.sharing
        query = attention.query
        self.query = None if query is None else StepProduct(query.weight, query.bias, precision)
        self.inward = StepProduct(attention.inward.weight, attention.inward.bias, precision)
        self.outward = StepProduct(attention.outward.weight, attention.outward.bias, precision)

    @property
    def products(self) -> list[StepProduct]:
        """Return the matrix products of a step, whose weights are kept in its precision."""
        return [self.inward, self.outward, *([] if self.query is None else [self.query])]

    def project(self, hidden: Tensor, turns: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries, keys and values (M, H, K) of new tokens (M, D)."""
        if self.query is None:
            # One product for all three: the rows of `inward` are stacked as query, key, value.
            query, key, value = self.inward(hidden).unflatten(-1, (3, self.heads, -1)).unbind(1)
        else:
            query = self.query(hidden).unflatten(-1, (self.heads, -1))
            # Grouped queries: keys and values have fewer heads than queries.
            key, value = self.inward(hidden).unflatten(-1, (2, self.heads // self.sharing, -1)).unbind(1)
        # Keys are rotated before they are cached, so that a step rotates only the new tokens.
        if turns is not None:
            query, key = rotate(query, turns), rotate(key, turns)
        if self.sharing > 1:
            # Each key head serves `sharing` neighbouring query heads; repeated, kernels need no special case.
            key, value = (part.repeat_interleave(self.sharing, dim=1) for part in (key, value))
        return query, key, value


def _same(rows: Tensor) -> Tensor:
    return rows


class StepBlock(ResidualOrder):
    """A block: states (M, D) of new tokens -> (M, D), with M = rows * Q."""

    dropout = staticmethod(_same)
    up: StepProduct
    down: StepProduct

    def __init__(self, block: Block, precision: torch.dtype) -> None:
        """Look up the parts of `block`, whose model is in evaluation mode."""
        self.before = block.before
        self.attention = StepAttention(block.attention, precision)
        self.attention_norm = row_function(block.attention_norm)
        self.feedforward_norm = row_function(block.feedforward_norm)
        self.up = StepProduct(block.up.weight, block.up.bias, precision)
        self.down = StepProduct(block.down.weight, block.down.bias, precision)
        self.activation, self.gated = block.activation, block.gated
        adapters = (block.attention_adapter, block.feedforward_adapter)
        self.attention_adapter, self.feedforward_adapter = (row_function(adapter) for adapter in adapters)
        self.cross: StepAttention | None = None
        if isinstance(block, DecoderBlock):
            self.cross = StepAttention(block.cross, precision)
            self.cross_norm = row_function(block.cross_norm)

    def lay_out(self, rows: int) -> None:
        """Reorder the weights for products of about `rows` rows."""
        # Not `inward` of cross-attention: the keys and values of the source are computed once for a text.
        across = [] if self.cross is None else [part for part in (self.cross.query, self.cross.outward) if part]
        for product in (*self.attention.products, self.up, self.down, *across):
            product.lay_out(rows)

    def __call__(
        self,
        hidden: Tensor,
        attend: Attend,
        *,
        shape: tuple[int, int],
        turns: Tensor | None,
        across: AcrossAttend,
    ) -> Tensor:
        """Return the block's output (M, D). `shape`: (rows, Q)."""
        attention = self.attention
        parts = attention.project(self.attention_input(hidden), turns)
        # (M, H, K) -> (rows, Q, H, K) for the kernel, which keeps the cache.
        mixed = attend(*(part.unflatten(0, shape) for part in parts))
        hidden = self.add_attention(hidden, attention.outward(mixed.flatten(2).flatten(0, 1)))
        if self.cross is not None and self.cross.query is not None:
            query = self.cross.query(self.cross_input(hidden))
            mixed = across(query.unflatten(-1, (self.cross.heads, -1)).unflatten(0, shape))
            hidden = self.add_source(hidden, self.cross.outward(mixed.flatten(2).flatten(0, 1)))
        return self.add_feedforward(hidden)


def row_function(module: nn.Module) -> StateFunction:
    """Return a norm as a plain function, which saves the calls of `nn.Module`; other modules are returned unchanged."""
    if isinstance(module, nn.Identity):
        return _same
    if isinstance(module, nn.LayerNorm):
        shape, weight, bias = module.normalized_shape, module.weight, module.bias
        return partial(functional.layer_norm, normalized_shape=shape, weight=weight, bias=bias, eps=module.eps)
    if isinstance(module, nn.RMSNorm):
        return partial(
            functional.rms_norm, normalized_shape=module.normalized_shape, weight=module.weight, eps=module.eps
        )
    return module


class StepKind(NamedTuple):
    """How weights are prepared: the precision of products, and the rows that they are laid out for, or 0.

    It follows from a call alone, never from calls before it, so that a repeated call gives the same bits.
    """

    precision: torch.dtype
    rows: int

    @classmethod
    def of(cls, precision: torch.dtype, *, rows: int, most: int) -> StepKind:
        """Return the kind for steps of at most `rows` tokens and texts of at most `most` pieces."""
        return cls(precision, 0 if most < WORTHWHILE else 1 if rows == 1 else MANY)


def measure_copies(blocks: Sequence[Block], pieces: Tensor, kind: StepKind) -> int:
    """Return the most bytes that StepWeights of these take beside the model itself."""
    if kind.precision == pieces.dtype and not (kind.rows and is_laid_out(pieces.device, kind.precision)):
        return 0
    # A copy in another precision is replaced by its copy in another order: there is one of each matrix.
    matrices = [matrix for block in dict.fromkeys(blocks) for matrix in block.parameters() if matrix.ndim == 2]
    return sum(matrix.numel() for matrix in [*matrices, pieces]) * kind.precision.itemsize


class StepWeights:
    """The blocks of a model and the table of its scores, ready for steps of one kind."""

    def __init__(self, blocks: Sequence[Block], pieces: Tensor, bias: Tensor, kind: StepKind) -> None:
        """Look up the parts of the blocks, lowest first; `pieces` (V, D') and `bias` (V,) are the output layer."""
        # dict.fromkeys removes duplicates and keeps the order.
        step_blocks = {
            block: StepBlock(block, kind.precision) for block in dict.fromkeys(blocks)
        }  # layers may share one
        self.blocks = [step_blocks[block] for block in blocks]
        self.pieces = StepProduct(pieces, bias, kind.precision)
        if kind.rows:
            for block in step_blocks.values():
                block.lay_out(kind.rows)
            self.pieces.lay_out(kind.rows)
