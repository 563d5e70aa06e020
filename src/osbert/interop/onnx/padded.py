"""The model as others run it: padded rectangles of tokens in, scores and states out, by Hugging Face's names.

The layers are a learner's own, called on (B, T, D) instead of flat tokens, with plain operations that every exporter
knows. Left aside: dropout, recurrent layers, and heads on features, which ONNX has no common form for.
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
from osbert.models.transformer.block import Block
from osbert.models.transformer.disentangled import TERMS, Distances, distance_rows, scored_distances
from osbert.models.transformer.embeddings import DistanceTable
from osbert.models.transformer.positions import rotation
from osbert.tasks import Task

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
"""Each (B, T) of int64: pieces, segments, and 1 for a token, 0 for padding behind it."""
STATES, POOLER, SCORES = "last_hidden_state", "pooler_output", "logits"
SPAN_SCORES = ("start_logits", "end_logits")
VECTORS = "sentence_embedding"
"""Vectors of texts, of which decoding makes the scores of a pair; named as sentence-transformers does."""


SCORED: tuple[Form, ...] = ("sequence", "tokens", "span", "choice", "vectors")
"""The forms of heads whose outputs have a name here."""


class _Missing:
    """A batch of which a head may read nothing: its form says which states it reads."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(f"its head reads {name} of a batch, which padded rectangles do not have")


_NO_BATCH: Any = _Missing()


