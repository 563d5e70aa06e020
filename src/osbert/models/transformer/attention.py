"""Attention: multi-head self-attention over flat tokens, around one of the kernels (kernels.py)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from osbert.models.architecture import Architecture
from osbert.models.contract import HeadVectors
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear, linear
from osbert.models.transformer.kernels import Kernel, fastest, weights
from osbert.models.transformer.layout import Layout, has_long, parts
from osbert.models.transformer.positions import TERMS, gather_scores, neighbours, rotate, score_distances, vector_scores
from osbert.models.transformer.relative import RelativeScores, table_biases


class Attention(nn.Module):
    """Multi-head self-attention over flat tokens. One product makes queries, keys and values; `kernel` attends.

    If heads share keys and values (Ainslie et al. 2023), a layer of its own, `query`, makes the queries. `matrices`:
    the names of the matrices stacked in the weight of each layer; `parts`: their number.
    """

    def __init__(self, architecture: Architecture, *, across: bool = False) -> None:
        """Make the linear layers; `across`: this is cross-attention, whose keys and values come from another text."""
        super().__init__()
        width = architecture.width
        self.relative = RelativeScores(architecture) if architecture.positions == "distances" else None
        biases = architecture.biases and self.relative is None  # u and v stand for them
        self.heads = architecture.heads
        self.dropout = architecture.attention_dropout
        self.kernel: Kernel = fastest
        self.distance_biases: Callable[..., Layout] = distance_biases
        self.query: Linear | None = None
        self.sharing = 1
        self.matrices: dict[str, tuple[str, ...]] = {"inward": ("query", "key", "value")}
        joined = inner = self.heads * architecture.key_width
        if architecture.key_heads or across:
            self.sharing = self.heads // (architecture.key_heads or self.heads)
            self.query = Linear(width, joined, bias=biases)
            self.matrices = {"query": ("query",), "inward": ("key", "value")}
            # Width of all keys: H / sharing heads of width K.
            inner = joined // self.sharing
        self.inward = Linear(width, len(self.matrices["inward"]) * inner, bias=biases)
        self.outward = Linear(joined, width, bias=biases)
        # Muon orthogonalises each of the stacked matrices by itself (training/optimizer.py).
        self.parts = {f"{name}.weight": len(parts) for name, parts in self.matrices.items()}
        distances = architecture.positions == "disentangled"
        self.distance_dropout = Dropout(architecture.dropout) if distances else nn.Identity()
        self.distance_inward: Linear | None = None
        if architecture.distance_projections:
            # Queries and keys of distances only: distances have no values.
            self.distance_inward = Linear(width, 2 * joined, bias=architecture.biases)
            self.parts["distance_inward.weight"] = 2

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Return (N, D) for `hidden` (N, D), or (R, D) if the layout has R queries."""
        return self.attend(*self.project(hidden, layout), layout)

    def across(self, hidden: Tensor, source: Tensor, layout: Layout) -> Tensor:
        """Cross-attention: return (R, D) for `hidden` (R, D) attending to the states `source` (N, D) of another text.

        `layout`: made by `Layout.across`.
        """
        return self.attend(self.queries(hidden), *self.keys(source), layout)

    def queries(self, hidden: Tensor) -> Tensor:
        """Return the queries (R, H, K) of cross-attention."""
        assert self.query is not None
        return self.query(hidden).unflatten(-1, (self.heads, -1))

    def keys(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values (N, H, K) of the source in cross-attention."""
        # One product for both: (N, 2 H' K) -> 2 x (N, H', K), where H' = H / sharing.
        key, value = self.inward(source).unflatten(-1, (2, self.heads // self.sharing, -1)).unbind(1)
        if self.sharing > 1:
            key, value = (part.repeat_interleave(self.sharing, dim=1) for part in (key, value))
        return key, value

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Tensor:
        """Attend: return (R, D) for queries (R, H, K), and keys and values (N, H, K)."""
        dropout = self.dropout if self.training else 0.0
        if not layout.plain:
            # Biases that were computed for the whole layout, with gradients, are not cut into blocks.
            if layout.biases is None and has_long(layout) and not dropout and not torch.is_grad_enabled():
                return self.outward(self.in_blocks(query, key, value, layout).flatten(1))
            query, layout = self._with_distances(query, key, layout)
        mixed = self.kernel(query, key, value, layout, dropout=dropout)
        # (R, H, K) -> (R, H K), the input of the output projection.
        return self.outward(mixed.flatten(1))

    def weights(self, hidden: Tensor, layout: Layout) -> list[Tensor]:
        """Return each sequence's attention weights (H, T, T) for the layer's input `hidden` (N, D), without dropout."""
        query, key, _ = self.project(hidden, layout)
        query, layout = self._with_distances(query, key, layout)
        return weights(query, key, layout)

    def head_vectors(self, hidden: Tensor, layout: Layout) -> HeadVectors:
        """Return the queries, keys, values and output matrices of the heads for the layer's input `hidden` (N, D)."""
        query, key, value = self.project(hidden, layout)
        outputs = self.outward.weight.unflatten(1, (self.heads, -1)).permute(1, 2, 0)  # (D, H, K) -> (H, K, D)
        return HeadVectors(queries=query, keys=key, values=value, outputs=outputs, is_biased=not layout.plain)

    def project_distances(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys (C, H, K) of the vectors of distances (C, D)."""
        vectors = self.distance_dropout(vectors)
        if self.distance_inward is not None:
            both = self.distance_inward(vectors)
        else:
            # Distances share the projections of tokens (DeBERTa's share_att_key): the first two thirds of `inward`.
            width, bias = 2 * self.outward.in_features, self.inward.bias
            both = linear(vectors, self.inward.weight[:width], None if bias is None else bias[:width])
        query, key = both.unflatten(-1, (2, self.heads, -1)).unbind(1)  # 2 x (C, H, K)
        return query * TERMS**-0.5, key

    @torch.no_grad()
    def face_neighbours(self, strength: float) -> None:
        """Initialise the query and key biases so that half of the heads attend to the previous or next token."""
        biases = neighbours(self.heads, self.outward.in_features // self.heads, strength)
        # `inward` stacks query, key and value: the first rows of its bias are those of query and key.
        self.inward.bias[: biases.numel()] = biases.flatten()

    def _with_distances(
        self, query: Tensor, key: Tensor, layout: Layout, vectors: Tensor | tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, Layout]:
        """Return the queries (R, H, K) and the layout with the biases of distances; unchanged if there are none.

        `vectors`: those of the layout's distances, if they have been projected already.
        """
        if layout.table is not None:
            return query, table_biases(layout)
        if layout.distances is None:
            return query, layout
        vectors = self._distance_vectors(layout) if vectors is None else vectors
        if self.relative is not None:
            assert isinstance(vectors, Tensor)
            return self.relative(query, layout, vectors)
        assert not isinstance(vectors, Tensor)
        query = query * TERMS**-0.5
        # DeBERTa divides scores by sqrt(3 K). The kernel divides by sqrt(K), so queries are scaled by 1 / sqrt(3).
        each = query.is_cuda and torch.is_grad_enabled()
        return query, self.distance_biases(query, key, vectors, layout, each=each)

    def _distance_vectors(self, layout: Layout) -> Tensor | tuple[Tensor, ...] | None:
        """Return the projected vectors of the layout's distances (W, H, K), or their queries and keys; or None."""
        if layout.distances is None:
            return None
        if self.relative is not None:
            return self.relative.vectors(layout)
        return self.project_distances(layout.distances.vectors)

    def in_blocks(self, query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Tensor:
        """Attend with the queries of long sequences in blocks: return (R, H, K). Without dropout and gradients."""
        vectors = self._distance_vectors(layout)
        mixed = []
        for part in parts(layout):
            prepared = vectors
            if isinstance(vectors, tuple) and has_long(part.layout):
                # All blocks use the scores of the keys, which are computed once.
                prepared = (*vectors, vector_scores(key[part.keys].transpose(0, 1)[None], vectors[0]))
            for block in part.blocks(self.heads):
                q, k, v = query[block.queries], key[block.keys], value[block.keys]
                q, biased = self._with_distances(q, k, block.layout, prepared)
                mixed.append(self.kernel(q, k, v, biased))
        return torch.cat(mixed)

    def project(self, hidden: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (R, H, K) of the tokens that have one, keys and values (N, H, K), with rotary positions."""
        if self.query is not None:
            query = self.query(layout.read_of(hidden)).unflatten(-1, (self.heads, -1))  # (R, H, K)
            # Grouped queries: fewer heads of keys and values than of queries.
            key, value = self.inward(hidden).unflatten(-1, (2, self.heads // self.sharing, -1)).unbind(1)
        elif layout.read is None:
            query, key, value = self.inward(hidden).unflatten(-1, (3, self.heads, -1)).unbind(1)  # 3 x (N, H, K)
        else:
            # `inward` stacks queries, keys and values: its weight is cut, to compute queries of R tokens only.
            width, weight, bias = self.outward.in_features, self.inward.weight, self.inward.bias
            first, others = (None, None) if bias is None else (bias[:width], bias[width:])
            query = linear(layout.read_of(hidden), weight[:width], first).unflatten(-1, (self.heads, -1))
            key, value = linear(hidden, weight[width:], others).unflatten(-1, (2, self.heads, -1)).unbind(1)
        if layout.turns is not None:
            # Before heads are repeated: each shared key is rotated once.
            query, key = rotate(query, layout.read_of(layout.turns)), rotate(key, layout.turns)
        if self.sharing > 1:
            key, value = (part.repeat_interleave(self.sharing, dim=1) for part in (key, value))  # 2 x (N, H, K)
        return query, key, value


def distance_biases(
    query: Tensor, key: Tensor, of_distances: tuple[Tensor, ...], layout: Layout, *, each: bool = False
) -> Layout:
    """Return the layout with the biases of distances for `query` (R, H, K) and `key` (N, H, K).

    `of_distances`: queries and keys of the layout's vectors of distances, each (W, H, K), and the scores (1, H, T, W)
    of the keys with these queries if they have been computed already. `each`: score every distance by itself, although
    some share a vector. That is more work, but makes gradients deterministic on a GPU: no two keys of a query have the
    same distance, so no two threads add to the same element.
    """
    assert layout.distances is not None
    # Tokens are flat: each run takes the next ones, queries and keys counted apart.
    rows, sizes = [run.queries for run in layout.runs], [run.tokens for run in layout.runs]
    columns = zip(
        layout.runs, layout.offsets, layout.distance_columns, query.split(rows), key.split(sizes), strict=True
    )
    vectors, known = of_distances[:2], of_distances[2:]
    biases = []
    for run, offsets, (used, index), q, k in columns:
        if each and layout.consecutive:
            # One copy of the vectors for each distance from -(length - 1) to length - 1.
            length = offsets.shape[-1]
            table_rows = layout.distances.rows_of(torch.arange(1 - length, length, device=index.device))
            parts = [functional.embedding(table_rows, part.flatten(1)).view(-1, *part.shape[1:]) for part in vectors]
            # Distance d has index d + length - 1.
            index = offsets + (length - 1)
        else:
            parts = [part[used] for part in vectors]
        q, k = run.spread(q).transpose(1, 2), run.keys(k).transpose(1, 2)  # (count, H, Q or T, K)
        if known:
            biases.append(gather_scores(vector_scores(q, parts[1]), known[0][..., : k.shape[2], used], index))
        else:
            biases.append(score_distances(q, k, parts, index))
    return layout.with_biases(biases)
