"""The model on padded batches (B, T), with Hugging Face's names of inputs and outputs, for export.

It uses the layers of a learner on (B, T, D) instead of flat tokens, and only operations that every exporter supports.
Dropout, recurrent layers and heads on features are not supported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from osbert.models.contract import Head, Learner, States
from osbert.models.families.transformer import Transformer
from osbert.models.forms import Form
from osbert.models.transformer.attention import Attention
from osbert.models.transformer.embeddings import DistanceTable
from osbert.models.transformer.positions import TERMS, Distances, distance_rows, rotation, score_distances
from osbert.tasks import Task

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
"""Each (B, T) of int64: pieces, segments, and 1 for a token, 0 for padding after it."""
STATES, POOLER, SCORES = "last_hidden_state", "pooler_output", "logits"
SPAN_SCORES = ("start_logits", "end_logits")
VECTORS = "sentence_embedding"
"""Vectors of texts, from which decoding computes the scores of a pair; the name is sentence-transformers'."""


ONE_PASS = (
    "osbert's ONNX files are one pass over a text, not one for each piece that is written: write with the run itself, "
    "or convert a T5, BART or GPT-2 --to huggingface for others' exporters"
)

SCORED: tuple[Form, ...] = ("sequence", "tokens", "span", "choice", "vectors")
"""The forms of heads that can be exported."""


