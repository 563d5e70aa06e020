"""scitldr: SciTLDR, one-sentence summaries of papers from their abstracts (Cachola et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.tasks.kinds.generate import Generate


@dataclass(frozen=True, kw_only=True)
class Scitldr(Generate):
    """A folder with train.jsonl, dev.jsonl and test.jsonl: source, the sentences of a text, and target, summaries.

    Of several summaries each is learnt, and a text is compared with the one that is most alike.
    """

    text: tuple[str, ...] = ("source",)
    target: str = "target"
