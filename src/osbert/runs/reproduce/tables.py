"""What `osbert reproduce` runs for each table of the paper: the encoders, and the data sets they are judged on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from osbert.errors import Problems, UserError
from osbert.evaluation.paper import (
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_5,
    TABLE_6,
    TABLE_7,
    TABLE_8,
    Published,
)
from osbert.runs.reproduce.data import Asked, Cells, DataSet, Tagged

WIDTH = "--model.width"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table: how its encoder is pretrained, and what fine-tuning adds."""

    name: str
    pretraining: tuple[str, ...] = ()
    finetuning: tuple[str, ...] = ()
    encoder: str = ""
    """The row whose encoder this one takes, where it has none of its own."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the paper as it can be run here. Columns of the paper without a data set are shown, never run."""

    published: Published
    rows: tuple[Row, ...]
    datasets: tuple[DataSet, ...]
    measure: str = "accuracy"
    """What the columns hold, in words."""
    perplexity: str = ""
    """The column with the perplexity of masked pieces on held-out text, where there is one."""
    finetuning: str = "--epochs 3 --learning-rate 3e-5 --length 128"
    """How a model that is given is fine-tuned, where nothing else is said."""
    ensemble: str = ""
    """The row in which all seeds' runs answer together, where there is one."""

    @property
    def varied(self) -> bool:
        """Return whether the rows are encoders that differ, so that no given model can stand for all."""
        return any(row.pretraining for row in self.rows)

    def shrunk(self, factor: int) -> Table:
        """Return the table with the widths of its encoders divided; raises UserError when they cannot be."""
        if factor == 1:
            return self
        rows = [replace(row, pretraining=_shrunk(row.pretraining, factor)) for row in self.rows]
        if rows == [*self.rows]:
            raise UserError("The rows of this table have no widths of their own: give --model.width, not --shrink.")
        return replace(self, rows=tuple(rows))

    def differing(self) -> dict[str, dict[str, str]]:
        """Return the settings of fine-tuning that single rows and columns have beside those of all, by their names."""
        rows = {row.name: shlex.join(row.finetuning) for row in self.rows if row.finetuning}
        columns = {one.column: shlex.join(one.settings) for one in self.datasets if one.settings}
        return {"finetuning_by_column": columns, "finetuning_by_row": rows}

    def own_settings(self, datasets: Sequence[DataSet]) -> list[str]:
        """Return in words, a line each, what rows and the columns `datasets` have beside the settings of all."""
        there, told = {one.column for one in datasets}, self.differing()
        own = [("Column", name, words) for name, words in told["finetuning_by_column"].items() if name in there]
        own += [("Row", name, words) for name, words in told["finetuning_by_row"].items()]
        lines = [f"{kind} '{name}': fine-tuned as all, but {words}." for kind, name, words in own]
        trained = [(row.name, shlex.join(row.pretraining)) for row in self.rows if row.pretraining]
        return lines + [f"Row '{name}': pretrained with {words}." for name, words in trained]

    def present(self, data: Path) -> tuple[DataSet, ...]:
        """Return the data sets whose files are there. Raises UserError that lists all files when none is."""
        present = tuple(dataset for dataset in self.datasets if dataset.files(data))
        if not present:
            problems = Problems(heading=f"This table cannot be run: {data} has none of its data sets")
            for dataset in self.datasets:
                names = [data / dataset.folder / name for name in (dataset.train, dataset.dev)]
                problems.add(f"{dataset.column}: {' and '.join(map(str, names))} are missing")
            problems.stop_if_any()
        return present


MNLI = DataSet(
    column="MNLI-m",
    folder="MNLI",
    dev="dev_matched.tsv",
    settings=("--text", "sentence1", "--pair", "sentence2", "--label", "gold_label"),
)
QNLI = DataSet(
    column="QNLI",
    folder="QNLI",
    alone="dev.tsv",
    settings=("--text", "question", "--pair", "sentence", "--label", "label"),
)
MRPC = DataSet(
    column="MRPC",
    folder="MRPC",
    alone="msr_paraphrase_train.txt",
    settings=("--text", "#1 String", "--pair", "#2 String", "--label", "Quality"),
)
GLUE = (
    DataSet(
        column="MNLI-m",
        folder="MNLI",
        task="mnli",
        dev="dev_matched.tsv",
        kept_as="dev_matched.tsv",
        beside=("dev_mismatched.tsv",),
        scores={"MNLI-m": "accuracy", "MNLI-mm": "accuracy_mismatched"},
    ),
    DataSet(column="QQP", folder="QQP", task="qqp", scores={"QQP": "f1"}),
    DataSet(column="QNLI", folder="QNLI", task="qnli", alone="dev.tsv"),
    DataSet(column="SST-2", folder="SST-2", task="sst2"),
    DataSet(column="CoLA", folder="CoLA", task="cola", header=False, scores={"CoLA": "matthews"}),
    DataSet(column="STS-B", folder="STS-B", task="stsb", scores={"STS-B": "spearman"}),
    DataSet(column="MRPC", folder="MRPC", task="mrpc", alone="msr_paraphrase_train.txt", scores={"MRPC": "f1"}),
    DataSet(column="RTE", folder="RTE", task="rte"),
)
"""GLUE with the paper's choice of scores (Table 1); WNLI is left out, as there."""
SST2 = DataSet(column="SST-2", folder="SST-2", task="sst2")