class PaddedGraph(nn.Module):
    """A learner's backbone and one head of it, or none: (B, T) inputs -> the outputs `names` says.

    Scores are (B, K), (B, 1) a choice, (B, T, K) a token, or starts and ends (B, T) each; states (B, T, D); the
    pooler's output (B, D). Rows of padding hold nothing of use.
    """

    rows: Tensor

    def __init__(self, learner: Learner, head: str = "", *, pooler: bool, center: float = 0.0, scale: float = 1.0):
        """Share the weights of `learner`, in evaluation mode.

        `pooler`: whether its output is given. A number y of a regression head is given as `center` + `scale` * y, a
        classifier's scores as well. Raises ValueError when there is no such form of the model.
        """
        super().__init__()
        if reasons := list(objections(learner, head)):
            raise ValueError("; ".join(reasons))
        assert isinstance(learner.backbone, Transformer)  # as `objections` has found
        self.backbone = learner.backbone
        self.pieces: nn.Module = self.backbone.embeddings.pieces
        if self.backbone.embeddings.distances is not None:
            # Worked out here: at the edge of a bucket, another runtime might round a logarithm to another row.
            sizes = self.backbone.architecture
            self.register_buffer("rows", distance_rows(sizes.buckets, sizes.farthest))
        found = learner.heads[head] if head else None
        assert found is None or isinstance(found, Head)
        self.head = found
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
        """Keep the piece embeddings in bytes from now on, a quarter of their size."""
        self.pieces = ByteTable(self.backbone.embeddings.pieces.weight)

    def _states(self, ids: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        sizes, embeddings = self.backbone.architecture, self.backbone.embeddings
        positions = torch.arange(ids.shape[1], device=ids.device)  # (T,)
        total = self.pieces(ids)
        if embeddings.segments is not None:
            total = total + embeddings.segments(segments)
        if embeddings.positions is not None:
            total = total + embeddings.positions(positions + embeddings.first)
        hidden = embeddings.finished(total)
        turns = self._turns(positions, sizes.rotary_base)
        local_turns = self._turns(positions, sizes.local_base)
        bias = self._bias(mask, positions)
        local_bias = self._bias(mask, positions, sizes.window) if sizes.window else bias
        if embeddings.distance_scores is not None:
            added = embeddings.distance_scores.between(positions[None], positions[None])
            bias, local_bias = bias + added, local_bias + added
        distances = self._distances(positions)
        for layer, block in enumerate(self.backbone.depth):
            local = sizes.is_local(layer)
            seen = (local_bias, local_turns) if local else (bias, turns)
            hidden = _passed(block, hidden, *seen, distances)
        return self.backbone.norm(hidden)

    def _turns(self, positions: Tensor, base: float) -> Tensor | None:
        sizes = self.backbone.architecture
        return rotation(positions, sizes.key_width, base) if sizes.positions == "rotary" else None

    def _distances(self, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the vectors of distances (W, D), and which of them each query and key have, (1, T, T)."""
        table = self.backbone.embeddings.distances
        if not isinstance(table, DistanceTable):
            return None
        found = Distances(vectors=table.norm(table.table.weight), rows=self.rows)
        return found.vectors, found.rows_of(positions[:, None] - positions)[None]

    def _bias(self, mask: Tensor, positions: Tensor, window: int = 0) -> Tensor:
        """Return what is added to attention scores, (B, 1, 1, T), or (B, 1, T, T) where not all tokens see the same.

        `window`: how many positions a token sees to either side, 0 for all.
        """
        hidden_from = (mask == 0)[:, None, None, :]
        if window:
            hidden_from = hidden_from | ((positions[None, :] - positions[:, None]).abs() > window)
        if self.backbone.architecture.direction == "left_to_right":
            hidden_from = hidden_from | (positions[None, :] > positions[:, None])
        lowest = torch.finfo(torch.float32).min  # not -inf: a row of nothing but padding must not become NaN
        return torch.where(hidden_from, torch.tensor(lowest), torch.tensor(0.0))

    def _summaries(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the state (B, D) that stands for each sequence: its first token's, its last's, or the mean of all."""
        if self.backbone.architecture.summary in ("mean", "late"):
            return _mean(hidden, mask)
        if not self.backbone.architecture.summary_is_last:
            return hidden[:, 0]
        last = (mask.sum(dim=1) - 1)[:, None, None].expand(-1, 1, hidden.shape[2])  # (B, 1, D)
        return hidden.gather(1, last).squeeze(1)


class ByteTable(nn.Module):
    """Vectors (V, D) in a byte a number, each with its own step: off by half of it, 1/254 of the largest, at most."""

    codes: Tensor
    steps: Tensor

    def __init__(self, table: Tensor) -> None:
        """Round `table` (V, D)."""
        super().__init__()
        steps = (table.detach().abs().amax(dim=1, keepdim=True) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        self.register_buffer("steps", steps)  # (V, 1)
        self.register_buffer("codes", (table.detach() / steps).round().to(torch.int8))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors (..., D) of `ids` (...)."""
        return self.codes[ids].float() * self.steps[ids]


def scored(task: Task | None) -> Task | None:
    """Return the task whose scores are given, None where there are none: one that gives vectors is an encoder."""
    return None if task is None or task.form == "vectors" else task


def objections(learner: Learner, head: str = "") -> Iterator[str]:
    """Yield why a learner with a head has no padded form, in words; nothing when it has one."""
    if not isinstance(learner.backbone, Transformer):
        yield f"its backbone is of the family {learner.backbone.architecture.family}, not a Transformer"
    elif learner.backbone.recurrent is not None:
        yield "it has recurrent layers above the encoder"
    elif learner.backbone.architecture.positions == "distances":
        yield "its positions are distances, for which there is no padded form yet"
    found = learner.heads[head] if head else None
    if found is None:
        return
    assert isinstance(found, Head)
    if found.frozen is not None:
        yield "its head stands on features of a frozen encoder (--features)"
    elif found.form not in SCORED:
        yield f"its head is a {type(found).__name__}, whose scores have no common name"


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean (B, D) of the tokens' states (B, T, D)."""
    counted = mask[:, :, None].to(states.dtype)  # (B, T, 1)
    return (states * counted).sum(dim=1) / counted.sum(dim=1).clamp_min(1)


def _passed(
    block: Block, hidden: Tensor, bias: Tensor, turns: Tensor | None, distances: tuple[Tensor, Tensor] | None
) -> Tensor:
    """Return what a block makes of `hidden` (B, T, D)."""
    mixed = _attended(block.attention, block.attention_norm(hidden) if block.before else hidden, bias, turns, distances)
    hidden = hidden + block.attention_adapter(mixed)
    if block.before:
        return hidden + _fed(block, block.feedforward_norm(hidden))
    hidden = block.attention_norm(hidden)
    return block.feedforward_norm(hidden + _fed(block, hidden))


def _fed(block: Block, hidden: Tensor) -> Tensor:
    return block.feedforward_adapter(block.fed(hidden))


def _attended(
    attention: Attention,
    hidden: Tensor,
    bias: Tensor,
    turns: Tensor | None,
    distances: tuple[Tensor, Tensor] | None,
) -> Tensor:
    made = [getattr(attention, name)(hidden).chunk(len(parts), dim=-1) for name, parts in attention.matrices.items()]
    width = hidden.shape[-1] // attention.heads
    query, key, value = (
        part.unflatten(-1, (-1, width)).transpose(1, 2) for parts in made for part in parts
    )  # 3 x (B, H, T, K)
    if turns is not None:
        query, key = _turned(query, turns), _turned(key, turns)
    if attention.sharing > 1:
        key, value = (part.repeat_interleave(attention.sharing, dim=1) for part in (key, value))
    if distances is not None:
        vectors, index = distances
        query = query * TERMS**-0.5
        bias = bias + scored_distances(query, key, attention.project_distances(vectors), index)
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + bias  # (B, H, T, T)
    return attention.outward((scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2))


def _turned(heads: Tensor, turns: Tensor) -> Tensor:
    """Return `heads` (B, H, T, K) turned as `positions.rotate` does, without complex numbers."""
    (x, y), (cosine, sine) = heads.unflatten(-1, (-1, 2)).unbind(-1), turns.unbind(-1)
    return torch.stack([x * cosine - y * sine, x * sine + y * cosine], dim=-1).flatten(-2)
