"""scitldr: SciTLDR, one-sentence summaries of papers from their abstracts (Cachola et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from osbert_lab.writing.generate import Generate


@dataclass(frozen=True, kw_only=True)
class Scitldr(Generate):
    """A folder with train.jsonl, dev.jsonl and test.jsonl: source, the sentences of a text, and target, summaries.

    If a text has several summaries, all are used for training, and the score is that of the most similar one.
    """

    text: tuple[str, ...] = ("source",)
    target: str = "target"
