"""The settings of sequences and batches: the table [data] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.data.loader_settings import LoaderSettings


@dataclass(frozen=True, kw_only=True)
class DataSettings(LoaderSettings):
    """How sequences are laid out from the corpus and grouped into steps."""

    length: int = 128
    """Most tokens in a sequence, [CLS] and [SEP] included."""
    short: float = 0.1
    """Fraction of the sequences with a random shorter target length."""
    cross_documents: bool = False
    """Let a sequence continue in the next document, after another [SEP] (RoBERTa's FULL-SENTENCES). Only for objectives
    that do not lay out their own sequences."""
    streams: bool = False
    """Cut the corpus into `batch` contiguous streams; each step has the next sequence of each, as model.memory needs.
    Documents follow each other, and `short`, `cross_documents`, `pool` and `duplicates` have no effect."""
    long_share: float = 0.0
    """Fraction of the steps, the last ones, with longer sequences; BERT: 0.1."""
    long_length: int = 512
    """Most tokens in a sequence in those last steps."""

    def __post_init__(self) -> None:
        """Raise ValueError for fractions out of range."""
        super().__post_init__()
        if not 0 <= self.long_share <= 1:
            raise ValueError(f"long_share is a share from 0 to 1, not {self.long_share}")
