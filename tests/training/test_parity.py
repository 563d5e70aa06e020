"""Fine-tuning beside transformers: one start, the same batches and learning rates; equal losses and final weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate
from osbert.data.example import Example, Target
from osbert.data.record_loader import EncodedAhead, RecordLoader
from osbert.data.step import Cursor, Step
from osbert.interop.files.weight_files import read_tensors
from osbert.interop.huggingface.folders import write_model
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import SequenceHead
from osbert.models.heads.tagging import TagHead
from osbert.training.optimizer import OptimizerSettings
from osbert.training.settings import TrainingSettings
from osbert.training.trainer import Trainer

STEPS = 10
OPTIMIZER = OptimizerSettings(learning_rate=5e-3, warmup=0.2)


KINDS = ("classify", "tag")
DRAWS = 100


def example(rng: np.random.Generator, record: int) -> Example:
    """Return a sequence with a class for the whole and classes for some of its tokens."""
    length = int(rng.integers(3, 20))
    labelled = np.flatnonzero(rng.random(length) < 0.6)
    return Example(
        ids=rng.integers(1, 50, length),
        segments=np.repeat([0, 1], [length // 2, length - length // 2]),
        words=np.ones(length, np.bool_),
        special=np.zeros(length, np.bool_),
        targets={
            "classify": Target(labels=np.array([record % 3])),
            "tag": Target(labels=rng.integers(0, 3, len(labelled)), index=labelled),
        },
        record=record,
    )


@pytest.fixture(scope="module")
def loader() -> RecordLoader:
    """Batches of 16, each in several micro-batches."""
    rng = np.random.default_rng(0)
    return RecordLoader(EncodedAhead([example(rng, record)] for record in range(64)), batch=16, micro_tokens=80, seed=0)


def make_learner(kind: str, *, states: float = 0.0, attention: float = 0.0, pooled: float = 0.0) -> Learner:
    """Return a small model; `states`, `attention` (its weights) and `pooled`: shares that are dropped of each."""
    sizes = Architecture(
        layers=2,
        heads=2,
        width=32,
        vocabulary=50,
        length=20,
        dropout=states,
        attention_dropout=attention,
        deviation=0.1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = sizes.build()
        if kind == "tag":
            return Learner(backbone, {kind: TagHead(backbone, target=kind, labels=3)})
        return Learner(backbone, {kind: SequenceHead(backbone, target=kind, labels=3, dropout=pooled)})


def square(column: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return a batch's sequences as a rectangle."""
    return torch.nn.utils.rnn.pad_sequence(list(column.split(tuple(batch.lengths))), batch_first=True)


def loss_of_theirs(model: torch.nn.Module, step: Step, kind: str) -> torch.Tensor:
    """Return the mean cross-entropy over a step's labels, its sequences laid out as rectangles."""
    total, count = torch.zeros(()), 0
    for batch in step.batches:
        target, real = batch.targets[kind], square(torch.ones_like(batch.ids), batch)
        found = model(
            input_ids=square(batch.ids, batch),
            token_type_ids=square(batch.segments, batch),
            attention_mask=real,
        )
        scores = found.logits[real.bool()] if kind == "tag" else found.logits
        total = total + torch.nn.functional.cross_entropy(scores[target.index], target.labels.long(), reduction="sum")
        count += len(target.labels)
    return total / count


def train_theirs(model: torch.nn.Module, loader: RecordLoader, rates: list[float], kind: str) -> list[float]:
    groups = [
        {"params": [weight for weight in model.parameters() if weight.ndim > 1], "weight_decay": 0.01},
        {"params": [weight for weight in model.parameters() if weight.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, eps=1e-6)
    losses = []
    for step, rate in zip(loader.steps(Cursor()), rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of_theirs(model, step, kind)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", KINDS)
def test_ten_steps_equal_those_of_transformers(tmp_path: Path, loader: RecordLoader, kind: str) -> None:
    import transformers

    opener = {"classify": "BertForSequenceClassification", "tag": "BertForTokenClassification"}[kind]
    assert all(len(step.batches) > 1 for step, _ in zip(loader.steps(Cursor()), range(STEPS)))
    learner = make_learner(kind)
    write_model(learner, tmp_path / "before", labels=["a", "b", "c"])
    theirs = getattr(transformers, opener).from_pretrained(tmp_path / "before", attn_implementation="eager")
    settings = TrainingSettings(steps=STEPS, precision="fp32", device="cpu", checkpoint_every=0, evaluate_every=0)
    seen = list(Trainer(learner, loader, OPTIMIZER, settings, tmp_path / "run").run())
    losses = train_theirs(theirs.train(), loader, [progress.learning_rate for progress in seen], kind)
    assert len(losses) == STEPS and losses[-1] < losses[0]
    np.testing.assert_allclose([progress.loss for progress in seen], losses, rtol=0, atol=1e-4)

    write_model(learner, tmp_path / "after", labels=["a", "b", "c"])
    state, (ours, before) = theirs.state_dict(), map(read_tensors, (tmp_path / "after", tmp_path / "before"))
    idle = {name for name in ours if name not in state}  # a tagger's pooler, which theirs has not
    assert all("pooler" in name and torch.equal(ours.pop(name), before[name]) for name in idle)
    assert ours.keys() == {name for name in state if not name.endswith(("position_ids", "token_type_ids"))}
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, state[name], rtol=0, atol=1e-4, msg=name)
    moved = [name for name in ours if (ours[name] - before[name]).abs().max() > 1e-3]
    still = {name for name in ours if name.endswith("key.bias")}  # softmax does not see it: its gradient is 0
    assert {*moved} == {*ours} - still


@pytest.mark.parametrize("places", ["states", "attention", "pooled"])
def test_dropout_scatters_scores_as_that_of_transformers(tmp_path: Path, places: str) -> None:
    """Dropped in one kind of place at a time, last states and scores have the same variance over many draws."""
    import transformers

    shares = {name: 0.1 if name == places else 0.0 for name in ("states", "attention", "pooled")}
    learner = make_learner("classify", **shares)
    write_model(learner, tmp_path, labels=["a", "b", "c"])
    theirs = transformers.BertForSequenceClassification.from_pretrained(
        tmp_path,
        hidden_dropout_prob=shares["states"],
        attention_probs_dropout_prob=shares["attention"],
        classifier_dropout=shares["pooled"],
    ).train()
    rng = np.random.default_rng(0)
    batch = collate([example(rng, record) for record in range(64)])
    real = square(torch.ones_like(batch.ids), batch)
    given = {"input_ids": square(batch.ids, batch), "token_type_ids": square(batch.segments, batch)}
    head = learner.heads["classify"]
    ours, others = [], []
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(DRAWS):
            states = learner.backbone(batch)
            ours.append([states.hidden, head.outputs(states, batch)])
            found = theirs(**given, attention_mask=real, output_hidden_states=True)
            others.append([found.hidden_states[-1][real.bool()], found.logits])
    np.testing.assert_allclose(variances(ours), variances(others), rtol=0.04, atol=1e-9)


def variances(draws: list[list[torch.Tensor]]) -> list[float]:
    """Return, for each of some tensors drawn many times, the variance of its numbers, in the mean."""
    return [torch.stack(column).var(0).mean().item() for column in zip(*draws)]
