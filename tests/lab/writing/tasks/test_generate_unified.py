"""generate on a unified model: a share of the target masked anew in each epoch, or shifted, in its segments."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import osbert
from osbert.data.batch import collate
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.data.record_loader import EncodedAhead, RecordLoader
from osbert.data.step import Cursor
from osbert.interop.folder import open_folder
from osbert.models.architecture import Architecture
from osbert.models.forms import Writing
from osbert.tasks import Record
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.writing.generate import Generate
from osbert_lab.writing.modes import SOURCE, TARGET
from tiny_runs import WORDS, write_run

TOKENIZER = Tokenizer([*SPECIALS, *WORDS])
PACKER = Packer(tokenizer=TOKENIZER, length=14)
ROW = Record(number=3, texts=("good film",), label=("a play .",))
SIZES = Architecture(layers=2, heads=2, width=16, vocabulary=len(TOKENIZER), length=14, segments=6, dropout=0.0)
WRITES: tuple[Writing, ...] = ("masked", "shifted")


@pytest.mark.parametrize("writes", WRITES)
def test_source_and_target_lie_in_the_segments_of_the_model(writes: Writing) -> None:
    task = Generate(most=5).for_model(SIZES, TOKENIZER, writes=writes)
    assert task.writes == writes and Generate(most=5).for_model(SIZES, TOKENIZER).writes is None
    [example] = task.encode(ROW, PACKER)
    assert TOKENIZER.tokens(example.ids.tolist()) == ["[CLS]", "good", "film", "[SEP]", "a", "play", ".", "[SEP]"]
    assert example.segments.tolist() == [SOURCE] * 4 + [TARGET] * 4 and not example.targets and example.record == 3
    assert example.order is not None and example.order.tolist() == [0, 0, 0, 0, 1, 2, 3, 4]
    [prompt] = task.encode(dataclasses.replace(ROW, label=None), PACKER)
    ends = ["[MASK]"] if writes == "masked" else []
    assert TOKENIZER.tokens(prompt.ids.tolist()) == ["[CLS]", "good", "film", "[SEP]", *ends]
    long = Record(number=0, texts=("film " * 9,), label=("a play . a good film",))
    [cut] = task.encode(long, PACKER)
    assert len(cut) == PACKER.length and cut.truncated == (9 - 7) + (6 - 5) and cut.ids[-1] != TOKENIZER.sep


def test_a_share_of_the_target_is_masked_its_end_too() -> None:
    task = Generate(most=5, prediction="masked", masked=0.5)
    examples = Examples.of(task.encode(ROW, PACKER) * 400)
    found = task.corrupt_all(examples, PACKER, Noise.at(0, np.arange(400)))
    target = found.targets["generate"]
    assert set(found.targets) == {"generate"} and (target.counts == 2).all()
    assert target.index is not None and (found.segments[target.index] == TARGET).all()
    assert (examples.ids[target.index] == target.labels).all()
    hits = np.bincount(target.index % 8, minlength=8)[4:]
    assert abs(hits - 200).max() < 50  # each place as often as another, the end among them


def test_shifted_labels_are_the_next_pieces_and_the_end() -> None:
    task = Generate(most=5, prediction="shifted")
    [found] = task.corrupt_all(Examples.of(task.encode(ROW, PACKER)), PACKER, Noise.at(0, np.arange(1)))
    target = found.targets["generate"]
    assert target.index is not None and target.index.tolist() == [3, 4, 5, 6]
    assert target.labels.tolist() == found.ids[4:].tolist()


def test_masks_are_others_in_each_epoch_and_the_same_from_any_cursor() -> None:
    task = Generate(most=5, prediction="masked")
    encoded = EncodedAhead([task.encode(dataclasses.replace(ROW, number=number), PACKER) for number in range(6)])
    loader = RecordLoader(encoded, batch=4, corrupt=lambda some, noise: task.corrupt_all(some, PACKER, noise))
    stream = loader.steps(Cursor())
    steps = [next(stream) for _ in range(4)]
    ids = [step.batches[0].ids.tolist() for step in steps]
    assert ids[0] != ids[2]
    again = next(loader.steps(steps[2].cursor)).batches[0]
    assert again.ids.tolist() == ids[3] and torch.equal(
        again.targets["generate"].labels, steps[3].batches[0].targets["generate"].labels
    )


def test_smoothing_gives_all_pieces_a_part() -> None:
    task = Generate(most=5, prediction="shifted", label_smoothing=0.1)
    backbone = SIZES.build().eval()
    head = task.head(backbone).eval()
    batch = collate(task.corrupt_all(Examples.of(task.encode(ROW, PACKER)), PACKER, Noise.at(0, np.arange(1))))
    states = backbone(batch)
    target = batch.targets["generate"]
    scores = head.outputs(states, batch)[target.index]
    expected = functional.cross_entropy(scores, target.labels, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(head(states, batch).total, expected)
    with pytest.raises(ValueError, match="label_smoothing"):
        Generate(label_smoothing=1.0)
    with pytest.raises(ValueError, match="masked"):
        Generate(masked=0.0)


@pytest.mark.parametrize("writes", WRITES)
def test_a_run_from_a_unified_model_writes_as_it_did(writes: Writing, tmp_path: Path) -> None:
    start = write_run(tmp_path / "unilm", None, masks=True, segments=6, writes=writes)
    rows = [(word, word) for word in WORDS[:5]] * 4
    settings = {"epochs": 80, "batch": 8, "learning_rate": 0.01, "most": 3, "dropout": 0.0, "precision": "fp32"}
    data = {"train": rows, "dev": rows[:5]}
    run = osbert.finetune(
        "generate",
        model=str(start),
        data=data,
        out=tmp_path / "run",
        kept_by="exact_match",
        label_smoothing=0.1,
        **settings,
    )
    task = open_folder(run.folder).task
    assert isinstance(task, Generate) and task.prediction == writes
    assert run.metrics["exact_match"] > 0.8
    assert osbert.evaluate(run.folder, data=rows[:5]) == pytest.approx(run.metrics)
    assert open_folder(run.folder).writes == writes  # for a second stage
