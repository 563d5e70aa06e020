"""Heads of spans and choices open in transformers' own classes, and give what they give."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from osbert.data.batch import collate
from osbert.data.example import Example, Target
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import write_model
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.grouped import ChoiceHead, SpanHead


def example(length: int, record: int, target: Target | None, name: str, seed: int = 0) -> Example:
    ids = np.random.default_rng([record, seed]).integers(1, 60, length)
    flags = np.zeros(length, bool)
    segments = (np.arange(length) > length // 2).astype(int)
    targets = {} if target is None else {name: target}
    return Example(ids=ids, segments=segments, words=flags, special=flags, record=record, targets=targets)


def theirs(examples: list[Example]) -> dict[str, torch.Tensor]:
    """Return examples of one length as transformers wants them."""
    columns = {"input_ids": [one.ids for one in examples], "token_type_ids": [one.segments for one in examples]}
    return {name: torch.tensor(np.stack(column)).long() for name, column in columns.items()}


def test_questions_are_answered_alike(ours: Architecture, tmp_path: Path) -> None:
    backbone = ours.build()
    learner = Learner(backbone, {"squad": SpanHead(backbone, target="squad")}).eval()
    write_model(learner, tmp_path)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path).eval()
    assert type(model) is transformers.BertForQuestionAnswering
    spans = [(3, 5), (0, 0), (9, 9)]
    targets = [Target(labels=np.array([0, 1]), index=np.array(span)) for span in spans]
    examples = [example(12, record, target, "squad") for record, target in enumerate(targets)]
    batch = collate(examples)
    with torch.no_grad():
        said = model(
            **theirs(examples),
            start_positions=torch.tensor([start for start, _ in spans]),
            end_positions=torch.tensor([end for _, end in spans]),
        )
        states = backbone(batch)
        loss = learner(batch)["squad"]
    outputs = learner.heads["squad"].outputs(states, batch).view(3, 12, 2)
    torch.testing.assert_close(outputs, torch.stack([said.start_logits, said.end_logits], dim=2), atol=2e-5, rtol=0)
    assert loss.total.item() / loss.count == pytest.approx(said.loss.item(), abs=1e-5)
    fresh = Learner(other := ours.build(), {"squad": SpanHead(other, target="squad")}).eval()
    open_folder(tmp_path).fill(fresh).require_complete(str(tmp_path))
    assert torch.equal(fresh.heads["squad"].linear.weight, learner.heads["squad"].linear.weight)


def test_choices_are_made_alike(ours: Architecture, tmp_path: Path) -> None:
    backbone = ours.build()
    head = ChoiceHead(backbone, target="swag", dropout=0.2)
    learner = Learner(backbone, {"swag": head}).eval()
    write_model(learner, tmp_path)
    model = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path).eval()
    assert type(model) is transformers.BertForMultipleChoice and model.config.classifier_dropout == 0.2
    right = [1, 2]
    examples = [
        example(10, record, Target(labels=np.array([choice])) if choice == right[record] else None, "swag", choice)
        for record in range(2)
        for choice in range(3)
    ]
    batch = collate(examples)
    inputs = {name: column.view(2, 3, -1) for name, column in theirs(examples).items()}
    with torch.no_grad():
        said = model(**inputs, labels=torch.tensor(right))
        loss = learner(batch)["swag"]
        scores = head.outputs(backbone(batch), batch).view(2, 3)
    torch.testing.assert_close(scores, said.logits, atol=2e-5, rtol=0)
    assert loss.total.item() / loss.count == pytest.approx(said.loss.item(), abs=1e-5)
    assert int(loss.hits) == int((said.logits.argmax(dim=1) == torch.tensor(right)).sum())
