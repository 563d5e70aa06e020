"""The settings of how a corpus becomes sequences, and these become steps: the table [data] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.data.loader import LoaderSettings


@dataclass(frozen=True, kw_only=True)
class DataSettings(LoaderSettings):
    """How the corpus becomes sequences, and these become steps."""

    length: int = 128
    """Most tokens in a sequence, [CLS] and [SEP] included."""
    short: float = 0.1
    """Share of the sequences that aim at a random shorter length."""
    cross_documents: bool = False
    """Let a sequence go on in the next document, after one more [SEP] (RoBERTa's FULL-SENTENCES); for objectives that
    lay out no sequences of their own."""
    streams: bool = False
    """Cut the corpus into `batch` contiguous streams, of which each step has the next sequence, as model.memory needs;
    documents follow each other, and `short`, `cross_documents`, `pool` and `duplicates` change nothing."""
    long_share: float = 0.0
    """Share of the steps, the last ones, that are taken on longer sequences; BERT: 0.1."""
    long_length: int = 512
    """Most tokens in a sequence in those last steps."""

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        super().__post_init__()
        if not 0 <= self.long_share <= 1:
            raise ValueError(f"long_share is a share from 0 to 1, not {self.long_share}")
