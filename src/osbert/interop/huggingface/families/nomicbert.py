"""NomicBERT (Nussbaum et al. 2024): BERT with rotary positions and gated layers, and biases only in its norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.family import CLASSES, Family, Problem, rotary_base
from osbert.models.architecture import Architecture


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    head_width(config, problem)
    return read_base(config, problem, default=1_000.0)


def head_width(config: Mapping[str, Any], problem: Problem) -> None:
    """Report a head width that is not hidden_size / num_attention_heads."""
    width, heads, head = (config.get(name) for name in ("hidden_size", "num_attention_heads", "head_dim"))
    if head is not None and isinstance(width, int) and isinstance(heads, int) and head * heads != width:
        problem(f"head_dim is {head!r}; only hidden_size / num_attention_heads is supported.")


def read_base(config: Mapping[str, Any], problem: Problem, *, default: float) -> dict[str, Any]:
    """Return the base of the rotary angles, from rope_parameters or, in older configs, from rope_theta."""
    if config.get("rope_scaling") is not None:
        problem(f"rope_scaling is {config['rope_scaling']!r}, which is not supported.")
    table = config.get("rope_parameters") or {}
    return {"rotary_base": rotary_base(table, config.get("rope_theta", default), "rope_theta", problem)}


def write_base(architecture: Architecture) -> dict[str, Any]:
    """Return the field with the base of the rotary angles."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": architecture.rotary_base}}


FAMILY = Family(
    types=("nomic_bert",),
    name="NomicBert",
    values={"positions": "rotary", "gated": True, "biases": False, "norm_biases": True},
    varies=("activation", "segments", "rotary_base"),
    only={"is_decoder": False, "tie_word_embeddings": True},
    defaults={"hidden_act": "silu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    read=_read,
    written=lambda sizes: {**write_base(sizes), "pad_token_id": 0},
    tensors=(
        ("emb_ln.", "embeddings.LayerNorm."),
        (".attn.out_proj.", ".attention.output.dense."),
        (".norm1.", ".attention.output.LayerNorm."),
        (".norm2.", ".output.LayerNorm."),
        # fc12 is activated; fc11 is the factor that it gates.
        (".mlp.fc12.", ".intermediate.dense."),
        (".mlp.fc11.", ".intermediate.gate."),
        (".mlp.fc2.", ".output.dense."),
        ("encoder.layers.", "encoder.layer."),
        ("cls.predictions.transform.layer_norm.", "cls.predictions.transform.LayerNorm."),
    ),
    fused={".attn.Wqkv.": (".attention.self.query.", ".attention.self.key.", ".attention.self.value.")},
    halves=True,
    classes={form: CLASSES[form] for form in ("tokens", "sequence", "mlm")},
)
