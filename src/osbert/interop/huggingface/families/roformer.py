"""RoFormer (Su et al. 2021): BERT with rotary positions. Its embeddings may be narrower.

It has no pooler, and its sequence classifier differs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from osbert.interop.huggingface.families.electra import embedding
from osbert.interop.huggingface.family import CLASSES, Family
from osbert.models.architecture import Architecture
from osbert.models.transformer.positions import rotation

SINES = "encoder.embed_positions.weight"


def _sines(architecture: Architecture) -> dict[str, Tensor]:
    """Return the table (length, K): the K/2 sines of each position's angles, then the K/2 cosines."""
    # A constant table, which transformers stores among the weights: written, never read.
    turns = rotation(torch.arange(architecture.length), architecture.width // architecture.heads)  # (length, K/2, 2)
    return {SINES: torch.cat([turns[..., 1], turns[..., 0]], dim=1)}


FAMILY = Family(
    types=("roformer",),
    name="RoFormer",
    values={"positions": "rotary"},
    varies=("activation", "segments", "direction", "embedding"),
    without=("embedding_size",),
    read=lambda config, problem: embedding({"embedding_size": config.get("hidden_size"), **config}, problem),
    written=lambda sizes: {"embedding_size": sizes.embedding or sizes.width, "rotary_value": False},
    tables=_sines,
    buffers=(SINES,),
    classes={form: CLASSES[form] for form in ("tokens", "span", "mlm")},
    causal="ForCausalLM",
)
