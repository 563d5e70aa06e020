"""The padded model: equal to osbert's own on flat tokens, and to transformers' on padded ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.interop.huggingface.folders import write_model
from osbert.interop.onnx.padded import ByteTable, PaddedGraph, objections
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.features import stand_on_features
from osbert.models.heads.grouped import ChoiceHead, SpanHead
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.models.heads.tagging import TagHead

TOLERANCE = 2e-5
HEADS: dict[str, Callable[[Any], Any]] = {
    "classify": lambda backbone: SequenceHead(backbone, target="x", labels=3),
    "choose": lambda backbone: ChoiceHead(backbone, target="x"),
    "tag": lambda backbone: TagHead(backbone, target="x", labels=5),
    "span": lambda backbone: SpanHead(backbone, target="x"),
}
THEIRS = {
    "classify": transformers.BertForSequenceClassification,
    "tag": transformers.BertForTokenClassification,
    "span": transformers.BertForQuestionAnswering,
}


def learner(kind: str, **changes: Any) -> Learner:
    torch.manual_seed(0)
    sizes = {"layers": 2, "heads": 2, "width": 16, "vocabulary": 60, "length": 24, "deviation": 0.3, **changes}
    backbone = Architecture(**sizes).build()
    for block in backbone.blocks:  # adapters that say something
        for name in ("attention_adapter", "feedforward_adapter"):
            if isinstance(up := getattr(getattr(block, name), "up", None), torch.nn.Linear):
                torch.nn.init.normal_(up.weight)
    return Learner(backbone, {kind: HEADS[kind](backbone)}).eval()


def both_forms() -> tuple[Batch, tuple[torch.Tensor, ...]]:
    """Return pairs of texts of several lengths, flat and padded."""
    rng = np.random.default_rng(1)
    examples = []
    for place, length in enumerate((24, 9, 9, 2)):
        ids, segments = rng.integers(1, 60, length), np.repeat([0, 1], [length // 2, length - length // 2])
        nothing = np.zeros(length, np.bool_)
        examples.append(Example(ids=ids, segments=segments, words=nothing, special=nothing, record=place))
    batch = collate(examples)
    columns = (batch.ids, batch.segments, torch.ones_like(batch.ids))
    pad = torch.nn.utils.rnn.pad_sequence
    return batch, tuple(pad(list(column.split(batch.lengths)), batch_first=True) for column in columns)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "rotary", "normalization": "pre", "biases": False, "activation": "relu"},
        {"direction": "left_to_right"},
        {"segments": 0, "embedding": 8, "first_position": 2, "pooling": "relu"},
        {"adapters": 4, "activation": "gelu_tanh"},
        {"layers": 4, "distinct": 2, "embedding": 8, "summary": "last"},
        {"direction": "left_to_right", "embedding_norm": False, "summary": "first"},
        {"key_heads": 1, "root_norm": True, "summary": "late", "pooling": "gelu", "positions": "rotary"},
        {"distance_scores": 8, "window": 3, "global_every": 2},
        {"positions": "disentangled", "buckets": 8, "farthest": 16, "embedding": 8, "project_first": True},
        {"positions": "disentangled", "buckets": 0, "farthest": 9, "distance_projections": True},
    ],
    ids=str,
)
def test_every_architecture_gives_what_flat_tokens_give(changes: dict[str, Any]) -> None:
    model = learner("classify", **changes)
    batch, padded = both_forms()
    with torch.inference_mode():
        scores, hidden, pooled = PaddedGraph(model, "classify", pooler=True)(*padded)
        states = model.states(batch)
        expected = model.heads["classify"].outputs(states, batch)  # type: ignore[operator]
    torch.testing.assert_close(hidden[padded[2].bool()], states.hidden, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(pooled, states.pooled, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(scores, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_gives_what_it_gives_flat_and_in_transformers(kind: str, tmp_path: Path) -> None:
    model = learner(kind)
    batch, padded = both_forms()
    form = PaddedGraph(model, kind, pooler=False, **({"scale": 0.5} if kind == "classify" else {}))
    with torch.inference_mode():
        *scores, _ = form(*padded)
        found = torch.stack(scores, -1) if len(scores) == 2 else scores[0]
        flat = model.heads[kind].outputs(model.states(batch), batch)  # type: ignore[operator]
    rows = found[padded[2].bool()] if found.ndim == 3 else found
    torch.testing.assert_close(rows, flat * form.scale, atol=TOLERANCE, rtol=0)
    if kind in THEIRS:
        write_model(model, tmp_path, scale=form.scale)
        other = THEIRS[kind].from_pretrained(tmp_path).eval()
        names = ("input_ids", "token_type_ids", "attention_mask")
        with torch.inference_mode():
            said = other(**dict(zip(names, padded)))
        for name, mine in zip(form.names, scores):
            tokens = padded[2].bool() if kind in ("tag", "span") else slice(None)
            torch.testing.assert_close(mine[tokens], said[name][tokens], atol=TOLERANCE, rtol=0)


def test_a_row_of_nothing_but_padding_harms_no_other() -> None:
    model = PaddedGraph(learner("tag"), "tag", pooler=True)
    _, (ids, segments, mask) = both_forms()
    with torch.inference_mode():
        full = model(ids, segments, mask)
        mask = mask.clone()
        mask[1] = 0
        for one, other in zip(full, model(ids, segments, mask)):
            assert other.isfinite().all() and torch.equal(one[[0, 2, 3]], other[[0, 2, 3]])


def test_a_table_in_bytes_is_off_by_half_a_step() -> None:
    table = torch.randn(50, 16, generator=torch.Generator().manual_seed(0))
    table[7] = 0
    small = ByteTable(table)(torch.arange(50))
    assert small.shape == (50, 16) and (small[7] == 0).all()
    assert ((small - table).abs() <= table.abs().amax(1, keepdim=True) / 254 * 1.0001).all()


def test_what_has_no_padded_form_is_said() -> None:
    assert list(objections(learner("tag"), "tag")) == []
    recurrent = learner("tag", recurrent=1)
    assert list(objections(recurrent, "tag")) == ["it has recurrent layers above the encoder"]
    backbone = learner("tag").backbone
    features = Learner(
        backbone, {"tag": stand_on_features(backbone, "last", lambda on: TagHead(on, target="x", labels=5))}
    )
    assert "features of a frozen encoder" in " ".join(objections(features, "tag"))
    with pytest.raises(ValueError, match="its head is a MaskedLanguageHead"):
        PaddedGraph(Learner(backbone, {"mlm": MaskedLanguageHead(backbone)}), "mlm", pooler=True)
