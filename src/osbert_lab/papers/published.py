"""Published figures of the BERT paper (Devlin et al. 2019), for comparison. Fractions are in per cent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A table of the paper: its title, and its figures by row and column."""

    title: str
    figures: Mapping[str, Mapping[str, float]]
    statements: tuple[str, ...] = ()
    """Statements of the paper about it; a figure without numbers has nothing else."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of all rows in the paper's order; rows may lack some of them."""
        return tuple(dict.fromkeys(column for figures in self.figures.values() for column in figures))


def _rows(columns: tuple[str, ...], rows: Mapping[str, tuple[float, ...]]) -> dict[str, dict[str, float]]:
    return {name: dict(zip(columns, figures, strict=True)) for name, figures in rows.items()}


TABLE_1 = PublishedTable(
    title="Table 1: GLUE, test sets, scored by the evaluation server (section 4.1)",
    figures=_rows(
        ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE", "average"),
        {
            "Pre-OpenAI SOTA": (80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7, 74.0),
            "BiLSTM+ELMo+Attn": (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8, 71.0),
            "OpenAI GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0, 75.1),
            "BERT BASE": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
            "BERT LARGE": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1),
        },
    ),
)

TABLE_2 = PublishedTable(
    title="Table 2: SQuAD 1.1, exact match and F1 (section 4.2); the paper's ensembles are of 7 models",
    figures=_rows(
        ("dev EM", "dev F1"),
        {
            "BERT BASE": (80.8, 88.5),
            "BERT LARGE": (84.1, 90.9),
            "BERT LARGE, ensemble": (85.8, 91.8),
        },
    )
    | _rows(
        ("dev EM", "dev F1", "test EM", "test F1"),
        {
            "BERT LARGE, TriviaQA first": (84.2, 91.1, 85.1, 91.8),
            "BERT LARGE, TriviaQA first, ensemble": (86.2, 92.2, 87.4, 93.2),
        },
    )
    | _rows(("dev EM", "dev F1", "test EM", "test F1"), {"R.M. Reader, ensemble": (81.2, 87.9, 82.3, 88.5)})
    | _rows(("dev F1", "test F1"), {"BiDAF+ELMo": (85.6, 85.8)})
    | _rows(
        ("test EM", "test F1"),
        {"human": (82.3, 91.2), "nlnet, ensemble": (86.0, 91.7), "QANet, ensemble": (84.5, 90.5)},
    ),
)

TABLE_3 = PublishedTable(
    title="Table 3: SQuAD 2.0, exact match and F1 (section 4.3)",
    figures=_rows(
        ("dev EM", "dev F1", "test EM", "test F1"),
        {"BERT LARGE": (78.7, 81.9, 80.0, 83.1), "human": (86.3, 89.0, 86.9, 89.5)},
    )
    | _rows(
        ("test EM", "test F1"),
        {
            "MIR-MRC (F-Net)": (74.8, 78.0),
            "nlnet": (74.2, 77.1),
            "unet, ensemble": (71.4, 74.9),
            "SLQA+": (71.4, 74.4),
        },
    ),
)

TABLE_4 = PublishedTable(
    title="Table 4: SWAG, accuracy (section 4.4)",
    figures=_rows(("dev", "test"), {"ESIM+GloVe": (51.9, 52.7), "ESIM+ELMo": (59.1, 59.2), "BERT LARGE": (86.6, 86.3)})
    | _rows(("test",), {"OpenAI GPT": (78.0,)})
    | _rows(("dev",), {"BERT BASE": (81.6,)})
    | _rows(("test",), {"human, expert": (85.0,), "human, 5 annotations": (88.0,)}),
)

TABLE_5 = PublishedTable(
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

TABLE_6 = PublishedTable(
    title="Table 6: size of the model (layers, width, heads), development sets, mean of 5 restarts (section 5.2)",
    figures=_rows(
        ("LM perplexity", "MNLI-m", "MRPC", "SST-2"),
        {
            "3, 768, 12": (5.84, 77.9, 79.8, 88.4),
            "6, 768, 3": (5.24, 80.6, 82.2, 90.7),
            "6, 768, 12": (4.68, 81.9, 84.8, 91.3),
            "12, 768, 12": (3.99, 84.4, 86.7, 92.9),
            "12, 1024, 16": (3.54, 85.7, 86.9, 93.3),
            "24, 1024, 16": (3.23, 86.6, 87.8, 93.7),
        },
    ),
)

TABLE_7 = PublishedTable(
    title="Table 7: CoNLL-2003, fine-tuned and on features of BERT BASE, F1, mean of 5 restarts (section 5.3)",
    figures=_rows(
        ("dev F1", "test F1"),
        {
            "fine-tuned, BASE": (96.4, 92.4),
            "fine-tuned, LARGE": (96.6, 92.8),
            "ELMo": (95.7, 92.2),
        },
    )
    | _rows(
        ("dev F1",),
        {
            "embeddings": (91.0,),
            "second-to-last layer": (95.6,),
            "last layer": (94.9,),
            "weighted sum of last four": (95.9,),
            "concatenation of last four": (96.1,),
            "weighted sum of all": (95.5,),
        },
    )
    | _rows(("test F1",), {"CVT": (92.6,), "CSE": (93.1,)}),
)

TABLE_8 = PublishedTable(
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

TABLES: Mapping[str, PublishedTable] = {
    "table1": TABLE_1,
    "table2": TABLE_2,
    "table3": TABLE_3,
    "table4": TABLE_4,
    "table5": TABLE_5,
    "table6": TABLE_6,
    "table7": TABLE_7,
    "table8": TABLE_8,
}
"""The tables by osbert's names for them."""

FIGURE_5 = PublishedTable(
    title="Figure 5: MNLI accuracy on the development set after fine-tuning from k steps of pretraining (section C.1)",
    figures={},
    statements=(
        "The figure shows BERT BASE from 200,000 to 1,000,000 steps, as a picture; the paper gives no table of it.",
        "After 1M steps the masked LM gains almost 1.0% of accuracy on MNLI over 500k steps.",
        "The masked LM converges slightly more slowly than the left-to-right model, but is above it in absolute "
        "accuracy almost immediately.",
    ),
)

FIGURES: Mapping[str, PublishedTable] = {"figure5": FIGURE_5}
"""The figures by osbert's names for them."""
