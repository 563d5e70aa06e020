"""How transformers fine-tunes its models, for finetune.py: the usual loop, from its own start or from osbert's."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler

from finetune_features import Feature, Texts, collate, kind_of
from osbert.data.record_loader import MixedLoader, RecordLoader
from osbert.data.step import Cursor
from osbert.interop.huggingface.folders import write_model
from osbert.runs.finetune.finetune import lay_out, start
from osbert.runs.finetune.plan import FinetunePlan
from osbert.runs.finetune.records import SPLITS
from osbert.runs.finetune.training_loop import FinetuneTrainer
from osbert.tasks import Record
from osbert.training.processor import choose

SCORED = 32
"""Sequences that transformers scores at a time."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The mean loss of each epoch, the development score after it, in points, and the seconds it all took."""

    losses: list[float]
    scores: list[float]
    seconds: float


def train(plan: FinetunePlan, records: Mapping[str, Sequence[Record]], *, side: str, last_only: bool = False) -> Result:
    """Fine-tune with transformers' model and the usual loop. `last_only`: score after the last epoch alone."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(plan.training.seed)
    started = time.perf_counter()
    way = kind_of(plan.task)(task=plan.task, tokenizer=transformers.AutoTokenizer.from_pretrained(plan.model))
    training, development = (list(way.features(records[split])) for split in SPLITS)
    model, sampler = paired(plan, records, way) if side == "paired" else usual(plan, training, way)
    size = plan.task.length if side == "padded" else 0
    precise = side == "padded" or choose("cpu", "auto").precision == "fp32"
    wanted = plan.optimizer
    batches = DataLoader(training, batch_sampler=sampler, collate_fn=lambda features: collate(features, size))
    optimizer = torch.optim.AdamW(
        groups(model, decay=wanted.weight_decay), lr=wanted.learning_rate, eps=wanted.epsilon, fused=True
    )
    schedule = scheduled(plan, optimizer, len(batches) * plan.training.epochs, side=side)
    losses, scores = [], []
    for number in range(1, plan.training.epochs + 1):
        losses.append(epoch(model, batches, optimizer, schedule, clip=wanted.clip, precise=precise))
        if last_only and number < plan.training.epochs:
            continue
        with torch.autocast("cpu", torch.bfloat16, enabled=not precise):
            found = outputs(way, model, development, size)
        # At the threshold that suits these questions best, as ours are.
        predictions = plan.task.at_best(way.predictions(records["dev"], development, found), records["dev"])
        scores.append(100 * plan.task.metrics(predictions, records["dev"])[plan.task.criterion])
    return Result(losses=losses, scores=scores, seconds=time.perf_counter() - started)


def epoch(
    model: Any,
    batches: Iterable[dict[str, Tensor]],
    optimizer: torch.optim.Optimizer,
    schedule: Any,
    *,
    clip: float,
    precise: bool,
) -> float:
    """Make a step of each batch, and return their mean loss."""
    model.train()
    losses = []
    for batch in batches:
        # In each step anew: it keeps the weights in bf16 until its end.
        with torch.autocast("cpu", torch.bfloat16, enabled=not precise):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return statistics.fmean(losses)


def usual(plan: FinetunePlan, training: Sequence[Feature], way: Texts) -> tuple[Any, Sampler[list[int]]]:
    """Return transformers' model with a head of its own, and an order of its own."""
    sampler = BatchSampler(RandomSampler(training), plan.training.batch, drop_last=False)
    return opened(plan, plan.model, way), sampler


def paired(plan: FinetunePlan, records: Mapping[str, Sequence[Record]], way: Texts) -> tuple[Any, Sampler[list[int]]]:
    """Return transformers' model with the head that osbert's run begins with, and the order of its rows."""
    encoder = start(plan)
    rows = lay_out(plan, [records], encoder)
    with tempfile.TemporaryDirectory() as folder:
        ours = FinetuneTrainer(
            model=encoder, rows=rows, settings=plan.training, optimizer=plan.optimizer, folder=Path(folder)
        )
        write_model(ours.learner, Path(folder), **plan.task.export_metadata())
        return opened(plan, Path(folder), way), Order(ours.loader)


def opened(plan: FinetunePlan, folder: Path, way: Texts) -> Any:
    """Return transformers' model from a folder."""
    share = plan.training.dropout
    sides = {"hidden_dropout_prob": share, "attention_probs_dropout_prob": share}
    return way.model.from_pretrained(folder, num_labels=way.outputs, **sides)


def scheduled(plan: FinetunePlan, optimizer: torch.optim.Optimizer, steps: int, *, side: str) -> Any:
    """Return the learning rates: transformers', whose first is 0, or for "paired" osbert's, which are a step ahead."""
    if side == "paired":
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: plan.optimizer.rate_factor(step, steps))
    return transformers.get_linear_schedule_with_warmup(optimizer, round(plan.optimizer.warmup * steps), steps)


class Order(Sampler[list[int]]):
    """The rows of each step as osbert's loader draws them, epoch after epoch."""

    def __init__(self, loader: RecordLoader | MixedLoader) -> None:
        self.count = loader.steps_per_epoch
        self.steps = loader.steps(Cursor())

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[list[int]]:
        for step in itertools.islice(self.steps, self.count):
            yield np.unique(np.concatenate([batch.records.numpy() for batch in step.batches])).tolist()


def groups(model: torch.nn.Module, *, decay: float) -> list[dict[str, Any]]:
    """Return the weights in two groups: those that decay, and biases and normalisations, which do not."""
    spared = {name for name, _ in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name}
    return [
        {"params": [weight for name, weight in model.named_parameters() if name not in spared], "weight_decay": decay},
        {"params": [weight for name, weight in model.named_parameters() if name in spared], "weight_decay": 0.0},
    ]


@torch.inference_mode()
def outputs(way: Texts, model: torch.nn.Module, features: Sequence[Feature], size: int) -> list[np.ndarray]:
    """Return the scores of each feature, without dropout."""
    model.eval()
    found: list[np.ndarray] = []
    for first in range(0, len(features), SCORED):
        batch = collate(features[first : first + SCORED], size)
        found.extend(way.scores(model(**batch)).float().numpy())
    return found