SQUAD = Asked(
    column="SQuAD 1.1",
    folder="squad",
    train="train-v1.1.json",
    dev="dev-v1.1.json",
    kept_as="dev-v1.1.json",
    release="1.1",
    task="squad",
    settings=("--release", "1.1"),
    scores={"dev EM": "exact", "dev F1": "f1"},
)
SWAG = Cells(
    column="SWAG",
    folder="swag",
    train="train.csv",
    dev="val.csv",
    kept_as="val.csv",
    task="swag",
    scores={"dev": "accuracy"},
)


def _ner(column: str, *settings: str) -> DataSet:
    return Tagged(
        column=column,
        folder="conll2003",
        train="eng.train",
        dev="eng.testa",
        kept_as="eng.testa",
        task="conll2003",
        settings=settings,
        scores={column: "f1"},
    )


def _features(name: str, features: str) -> Row:
    return Row(name=name, encoder=TUNED, finetuning=("--features", features, "--learning-rate", "1e-3"))


def _masking(mix: str) -> Row:
    mask, _, random = (int(share) / 100 for share in mix.split("/"))
    return Row(name=mix, pretraining=("--mlm.mask", f"{mask:g}", "--mlm.random", f"{random:g}"))


TUNED = "fine-tuned, BASE"


def _size(name: str) -> Row:
    layers, width, heads = name.split(", ")
    return Row(name=name, pretraining=("--model.layers", layers, WIDTH, width, "--model.heads", heads))


def _shrunk(words: tuple[str, ...], factor: int) -> tuple[str, ...]:
    if WIDTH not in words:
        return words
    place = words.index(WIDTH) + 1
    width, heads = int(words[place]), int(words[words.index("--model.heads") + 1])
    if factor < 1 or width % (factor * heads):
        raise UserError(f"--shrink {factor} cannot be: {heads} heads must share a width of {width} / {factor} evenly.")
    return (*words[:place], str(width // factor), *words[place + 1 :])


TABLES: Mapping[str, Table] = {
    "table1": Table(
        published=TABLE_1,
        rows=(Row(name="ours"),),
        datasets=GLUE,
        measure="F1 for QQP and MRPC, Spearman correlation for STS-B, Matthews correlation for CoLA, accuracy for the "
        "others,",
    ),
    "table2": Table(
        published=TABLE_2,
        rows=(Row(name="ours"),),
        datasets=(SQUAD,),
        measure="exact match and F1",
        finetuning="--epochs 3 --learning-rate 5e-5 --batch 32",
        ensemble="ours, ensemble",
    ),
    "table3": Table(
        published=TABLE_3,
        rows=(Row(name="ours"),),
        datasets=(
            replace(
                SQUAD,
                column="SQuAD 2.0",
                train="train-v2.0.json",
                dev="dev-v2.0.json",
                kept_as="dev-v2.0.json",
                release="2.0",
                settings=("--release", "2.0"),
            ),
        ),
        measure="exact match and F1, at the threshold that suits the development questions best,",
        finetuning="--epochs 2 --learning-rate 5e-5 --batch 48",
    ),
    "table4": Table(
        published=TABLE_4,
        rows=(Row(name="ours"),),
        datasets=(SWAG,),
        finetuning="--epochs 3 --learning-rate 2e-5 --batch 16",
    ),
    "table5": Table(
        published=TABLE_5,
        rows=(
            Row(name="BASE"),
            Row(name="No NSP", pretraining=("--objectives", "mlm")),
            Row(
                name="LTR & No NSP",
                pretraining=("--objectives", "left_to_right", "--model.direction", "left_to_right"),
            ),
            Row(name="+ BiLSTM", encoder="LTR & No NSP", finetuning=("--recurrent", "1")),
        ),
        datasets=(MNLI, QNLI, MRPC, SST2, replace(SQUAD, column="SQuAD F1", scores={"SQuAD F1": "f1"})),
    ),
    "table6": Table(
        published=TABLE_6,
        rows=tuple(_size(name) for name in TABLE_6.figures),
        datasets=(MNLI, MRPC, SST2),
        perplexity="LM perplexity",
    ),
    "table7": Table(
        published=TABLE_7,
        rows=(
            Row(name=TUNED),
            _features("embeddings", "embeddings"),
            _features("second-to-last layer", "second-to-last"),
            _features("last layer", "last"),
            _features("weighted sum of last four", "sum-last-four"),
            _features("concatenation of last four", "concat-last-four"),
            _features("weighted sum of all", "sum-all"),
        ),
        datasets=(_ner("dev F1"),),
        measure="F1 of entities",
    ),
    "table8": Table(
        published=TABLE_8,
        rows=tuple(_masking(mix) for mix in TABLE_8.figures),
        datasets=(
            MNLI,
            SST2,
            _ner("NER fine-tuned"),
            _ner("NER feature-based", "--features", "concat-last-four"),
        ),
        measure="accuracy, for NER F1 of entities,",
    ),
}


def columns(table: Table) -> tuple[str, ...]:
    """Return the paper's columns, then those that it does not have."""
    ours = (column for dataset in table.datasets for column in dataset.measured)
    return tuple(dict.fromkeys([*table.published.columns, *ours]))


def spread(values: Sequence[float], *, scale: float = 100) -> str:
    """Return a mean and its standard deviation in per cent, "71.2 +- 0.4"; the deviation from two values on."""
    if not values:
        return "-"
    text = f"{scale * float(np.mean(values)):.1f}"
    return text + (f" +- {scale * float(np.std(values, ddof=1)):.1f}" if len(values) > 1 else "")
