"""Published figures of the BERT paper (Devlin et al. 2019), to stand beside one's own. Shares are in per cent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Published:
    """A table of the paper: its title, and its figures by row and column."""

    title: str
    figures: Mapping[str, Mapping[str, float]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns, in the paper's order."""
        return tuple(next(iter(self.figures.values())))


def _rows(columns: tuple[str, ...], rows: Mapping[str, tuple[float, ...]]) -> dict[str, dict[str, float]]:
    return {name: dict(zip(columns, figures, strict=True)) for name, figures in rows.items()}


TABLE_5 = Published(
    title="Table 5: pretraining tasks, BERT BASE, development sets (section 5.1)",
    figures=_rows(
        ("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD F1"),
        {
            "BASE": (84.4, 88.4, 86.7, 92.7, 88.5),
            "No NSP": (83.9, 84.9, 86.5, 92.6, 87.9),
            "LTR & No NSP": (82.1, 84.3, 77.5, 92.1, 77.8),
            "+ BiLSTM": (82.1, 84.1, 75.7, 91.6, 84.9),
        },
    ),
)

TABLE_8 = Published(
    title="Table 8: masking, MASK/SAME/RND, BERT BASE, development sets (section C.2)",
    figures=_rows(
        ("MNLI-m", "NER fine-tuned", "NER feature-based"),
        {
            "80/10/10": (84.2, 95.4, 94.9),
            "100/0/0": (84.3, 94.9, 94.0),
            "80/0/20": (84.1, 95.2, 94.6),
            "80/20/0": (84.4, 95.2, 94.7),
            "0/20/80": (83.7, 94.8, 94.6),
            "0/0/100": (83.6, 94.9, 94.6),
        },
    ),
)