class _Missing:
    """A stand-in for a batch: exported heads read states only, and any access raises ValueError."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(f"its head reads {name} of a batch, which padded rectangles do not have")


_NO_BATCH: Any = _Missing()


class PaddedGraph(nn.Module):
    """A learner's backbone and at most one of its heads: inputs (B, T) -> the outputs in `names`.

    Scores are (B, K), (B, 1) for choices, (B, T, K) for tokens, or starts and ends (B, T) each; states (B, T, D); the
    pooler's output (B, D). Outputs of padding are meaningless.
    """

    rows: Tensor

    def __init__(self, learner: Learner, head: str = "", *, pooler: bool, center: float = 0.0, scale: float = 1.0):
        """Share the weights of `learner`, in evaluation mode.

        `pooler`: whether its output is included. Scores y of regression heads and classifiers are returned as `center`
        + `scale` * y. Raises ValueError if the model cannot be exported.
        """
        super().__init__()
        if reasons := list(objections(learner, head)):
            raise ValueError("; ".join(reasons))
        assert isinstance(learner.backbone, Transformer)  # as `objections` has found
        self.backbone = learner.backbone
        self.pieces: nn.Module = self.backbone.embeddings.pieces
        if self.backbone.embeddings.distances is not None:
            # Computed here, not in the graph: at a bucket's edge another runtime might round a logarithm differently.
            sizes = self.backbone.architecture
            self.register_buffer("rows", distance_rows(sizes.buckets, sizes.farthest))
        head_module = learner.heads[head] if head else None
        assert head_module is None or isinstance(head_module, Head)
        self.head = head_module
        self.pooler = pooler
        self.center, self.scale = center, scale

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the outputs, scores first."""
        scores: tuple[str, ...] = (SCORES,)
        if self.head is None or self.head.form in ("span", "vectors"):
            scores = () if self.head is None else SPAN_SCORES if self.head.form == "span" else (VECTORS,)
        return (*scores, STATES, *([POOLER] if self.pooler else []))

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs that `names` lists."""
        hidden = self._states(input_ids, token_type_ids, attention_mask)  # (B, T, D)
        summary = self._summaries(hidden, attention_mask)  # (B, D)
        late = self.backbone.architecture.summary == "late"
        pooled = _mean(self.backbone.pool(hidden), attention_mask) if late else self.backbone.pool(summary)  # (B, D)
        states = (hidden, pooled) if self.pooler else (hidden,)
        if self.head is None:
            return states
        scores = self.head.outputs(States(hidden=hidden, summary=summary, pooled=pooled), _NO_BATCH)
        if self.head.form == "span":
            return (*scores.unbind(-1), *states)
        if self.head.form in ("tokens", "vectors") or (self.center, self.scale) == (0, 1):
            return (scores, *states)
        return (scores * self.scale + self.center, *states)

    def shrink(self) -> None:
        """Replace the piece embeddings by an int8 table, a quarter of the size."""
        self.pieces = ByteTable(self.backbone.embeddings.pieces.weight)

    def _states(self, ids: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        sizes, embeddings = self.backbone.architecture, self.backbone.embeddings
        positions = torch.arange(ids.shape[1], device=ids.device)  # (T,)
        hidden = embeddings.finish(self.pieces(ids), segments, positions)
        turns = self._turns(positions, sizes.rotary_base)
        local_turns = self._turns(positions, sizes.local_base)
        bias = self._bias(mask, positions)
        # Masks are built once for all layers: one for global blocks, one for local ones.
        local_bias = self._bias(mask, positions, sizes.window) if sizes.window else bias
        if embeddings.distance_scores is not None:
            added = embeddings.distance_scores.between(positions[None], positions[None])
            bias, local_bias = bias + added, local_bias + added
        distances = self._distances(positions)
        for layer, block in enumerate(self.backbone.depth):
            local = sizes.is_local(layer)
            seen = (local_bias, local_turns) if local else (bias, turns)
            hidden = block.finish(hidden, _attend(block.attention, block.attention_input(hidden), *seen, distances))
        return self.backbone.norm(hidden)

    def _turns(self, positions: Tensor, base: float) -> Tensor | None:
        sizes = self.backbone.architecture
        return rotation(positions, sizes.key_width, base) if sizes.positions == "rotary" else None

    def _distances(self, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the vectors of distances (W, D), and the index of each query and key into them (1, T, T)."""
        table = self.backbone.embeddings.distances
        if not isinstance(table, DistanceTable):
            return None
        distances = Distances(vectors=table.norm(table.table.weight), rows=self.rows)
        return distances.vectors, distances.rows_of(positions[:, None] - positions)[None]

    def _bias(self, mask: Tensor, positions: Tensor, window: int = 0) -> Tensor:
        """Return the mask to add to attention scores: (B, 1, 1, T), or (B, 1, T, T) if it depends on the query.

        `window`: positions that a token sees on either side, 0 for all.
        """
        hidden_from = (mask == 0)[:, None, None, :]
        if window:
            hidden_from = hidden_from | ((positions[None, :] - positions[:, None]).abs() > window)
        if self.backbone.architecture.direction == "left_to_right":
            hidden_from = hidden_from | (positions[None, :] > positions[:, None])
        lowest = torch.finfo(torch.float32).min  # not -inf: a row of padding only would be NaN
        return torch.where(
            hidden_from, torch.tensor(lowest, dtype=torch.float32), torch.tensor(0.0, dtype=torch.float32)
        )

    def _summaries(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the state (B, D) that stands for each sequence: its first token's, its last's, or the mean of all."""
        if self.backbone.architecture.summary in ("mean", "late"):
            return _mean(hidden, mask)
        if not self.backbone.architecture.summary_is_last:
            return hidden[:, 0]
        # Padding is on the right: the last token has the index of the number of tokens less 1.
        last = (mask.sum(dim=1) - 1)[:, None, None].expand(-1, 1, hidden.shape[2])  # (B, 1, D)
        return hidden.gather(1, last).squeeze(1)


class ByteTable(nn.Module):
    """An int8 table (V, D) with a scale for each row. The error is at most 1/254 of the largest number of a row."""

    codes: Tensor
    steps: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        steps = (table.detach().abs().amax(dim=1, keepdim=True) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        self.register_buffer("steps", steps)  # (V, 1)
        self.register_buffer("codes", (table.detach() / steps).round().to(torch.int8))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors (..., D) of `ids` (...)."""
        return self.codes[ids].float() * self.steps[ids]


def scoring_task(task: Task | None) -> Task | None:
    """Return the task if its head has scores; None for a task whose outputs are vectors."""
    return None if task is None or task.form == "vectors" else task


def objections(learner: Learner, head: str = "") -> Iterator[str]:
    """Yield each reason why a learner with this head cannot be exported."""
    if learner.backbone.architecture.has_decoder:
        yield f"it is an encoder-decoder, and {ONE_PASS}"
    elif not isinstance(learner.backbone, Transformer):
        yield f"its backbone is of the family {learner.backbone.architecture.family}, not a Transformer"
    elif learner.backbone.recurrent is not None:
        yield "it has recurrent layers above the encoder"
    elif learner.backbone.architecture.positions == "distances":
        yield "its positions are distances, for which there is no padded form yet"
    head_module = learner.heads[head] if head else None
    if head_module is None:
        return
    assert isinstance(head_module, Head)
    if head_module.frozen is not None:
        yield "its head stands on features of a frozen encoder (--features)"
    elif head_module.form == "text":
        yield f"it writes texts, and {ONE_PASS}"
    elif head_module.form not in SCORED:
        yield f"its head is a {type(head_module).__name__}, whose scores have no common name"


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean (B, D) of the states (B, T, D) of tokens, without padding."""
    counted = mask[:, :, None].to(states.dtype)  # (B, T, 1)
    return (states * counted).sum(dim=1) / counted.sum(dim=1).clamp_min(1)


def _attend(
    attention: Attention, hidden: Tensor, bias: Tensor, turns: Tensor | None, distances: tuple[Tensor, Tensor] | None
) -> Tensor:
    # Query, key and value in this order, from one stacked layer or two.
    projections = [
        getattr(attention, name)(hidden).chunk(len(parts), dim=-1) for name, parts in attention.matrices.items()
    ]
    width = attention.outward.in_features // attention.heads  # K: of pruned heads no share of D
    query, key, value = (
        part.unflatten(-1, (-1, width)).transpose(1, 2) for parts in projections for part in parts
    )  # 3 x (B, H, T, K)
    if turns is not None:
        query, key = _rotate(query, turns), _rotate(key, turns)
    if attention.sharing > 1:
        key, value = (part.repeat_interleave(attention.sharing, dim=1) for part in (key, value))
    if distances is not None:
        vectors, index = distances
        query = query * TERMS**-0.5
        bias = bias + score_distances(query, key, attention.project_distances(vectors), index)
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + bias  # (B, H, T, T)
    return attention.outward((scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2))


def _rotate(heads: Tensor, turns: Tensor) -> Tensor:
    """Rotate `heads` (B, H, T, K) as `positions.rotate` does, without complex numbers, which ONNX lacks."""
    (x, y), (cosine, sine) = heads.unflatten(-1, (-1, 2)).unbind(-1), turns.unbind(-1)
    return torch.stack([x * cosine - y * sine, x * sine + y * cosine], dim=-1).flatten(-2)
