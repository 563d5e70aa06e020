"""A run of word2vec or GloVe: rounds on all cores, a checkpoint after each, a static model at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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
from osbert.interop.huggingface.tokenizers import read_any_tokenizer
from osbert.interop.word_vectors import write_static
from osbert.runs.contract import Notice, Watch
from osbert.runs.events import Measurement
from osbert.runs.vectors.learners import AnyLearner, Totals, learner_for
from osbert.runs.vectors.processes import one_round
from osbert.runs.vectors.settings import MethodSettings
from osbert.text.file_tokenizer import AnyTokenizer, FileTokenizer
from osbert.text.tokenizer import SPECIALS
from osbert.training.checkpoint import CHECKPOINTS, Checkpoint, Checkpoints, WriteError
from osbert.training.interruption import Interruption
from osbert.training.run_folder import RunFolder
from osbert.training.tracking import Metrics

TABLES = "tables.npy"
"""File of the tables, which all processes of a run map into memory."""


@dataclass(kw_only=True)
class VectorRun:
    """A run in the folder `out`, which its caller has locked."""

    name: str
    settings: MethodSettings
    corpus: Corpus
    out: Path
    watch: Watch
    wish: Interruption
    tokenizer: AnyTokenizer = field(init=False)

    def complete(self) -> bool:
        """Start or resume the run; return True if it finished, False if a wish stopped it.

        Raises UserError if the folder belongs to another run.
        """
        self.tokenizer = read_any_tokenizer(self.corpus.folder)
        if self.tokenizer.fingerprint != self.corpus.fingerprint:
            raise UserError(
                f"The tokenizer in {self.corpus.folder} is not the one that the corpus was built with: build the "
                "corpus again.",
                code="mismatched-tokenizer",
            )
        folder = RunFolder(self.out)
        table, defaults = recipe.as_table(self.settings), recipe.defaults(type(self.settings))
        # How many processes there are changes no setting of the method.
        folder.begin({**table, "workers": 0}, self._facts(), inputs=("corpus", "tokenizer"), defaults=defaults)
        if folder.finished:
            self.watch(Notice(f"The run in {self.out} is finished; nothing is left to do."))
            return True
        learner = learner_for(
            self.settings, corpus=self.corpus, specials=_specials(self.tokenizer), folder=self.out / CHECKPOINTS
        )
        if not learner.counts.any():
            raise UserError(f"{self.corpus.folder} has no words that vectors could be learnt of.", code="no-data")
        tables = self._rounds(learner)
        if tables is None:
            return False
        self._write(learner, tables)
        folder.finish({"parameters": len(self.tokenizer) * self.settings.width})
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
        }

    def _rounds(self, learner: AnyLearner) -> Tensor | None:
        """Return the learnt tables; None if a wish stopped the run before its end."""
        checkpoints = Checkpoints(self.out / CHECKPOINTS, keep=1)
        checkpoints.tidy()
        done, damages = checkpoints.newest()
        for damage in damages:
            self.watch(Notice(damage, warning=True))
        checkpoints.folder.mkdir(parents=True, exist_ok=True)
        learner.prepare()
        if done is None:
            done, first = 0, learner.fresh()
        else:
            first = list(checkpoints.read(done).weights.values())
            self.watch(Notice(f"Going on from the checkpoint of round {done:,}."))
        workers = self.settings.workers or cores()
        self.watch(
            Notice(
                f"{self.settings.vectors} with {self.settings.width} numbers a vector on {self.corpus.tokens:,} words, "
                f"{learner.rounds:,} rounds, {workers} processes"
            )
        )
        metrics = Metrics(self.out, every=1, memory={})
        metrics.go_back(done)
        shape = (len(first), *first[0].shape)
        array = np.lib.format.open_memmap(self.out / TABLES, mode="w+", dtype=np.float32, shape=shape)
        array[:] = np.stack([table.numpy() for table in first])
        tables = torch.from_numpy(array)
        with one_round(learner, tables, self.out / TABLES, workers) as learn:
            for number in range(done, learner.rounds):
                if self.wish.signal:
                    self.watch(Notice(f"Stopped after round {number:,}. The same command goes on from there."))
                    return None
                self._measure(number, learn, metrics)
                self._save(checkpoints, number + 1, tables)
        return tables

    def _measure(self, number: int, learn: Callable[[int], Totals], metrics: Metrics) -> None:
        begun = time.monotonic()
        totals = learn(number)
        if not number and not totals.count:
            raise UserError(
                f"Nothing can be learnt from {self.corpus.folder}: no word has another one beside it in its document. "
                "Build the corpus of longer texts, or keep more words (--sample 0).",
                code="too-little-data",
            )
        line = {
            "step": number + 1,
            f"{self.settings.vectors}.loss": totals.loss / max(1, totals.count),
            "tokens_per_second": totals.words / (time.monotonic() - begun),
        }
        metrics.write(line)
        self.watch(Measurement(of="training", values=line))

    def _save(self, checkpoints: Checkpoints, step: int, tables: Tensor) -> None:
        named = {str(place): table.clone() for place, table in enumerate(tables)}
        try:
            checkpoints.save(Checkpoint(step=step, weights=named, optimizer={}, state={"step": step}))
        except WriteError as error:
            self.watch(Notice(f"{error}. The run goes on without this checkpoint.", warning=True))

    def _write(self, learner: AnyLearner, tables: Tensor) -> None:
        vectors = learner.vectors(tables)
        if not torch.isfinite(vectors).all():
            raise UserError(
                f"The vectors have become infinite or undefined. Give a lower --learning-rate (now "
                f"{self.settings.learning_rate:g}) and another --out.",
                code="training-diverged",
            )
        vectors[torch.from_numpy(learner.counts == 0)] = 0  # never learnt: special pieces, and words without occurrence
        write_static(self.out, self.tokenizer, vectors)


def _specials(tokenizer: AnyTokenizer) -> tuple[int, ...]:
    """Return the ids of the special pieces."""
    pieces = tokenizer.specials.values() if isinstance(tokenizer, FileTokenizer) else SPECIALS
    return tuple(tokenizer.vocabulary.index(piece) for piece in dict.fromkeys(pieces))
