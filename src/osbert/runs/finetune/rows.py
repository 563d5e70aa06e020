"""The encoded rows of a fine-tuning, made once and shared by several trials, and how many do not fit a sequence."""

from __future__ import annotations

import hashlib
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from osbert import recipe
from osbert.data.batch import Batch, micro_batches
from osbert.data.example import are_mostly_unknown
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.data.record_loader import EncodedAhead, EncodedRecords, MixedLoader, OnDemand, RecordLoader
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS
from osbert.evaluation.score import Encoded, Score, constant_answer, encode_records, refuse_long, score
from osbert.models.contract import Backbone, Head, Learner
from osbert.objectives.left_to_right import LeftToRight
from osbert.runs.finetune.records import record_remarks
from osbert.tasks import Prediction, Record, Task
from osbert.tasks.calibration import Calibration
from osbert.tasks.record import records_per_step
from osbert.terminal import format_count
from osbert.text.file_tokenizer import AnyTokenizer, unknown_id

LOOKED = 1000
"""Number of first training rows in which unknown pieces are counted."""
HANDFUL = 10
"""Number of development rows below which they do not show a collapse: of two a good model often answers both alike."""
MEAN = "mean"
"""Name of the score that selects the best epoch of several tasks: the mean of their criteria."""


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """A task of a run, tuned on so many development `rows`, and the `calibration` of its probabilities, if any.

    `collapsed`: the one prediction for all of these rows, "" if they differ. `folder`: the subfolder of the run for
    its model, "" for the run's folder itself.
    """

    task: Task
    rows: int
    calibration: Calibration | None
    collapsed: str = ""
    folder: str = ""

    def scores(self, best: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of the best epoch with the metrics of this task only, without their prefix."""
        prefix = f"{self.folder}." if self.folder else ""
        metrics = {
            name.removeprefix(prefix): value for name, value in best["metrics"].items() if name.startswith(prefix)
        }
        return {**best, "metrics": metrics, "collapsed": self.collapsed}


@dataclass(frozen=True, kw_only=True)
class DevelopmentScore:
    """The scores of a model on the development records of all tasks.

    `metrics`: of one task; of several with the tasks' names as prefixes, and the mean of their criteria. For each task
    `predictions`, and in `answers` the one answer that the model gives to all records, "" if they differ. `collapsed`:
    these answers in words.
    """

    metrics: dict[str, float]
    predictions: Sequence[Sequence[Prediction]]
    answers: Sequence[str]
    collapsed: str


UNSCORED = DevelopmentScore(metrics={}, predictions=[()], answers=[""], collapsed="")
"""That of a model of one task which has learnt from all rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskRows:
    """The training and development rows of one task.

    `task`: fitted. `training`: the records with a label; `encoded`: their sequences. `development`: the records that
    epochs are scored on. `fingerprint`: a hash of all texts and labels. `remarks`: corrections and faults in the data,
    one line for each record. `auxiliary`: whether there is a language-model loss. `whole`: whether each step is one
    pass, even if the task does not need it. `cross_validation`: the score if no rows are held out (`cross_validate`);
    `development` then has the training rows that are scored.
    """

    task: Task
    packer: Packer
    training: Sequence[Record]
    development: Sequence[Record]
    encoded: EncodedRecords
    fingerprint: str
    remarks: Sequence[str]
    auxiliary: bool = False
    whole: bool = False
    cross_validation: Score | None = None

    @classmethod
    def of(
        cls,
        task: Task,
        records: Mapping[str, Sequence[Record]],
        packer: Packer,
        *,
        training: Sequence[Record] | None = None,
        **more: Any,
    ) -> Self:
        """Encode the training records, unless the task is `lazy`. `more`: further fields.

        `records`: "train" and "dev". `training`: by default the records of "train" with a label. Raises UserError that
        lists every record that is too long, if the task does not allow truncation.
        """
        if training is None:
            training = [record for record in records["train"] if not task.lacks(record)]
        refuse_long(task, [*training, *records["dev"]], packer)
        groups = (task.encode(record, packer) for record in training)
        return cls(
            task=task,
            packer=packer,
            training=training,
            development=records["dev"],
            encoded=OnDemand(training, lambda record: task.encode(record, packer))
            if task.lazy
            else EncodedAhead(groups),
            fingerprint=fingerprint(records),
            remarks=[*record_remarks(task, records)],
            **more,
        )

    def loader(self, *, batch: int, micro_tokens: int, seed: int) -> RecordLoader:
        """Return the loader of steps."""
        task, packer = self.task, self.packer
        whole = self.whole or task.batching == "step"

        add_targets, corrupts = self.add_targets, task.corrupts()

        def corrupt(examples: Examples, noise: Noise) -> Examples:
            examples = add_targets(examples) if add_targets else examples
            return task.corrupt_all(examples, packer, noise) if corrupts else examples

        return RecordLoader(
            self.encoded,
            batch=records_per_step(batch, self.training),
            # Passes of a whole step are for a loss that compares the outputs of the task's head.
            micro_tokens=0 if self.whole or (whole and self.auxiliary) else micro_tokens,
            seed=seed,
            together=task.batching != "sequences",
            whole=whole,
            corrupt=corrupt if add_targets or corrupts else None,
            draw=lambda rng: task.draw_epoch(self.training, rng),
        )

    @property
    def add_targets(self) -> Callable[[Examples], Examples] | None:
        """What gives training sequences the targets of further losses; None if there are none."""
        return LeftToRight().every_next if self.auxiliary else None

    @property
    def weights(self) -> dict[str, float]:
        """Return the weights of the losses that are not 1, by the names of their heads."""
        return {}

    def heads(self, backbone: Backbone) -> dict[str, Head]:
        """Return new heads by name: the task's, and those of further losses."""
        head = self.task.head(backbone)
        if isinstance(self.encoded, EncodedAhead):
            head.note_rows(self.encoded.examples)
        return {self.task.name: head}

    def batches(self) -> list[Batch]:
        """Return all training sequences with their targets, in batches for one forward pass."""
        every = self.encoded.take(np.arange(len(self.encoded)))
        return micro_batches(every, TOKENS, together=self.task.batching != "sequences")

    def prepare(self, learner: Learner, folder: Path) -> str:
        """Cache the vectors of a frozen encoder in the folder, if the task's head has one; return a description."""
        head = learner.heads[self.task.name]
        if head.frozen is None:
            return ""
        encoded = self.encoded_development or encode_records(self.task, self.development, self.packer)
        training = self.encoded.take(np.arange(len(self.encoded)))
        path = head.frozen.keep(folder, itertools.chain(training, *(examples for _, examples in encoded)))
        return f"the encoder does not learn: its vectors are kept in {path} ({path.stat().st_size / 1e6:,.0f} MB)"

    @property
    def pairs(self) -> bool:
        """Whether there are pairs of texts. If sequences are encoded on demand, only the first record is checked."""
        if isinstance(self.encoded, EncodedAhead):
            return bool(self.encoded.examples.segments.any())
        return any(
            example.segments.any() for record in self.training[:1] for example in self.task.encode(record, self.packer)
        )

    @cached_property
    def encoded_development(self) -> Sequence[Encoded] | None:
        """The development records with their sequences, encoded once for all scores; None for a `lazy` task."""
        return None if self.task.lazy else [*encode_records(self.task, self.development, self.packer)]

    @cached_property
    def truncation(self) -> str:
        """What happens to texts that do not fit, a line for each split, computed once for all trials; "" if all fit.

        A task whose sequences are encoded on demand describes it itself.
        """
        task, packer = self.task, self.packer
        if not isinstance(self.encoded, EncodedAhead):
            records = {"train": self.training, "dev": self.development}
            cuts = {split: task.description.cuts(rows, packer) for split, rows in records.items()}
            return "\n".join(f"{split}: {cut}" for split, cut in cuts.items() if cut)
        splits = {"train": self.encoded, "dev": EncodedAhead([group for _, group in self.encoded_development or ()])}
        fits = {split: TextFit.of(encoded, together=task.batching == "records") for split, encoded in splits.items()}
        lines = [f"{split}: {line}" for split, fit in fits.items() if (line := fit.describe(task, packer.length))]
        if any(fit.cut.any() for fit in fits.values()):
            lines[-1] += f" {task.description.longer}"
        return "\n".join(lines)

    @cached_property
    def unknown(self) -> str:
        """A warning if the vocabulary lacks most pieces of some of the first training texts; "" if it does not."""
        examples = self.encoded.take(np.arange(min(len(self.encoded), LOOKED)))
        lacking = sum(are_mostly_unknown([(example,) for example in examples], unknown_id(self.packer.tokenizer)))
        if not lacking:
            return ""
        return (
            f"{lacking:,} of the first {format_count(len(examples), 'training sequence')} are mostly unknown pieces: "
            "the model's vocabulary lacks their script, so it reads next to nothing of them. Give another --model."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FinetuneRows:
    """The rows of all tasks of a fine-tuning, in the order given.

    With several tasks, names of scores are prefixed with the task's name. `remarks`: corrections and faults in the
    data, one line for each record. `vector_folder`: a folder where several runs share cached vectors; None for the
    run's own.
    """

    tasks: Sequence[TaskRows]
    remarks: Sequence[str] = ()
    vector_folder: Path | None = None

    @classmethod
    def of(cls, tasks: Sequence[TaskRows]) -> Self:
        """Return the rows of these tasks, with all their remarks."""
        return cls(tasks=tasks, remarks=[remark for rows in tasks for remark in rows.remarks])

    @property
    def single(self) -> bool:
        """Whether there is only one task."""
        return len(self.tasks) == 1

    @property
    def tokenizer(self) -> AnyTokenizer:
        """The tokenizer of the texts."""
        return self.tasks[0].packer.tokenizer

    @property
    def fingerprint(self) -> str:
        """A hash of all texts and labels."""
        if self.single:
            return self.tasks[0].fingerprint
        return hashlib.sha256(" ".join(rows.fingerprint for rows in self.tasks).encode()).hexdigest()

    @property
    def criterion(self) -> str:
        """Name of the score that selects the best epoch: the task's criterion, or the mean of several."""
        return self.tasks[0].task.criterion if self.single else MEAN

    @property
    def truncation(self) -> str:
        """A description of the texts that do not fit, "" if all fit."""
        if self.single:
            return self.tasks[0].truncation
        return "\n".join([f"{rows.task.name}: {rows.truncation}" for rows in self.tasks if rows.truncation])

    def loader(self, *, batch: int, micro_tokens: int, seed: int) -> RecordLoader | MixedLoader:
        """Return the loader of steps, each of one task."""
        loaders = [rows.loader(batch=batch, micro_tokens=micro_tokens, seed=seed) for rows in self.tasks]
        if self.single:
            return loaders[0]
        return MixedLoader(dict(zip([rows.task.name for rows in self.tasks], loaders)), seed=seed)

    def draws(self, *, epochs: int, batch: int, seed: int) -> str:
        """Describe how often each of several tasks is sampled; "" for one task.

        Raises UserError if a task is never sampled.
        """
        if self.single:
            return ""
        loader = self.loader(batch=batch, micro_tokens=1, seed=seed)
        assert isinstance(loader, MixedLoader)
        drawn = np.concatenate([loader.draw_loaders(epoch) for epoch in range(epochs)])
        steps = dict(zip(loader.loaders, np.bincount(drawn, minlength=len(loader.loaders)).tolist()))
        if idle := [name for name, count in steps.items() if not count]:
            raise UserError(
                f"None of the {len(drawn):,} steps trains {', '.join(idle)}. Give more --epochs, a smaller --batch or "
                "a different --seed.",
                code="too-little-data",
            )
        return ", ".join(
            f"{name} {probability:.0%} ({steps[name]:,} steps)"
            for name, probability in zip(steps, loader.probabilities)
        )

    def score(self, learner: Learner) -> DevelopmentScore:
        """Return the scores of a model on the development records of all tasks."""
        metrics: dict[str, float] = {}
        predictions, answers = [], []
        for rows in self.tasks:
            task_score = rows.cross_validation or score(
                learner, rows.task, rows.development, rows.packer, rows.encoded_development
            )
            prefix = "" if self.single else f"{rows.task.name}."
            metrics |= {f"{prefix}{name}": value for name, value in task_score.metrics.items()}
            few = len(rows.development) < HANDFUL
            answers.append("" if few else constant_answer(rows.task, task_score.predictions, rows.development))
            predictions.append(task_score.predictions)
        if self.single:
            return DevelopmentScore(metrics=metrics, predictions=predictions, answers=answers, collapsed=answers[0])
        names = [rows.task.name for rows in self.tasks]
        mean = statistics.fmean([metrics[f"{rows.task.name}.{rows.task.criterion}"] for rows in self.tasks])
        return DevelopmentScore(
            metrics={MEAN: mean, **metrics},
            predictions=predictions,
            answers=answers,
            collapsed=", ".join([f"{answer} ({name})" for name, answer in zip(names, answers) if answer]),
        )

    def tune_values(self, score: DevelopmentScore) -> dict[str, Any]:
        """Return as tables what the tasks tune on the development records, such as thresholds, and the calibration."""
        tables = {}
        for rows, predictions, answer in zip(self.tasks, score.predictions, score.answers):
            task, calibration = rows.task.tune(predictions, rows.development) if predictions else (rows.task, None)
            tables[rows.task.name] = {
                "tuned": recipe.as_table(task),
                "calibration": calibration.as_dict() if calibration else {},
                "collapsed": answer,
            }
        return next(iter(tables.values())) if self.single else tables

    def outcomes(self, tuned_values: Mapping[str, Any]) -> list[TaskOutcome]:
        """Return the outcomes with the values of `tune_values`. Each of several tasks has a subfolder with its name."""
        outcomes = []
        for rows in self.tasks:
            name = rows.task.name
            table = tuned_values if self.single else tuned_values[name]
            outcomes.append(
                TaskOutcome(
                    task=recipe.build(type(rows.task), table["tuned"], where="The checkpoint"),
                    rows=len(rows.development),
                    calibration=Calibration(**table["calibration"]) if table["calibration"] else None,
                    collapsed=table["collapsed"],
                    folder="" if self.single else name,
                )
            )
        return outcomes


def fingerprint(records: Mapping[str, Sequence[Record]]) -> str:
    """Return a hash of the texts and labels of all records."""
    digest = hashlib.sha256()
    for split, split_records in sorted(records.items()):
        digest.update(split.encode())
        for record in split_records:
            digest.update(repr((record.texts, record.target)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


Counts = NDArray[np.integer]


@dataclass(frozen=True, kw_only=True)
class TextFit:
    """Counts for n records, (n,) each: `sequences`, and pieces that are `cut`; `tokens`: the total that is read.

    A text that is repeated in the sequences of one record, such as the context before each choice, counts once.
    """

    sequences: Counts
    cut: Counts
    tokens: int

    @classmethod
    def of(cls, encoded: EncodedAhead, *, together: bool) -> Self:
        """Count the sequences of records, their tokens and the pieces that are cut.

        If `together`, the first text of a record's later sequences repeats the one before and is not counted.
        """
        examples, owners = encoded.examples, np.repeat(np.arange(len(encoded)), encoded.counts)
        cut = np.bincount(owners, weights=examples.truncated, minlength=len(encoded)).astype(np.int64)
        # A sequence with the owner of the one before it repeats its context; only its second text is new.
        again = np.diff(owners, prepend=-1) == 0 if together else np.zeros(len(owners), np.bool_)
        # The second text of a pair comes after two special tokens of its sequence ([CLS] and the first [SEP]).
        seen = np.cumsum(examples.special, dtype=np.int64)  # specials so far
        seen = seen - np.repeat(seen[examples.starts] - 1, examples.lengths)  # those of the same sequence
        closing = np.zeros(len(seen), np.bool_)
        closing[examples.starts + examples.lengths - 1] = True
        second = (seen > 1) & (~examples.special | closing)  # with the special token at its end
        tokens = int((~np.repeat(again, examples.lengths) | second).sum())
        return cls(sequences=encoded.counts, cut=cut, tokens=tokens)

    def describe(self, task: Task, length: int) -> str:
        """Describe how many texts do not fit and what happens to them; "" if all fit."""
        if self.cut.any():
            long, pieces = self.cut > 0, int(self.cut.sum())
            fraction = pieces / (pieces + self.tokens)
            fate = f"{pieces:,} pieces ({fraction:.1%} of all) {task.description.unread} are not read"
        elif (self.sequences > 1).any() and task.batching == "sequences":
            long = self.sequences > 1
            fate = f"they are read in {self.sequences[long].sum():,} overlapping windows"
        else:
            return ""
        what = "rows" if task.batching != "sequences" else "texts"  # of a row with choices several texts may be cut
        bound = task.description.bound(length)
        return f"{long.sum():,} of {len(long):,} {what} ({long.mean():.1%}) are longer than {bound}; {fate}."
