"""A run of word2vec or GloVe: rounds on all cores, a checkpoint after each, a static model at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osbert import __version__, recipe
from osbert.corpus.shards import Corpus
from osbert.corpus.task_options import cores
from osbert.errors import UserError
from osbert.files import write_json
from osbert.guarded import read_json
from osbert.runs.contract import Notice, Watch
from osbert.runs.corpus import tokenizer_of
from osbert.runs.events import Measurement
from osbert.terminal import format_count
from osbert.text.file_tokenizer import AnyTokenizer, special_ids
from osbert.training.checkpoint import CHECKPOINTS, Checkpoint, Checkpoints, WriteError
from osbert.training.interruption import Interruption
from osbert.training.run_folder import RunFolder
from osbert.training.tracking import NAME, Metrics, read_lines
from osbert_lab.static_vectors.clock import LearningClock
from osbert_lab.static_vectors.learners import AnyLearner, Totals, learner_for
from osbert_lab.static_vectors.processes import one_round
from osbert_lab.static_vectors.settings import TABLES, MethodSettings
from osbert_lab.static_vectors.word_vectors import write_static

SPENT = "spent.json"
"""File among the checkpoints: the seconds of a time budget that are spent."""


@dataclass(kw_only=True)
class VectorRun:
    """A run in the folder `out`, which its caller has locked."""

    name: str
    settings: MethodSettings
    corpus: Corpus
    out: Path
    watch: Watch
    wish: Interruption
    begun: float = field(default_factory=time.monotonic)
    """Start of the time budget, by time.monotonic."""
    tokenizer: AnyTokenizer = field(init=False)
    resumed: bool = field(init=False, default=False)
    earlier: float = field(init=False, default=0.0)
    """Seconds of the time budget that earlier processes have spent."""

    def complete(self) -> bool:
        """Start or resume the run; return True if it finished, False if a wish stopped it.

        Raises UserError if the folder belongs to another run.
        """
        self.tokenizer = tokenizer_of(self.corpus)
        folder = RunFolder(self.out)
        table, defaults = recipe.as_table(self.settings), recipe.defaults(type(self.settings))
        # How many processes there are changes no setting of the method.
        folder.begin({**table, "workers": 0}, self._facts(), inputs=("corpus", "tokenizer"), defaults=defaults)
        if folder.finished:
            self.watch(Notice(f"The run in {self.out} is finished; nothing is left to do."))
            return True
        learner = learner_for(
            self.settings,
            corpus=self.corpus,
            specials=special_ids(self.tokenizer),
            folder=self.out / CHECKPOINTS,
            clock=self._clock(),
        )
        if not learner.counts.any():
            raise UserError(f"{self.corpus.folder} contains no words to learn vectors for.", code="no-data")
        tables = self._rounds(learner)
        if tables is None:
            return False
        self._write(learner, tables)
        folder.finish({"parameters": len(self.tokenizer) * self.settings.width, **self._timing_facts()})
        (self.out / TABLES).unlink()
        self.watch(Notice(f"The vectors of {len(self.tokenizer):,} pieces are in {self.out}."))
        return True

    def _facts(self) -> Mapping[str, Any]:
        corpus = self.corpus
        return {
            "osbert": __version__,
            "recipe": self.name,
            "corpus": corpus.content,
            "tokenizer": self.tokenizer.fingerprint,
            "documents": corpus.documents,
            "tokens": corpus.tokens,
            "vocabulary": corpus.vocabulary,
            **({"budget": {"minutes": self.settings.minutes}} if self.settings.minutes else {}),
        }

    def _clock(self) -> LearningClock | None:
        if not self.settings.minutes:
            return None
        # A resumed run has the time that it had left when it was stopped. Runs of earlier versions know the time of
        # their rounds alone.
        noted = self.out / CHECKPOINTS / SPENT
        self.earlier = read_json(noted)["seconds"] if noted.is_file() else self._last("seconds")
        return LearningClock.of(self.settings.minutes, spent=self.earlier + time.monotonic() - self.begun)

    def _note_time(self) -> None:
        """Write how much of a time budget is spent, GloVe's counting of pairs included."""
        if self.settings.minutes:
            write_json(
                self.out / CHECKPOINTS / SPENT, {"seconds": round(self.earlier + time.monotonic() - self.begun, 3)}
            )

    def _last(self, name: str) -> float:
        """Return the last value of a metric; 0 before the first round."""
        return next((line[name] for line in reversed(read_lines(self.out / NAME)) if name in line), 0.0)

    def _timing_facts(self) -> dict[str, Any]:
        """Return the time taken since this process began and the tokens read, for a run with a time budget."""
        if not self.settings.minutes:
            return {}
        return {
            "wall_seconds": round(time.monotonic() - self.begun, 6),
            "resumed": self.resumed,
            "tokens": int(self._last("tokens")),  # of which the number of epochs says nothing
        }

    def _rounds(self, learner: AnyLearner) -> Tensor | None:
        """Return the learnt tables; None if a wish stopped the run before its end."""
        checkpoints = Checkpoints(self.out / CHECKPOINTS, keep=1)
        checkpoints.tidy()
        done, damages = checkpoints.newest()
        for damage in damages:
            self.watch(Notice(damage, warning=True))
        checkpoints.folder.mkdir(parents=True, exist_ok=True)
        if remark := learner.prepare():
            self.watch(Notice(remark))
        self._note_time()
        if done is None:
            done, first = 0, learner.fresh()
        else:
            self.resumed = True
            first = list(checkpoints.read(done).weights.values())
            self.watch(Notice(f"Continuing from the checkpoint of round {done:,}."))
        workers = self.settings.workers or threads()
        self.watch(
            Notice(
                f"{self.settings.vectors} with {self.settings.width} numbers a vector on {self.corpus.tokens:,} words, "
                f"{self._length(learner)}, {format_count(workers, 'process', 'processes')}"
            )
        )
        metrics = Metrics(self.out, every=1, memory={})
        metrics.go_back(done)
        shape = (len(first), *first[0].shape)
        array = np.lib.format.open_memmap(self.out / TABLES, mode="w+", dtype=np.float32, shape=shape)
        array[:] = np.stack([table.numpy() for table in first])
        tables = torch.from_numpy(array)
        with one_round(learner, tables, self.out / TABLES, workers) as learn:
            for number in self._numbers(done, learner):
                if self.wish.signal:
                    self.watch(Notice(f"Stopped after round {number:,}. The same command continues from there."))
                    return None
                self._measure(number, learn, metrics)
                self._save(checkpoints, number + 1, tables)
                self._note_time()
        return tables

    def _length(self, learner: AnyLearner) -> str:
        return f"{self.settings.minutes:g} minutes" if self.settings.minutes else format_count(learner.rounds, "round")

    def _numbers(self, done: int, learner: AnyLearner) -> Iterator[int]:
        """Yield the numbers of the rounds from `done` to the last one, or until the time is up."""
        if learner.clock is None:
            yield from range(done, learner.rounds)
            return
        yield done  # a run that is resumed after its time has a round of nothing, and ends
        number = done + 1
        while not learner.clock.over:
            yield number
            number += 1

    def _measure(self, number: int, learn: Callable[[int], Totals], metrics: Metrics) -> None:
        begun = time.monotonic()
        totals = learn(number)
        if not number and not totals.count:
            raise UserError(
                f"No vectors can be learned from {self.corpus.folder}: no word has a neighbour in its document. "
                "Build the corpus from longer texts, or keep more words (--sample 0).",
                code="too-little-data",
            )
        line = {
            "step": number + 1,
            f"{self.settings.vectors}.loss": totals.loss / max(1, totals.count),
            "tokens_per_second": totals.words / (time.monotonic() - begun),
            "tokens": self._last("tokens") + totals.words,
            "seconds": self._last("seconds") + time.monotonic() - begun,
        }
        metrics.write(line)
        self.watch(Measurement(of="training", values=line))

    def _save(self, checkpoints: Checkpoints, step: int, tables: Tensor) -> None:
        named = {str(index): table.clone() for index, table in enumerate(tables)}
        try:
            checkpoints.save(Checkpoint(step=step, weights=named, optimizer={}, state={"step": step}))
        except WriteError as error:
            self.watch(Notice(f"{error}. The run continues without this checkpoint.", warning=True))

    def _write(self, learner: AnyLearner, tables: Tensor) -> None:
        vectors = learner.vectors(tables)
        if not torch.isfinite(vectors).all():
            raise UserError(
                "The vectors have become infinite or undefined. Use a lower --learning-rate (now "
                f"{self.settings.learning_rate:g}) and another --out.",
                code="training-diverged",
            )
        vectors[torch.from_numpy(learner.counts == 0)] = 0  # never learnt: special pieces, and words without occurrence
        write_static(self.out, self.tokenizer, vectors)


def threads() -> int:
    """Return the number of cores that this process may use, or OMP_NUM_THREADS if that is lower."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), max(1, int(limit))) if limit.isdecimal() else cores()
