"""ERNIE: its states with tasks and without, its heads both ways, and what cannot be honoured."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from osbert.data.batch import Batch, BatchTarget, collate
from osbert.data.example import Example
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from refusals import refusal

SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "initializer_range": 0.3,
    "hidden_act": "relu",
}
TASKS = {"use_task_id": True, "task_type_vocab_size": 4, "type_vocab_size": 3}
TOLERANCE = 1e-5


def save(folder: Path, kind: str = "Model", **changes: Any) -> Any:
    torch.manual_seed(0)
    made = getattr(transformers, f"Ernie{kind}")(transformers.ErnieConfig(**{**SIZES, **TASKS, **changes})).eval()
    made.save_pretrained(folder)
    return made


def batch_of(lengths: tuple[int, ...], *, tasks: tuple[int, ...], segments: int = 3) -> Batch:
    """Return random sequences, the last third of each in segment 1, each of one task."""
    rng, found = np.random.default_rng(0), []
    for record, (length, task) in enumerate(zip(lengths, tasks, strict=True)):
        none = np.zeros(length, np.bool_)
        kinds = (np.arange(length) > length // 2).astype(np.int8) + np.int8(segments * task)
        ids = rng.integers(5, 60, size=length)
        found.append(Example(ids=ids, segments=kinds, words=none, special=none, record=record))
    return collate(found)


def theirs(made: Any, batch: Batch, segments: int = 3) -> list[Any]:
    rows = zip(batch.ids.split(batch.lengths), batch.segments.split(batch.lengths), strict=True)
    with torch.no_grad():
        return [
            made(input_ids=ids[None], token_type_ids=kinds[None] % segments, task_type_ids=kinds[None] // segments)
            for ids, kinds in rows
        ]


def test_states_are_theirs_for_every_task(tmp_path: Path) -> None:
    made = save(tmp_path)
    backbone = open_folder(tmp_path).backbone.eval()
    assert backbone.architecture.tasks == 4
    batch = batch_of((24, 9, 9, 2), tasks=(0, 3, 1, 2))
    with torch.no_grad():
        states = backbone(batch)
    expected = theirs(made, batch)
    torch.testing.assert_close(
        states.hidden, torch.cat([one.last_hidden_state[0] for one in expected]), rtol=0, atol=TOLERANCE
    )
    torch.testing.assert_close(
        states.pooled, torch.cat([one.pooler_output for one in expected]), rtol=0, atol=TOLERANCE
    )


@pytest.mark.parametrize("kind", ["ForMaskedLM", "ForSequenceClassification", "ForPreTraining"])
def test_heads_are_read_and_written_as_theirs(kind: str, tmp_path: Path) -> None:
    made = save(tmp_path / "theirs", kind, num_labels=3 if kind == "ForSequenceClassification" else 2)
    folder = open_folder(tmp_path / "theirs")
    heads = {
        "ForMaskedLM": lambda: {"mlm": MaskedLanguageHead(folder.backbone)},
        "ForSequenceClassification": lambda: {"classify": SequenceHead(folder.backbone, target="classify", labels=3)},
        "ForPreTraining": lambda: {
            "mlm": MaskedLanguageHead(folder.backbone),
            "nsp": SequenceHead(folder.backbone, target="nsp", form="nsp"),
        },
    }[kind]()
    learner = Learner(folder.backbone, heads).eval()
    assert all(row.status == "loaded" and row.expected for row in huggingface.fill_heads(folder.tensors, learner))
    batch = batch_of((24, 9, 5), tasks=(2, 0, 1))
    every = BatchTarget(labels=torch.zeros(38), index=torch.arange(38), per_token=True, count=1.0)
    batch = replace(batch, targets={"mlm": every})
    huggingface.write_model(learner, tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"] == [f"Ernie{kind}"]
    again, report = getattr(transformers, f"Ernie{kind}").from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    reopened = Learner(open_folder(tmp_path / "ours").backbone, heads).eval()
    assert reopened.backbone.architecture == learner.backbone.architecture
    for model in (made, again.eval()):
        for name, head in heads.items():
            found = theirs(model, batch)
            pieces = [one.prediction_logits if "prediction_logits" in one else one.logits for one in found]
            rows = pieces if name != "nsp" else [one.seq_relationship_logits for one in found]
            expected = torch.cat([row[0] if name == "mlm" else row for row in rows])
            for own in (learner, reopened):
                with torch.no_grad():
                    outputs = head.outputs(own.states(batch), batch)
                torch.testing.assert_close(outputs, expected, rtol=0, atol=TOLERANCE)


def test_without_tasks_it_is_bert(tmp_path: Path) -> None:
    made = save(tmp_path / "theirs", use_task_id=False)
    backbone = open_folder(tmp_path / "theirs").backbone.eval()
    assert open_folder(tmp_path / "theirs").report.problems == () and backbone.architecture.tasks == 0
    huggingface.write_model(Learner(backbone, {}), tmp_path / "ours")
    again = transformers.AutoModel.from_pretrained(tmp_path / "ours").eval()
    assert type(again).__name__ == "BertModel"
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        torch.testing.assert_close(again(ids).last_hidden_state, made(ids).last_hidden_state, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("change", "told"),
    [({"use_task_id": "yes"}, "use_task_id"), ({"task_type_vocab_size": 0}, "task_type_vocab_size")],
)
def test_tasks_that_cannot_be_are_refused(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with refusal("unsupported-model", told):
        _ = open_folder(tmp_path).backbone
