"""Kernels: functions of one signature that compute attention by the rule of layout.py.

`reference` is the definition, written out; `sdpa` computes the same with torch's fused attention, one call for each
run of sequences of equal length or band of a local layer; `fastest` chooses by processor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from osbert.models.fast.dropout import dropout as drop
from osbert.models.transformer.dropped_attention import attend
from osbert.models.transformer.kernels_cuda import FusedAttention, fits, varlen
from osbert.models.transformer.layout import Layout
from osbert.models.transformer.runs import TokenRun, sight

Kernel = Callable[..., Tensor]
"""(query, key, value: each (N, H, K), layout, *, dropout: a probability) -> (N, H, K).

If only some tokens have queries, or those of another layout (`Layout.across`), there are R queries and the result is
(R, H, K). The result of a query that attends to nothing is 0, without a gradient.
"""


def weights(query: Tensor, key: Tensor, layout: Layout) -> list[Tensor]:
    """Return each sequence's attention weights (H, Q, T), queries in rows, from `query` and `key` (N, H, K).

    softmax(Q K^T / sqrt(K)) over the keys that a query attends to (Vaswani et al. 2017, equation 1).
    """
    sequence_weights = []
    biases: list[Tensor] = []  # B x (H, Q, T)
    if layout.biases is not None:
        for run, bias in zip(layout.runs, layout.biases, strict=True):
            # A bias of one for the whole run stands for each of its sequences.
            biases += bias.expand(run.count, -1, -1, -1)
    start = first = 0
    for number, (length, queries) in enumerate(zip(layout.lengths, layout.queries, strict=True)):
        here, query_slice = slice(start, start + length), slice(first, first + queries)
        scores = torch.einsum("qhk,shk->hqs", query[query_slice], key[here]) / query.shape[-1] ** 0.5  # (H, Q, T)
        if biases:
            # Sequences with fewer queries than the run is wide have padding rows: cut them off.
            scores = scores + biases[number][:, :queries]
        # Indices of the queries' tokens, for their marks.
        rows = here if layout.read is None else layout.read[query_slice]
        visible = sight(layout.marks.at(rows), layout.marks.at(here), layout.window)  # (1, Q or 1, T)
        if visible is None:
            sequence_weights.append(scores.softmax(dim=-1))
        else:
            # The lowest number, not -inf: a row without any visible key stays finite, and is then set to 0.
            lowest = torch.finfo(scores.dtype).min
            sequence_weights.append(scores.masked_fill(~visible, lowest).softmax(dim=-1).masked_fill(~visible, 0))
        start, first = here.stop, query_slice.stop
    return sequence_weights


def reference(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Attend sequence by sequence, with the weights in memory. Slow; every other kernel must agree with it.

    Weights times values: the rest of equation 1 (Vaswani et al. 2017), in each head (their section 3.2.2).
    """
    mixed = []
    start = 0
    for length, probabilities in zip(layout.lengths, weights(query, key, layout), strict=True):
        # (H, Q, T) and (T, H, K) -> (Q, H, K).
        mixed.append(torch.einsum("hqs,shk->qhk", drop(probabilities, dropout), value[start : start + length]))
        start += length
    return torch.cat(mixed)  # (N, H, K)


def sdpa(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Attend with torch's fused attention, one call for each of the layout's runs.

    On the CPU fused attention supports neither dropout nor the gradient of a bias. In those cases the products are
    computed one by one.
    """
    if _needs_unfused(query, layout, dropout):
        return attend(query, key, value, layout.runs, dropout=dropout, biases=layout.biases)
    runs, columns = layout.runs, ([query], [key], [value])
    if len(runs) > 1:  # split costs a node in the graph of gradients: skip it for a single run, the usual case
        sizes = [run.tokens for run in runs]
        columns = (query.split([run.queries for run in runs]), key.split(sizes), value.split(sizes))
    mixed = []
    for run, bias, queries, keys, values in zip(runs, layout.biases or [None] * len(runs), *columns, strict=True):
        q = run.spread(queries).transpose(1, 2)  # (count, H, Q, K)
        k, v = run.keys(keys).transpose(1, 2), run.keys(values).transpose(1, 2)  # (count, H, T, K)
        mixed.append(run.flat(_attend_run(run, (q, k, v), bias, dropout).transpose(1, 2)))
    return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


def _needs_unfused(query: Tensor, layout: Layout, dropout: float) -> bool:
    """Return whether fused attention does not compute this: on the CPU dropout, and the gradient of a bias."""
    learnt = torch.is_grad_enabled() and any(bias.requires_grad for bias in layout.biases or [])
    return query.device.type == "cpu" and (dropout > 0 or learnt)


def fastest(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """Attend with the fastest kernel that supports the layout: `varlen` on a GPU, else `sdpa`; on a CPU in float32.

    The CPU's fused attention in bf16 has no faster forward pass, and a backward pass of four times the duration.
    """
    if query.device.type == "cpu" and value.dtype == torch.bfloat16 and not _needs_unfused(query, layout, dropout):
        # Autocast would turn the arguments of fused attention back into bf16.
        with torch.autocast("cpu", enabled=False):
            return sdpa(query.float(), key.float(), value.float(), layout, dropout=dropout).bfloat16()
    return (varlen if _flashes(query, layout) else sdpa)(query, key, value, layout, dropout=dropout)


def within_graph(kernel: Kernel) -> Kernel:
    """Return a kernel for a layer that torch.compile compiles: `varlen` is a node of its graph, others interrupt it.

    Each batch has other numbers of sequences and lengths, for each of which the other kernels would be compiled anew.
    """
    outside: Kernel = torch.compiler.disable(kernel)
    chooses = kernel is fastest

    def attend(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
        if chooses and _flashes(query, layout):
            return varlen(query, key, value, layout, dropout=dropout)
        return outside(query, key, value, layout, dropout=dropout)

    return attend


def _flashes(query: Tensor, layout: Layout) -> bool:
    """Return whether `fastest` takes `varlen`."""
    return query.is_cuda and fits(query, layout)


def _attend_run(run: TokenRun, columns: tuple[Tensor, Tensor, Tensor], bias: Tensor | None, dropout: float) -> Tensor:
    """Return torch's fused attention of a run (count, H, Q, K), from its queries, keys and values, with a bias."""
    query, key, value = columns
    visible, sees = run.visible, None
    if visible is not None and query.device.type != "cpu":
        # On a GPU a query that sees nothing would get a mean of values, or NaN: it sees all here, and is set to 0.
        sees = visible.any(dim=-1, keepdim=True)
        visible = visible | ~sees
    # Fused attention takes one mask: a bias of -inf where q does not attend to k.
    mask = visible
    if bias is not None:
        bias = bias.to(query.dtype)
        mask = bias if visible is None else torch.where(visible, bias, float("-inf"))
    if query.is_cuda and torch.is_grad_enabled():
        mixed: Tensor = FusedAttention.apply(query, key, value, mask, dropout, run.causal)
    else:
        mixed = functional.scaled_dot_product_attention(query, key, value, mask, dropout, run.causal)
    return mixed if sees is None else mixed.masked_fill(~sees, 0)
