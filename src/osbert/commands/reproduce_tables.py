"""What `osbert reproduce` runs for each table of the paper: the encoders, and the data sets they are judged on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from osbert.errors import Problems
from osbert.evaluation.paper import TABLE_5, TABLE_8, Published
from osbert.files import replace_file

SPLIT_OFF = 0.2
"""Share of the rows that are held out where a data set has no development file beside its training file."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table: how its encoder is pretrained, and what fine-tuning adds."""

    name: str
    pretraining: tuple[str, ...] = ()
    finetuning: tuple[str, ...] = ()
    encoder: str = ""
    """The row whose encoder this one takes, where it has none of its own."""


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A column of a table: official files, and how `osbert finetune` is to read them."""

    column: str
    folder: str
    train: str = "train.tsv"
    dev: str = "dev.tsv"
    alone: str = ""
    """The file that serves where those two are not both there: a fifth of its rows is split off for development."""
    task: str = "classify"
    settings: tuple[str, ...] = ()

    def files(self, data: Path) -> list[Path]:
        """Return the files to read: for training and development, or one for both; none when they are missing."""
        for names in ([self.train, self.dev], [self.alone]):
            found = [data / self.folder / name for name in names]
            if all(names) and all(path.is_file() for path in found):
                return found
        return []

    def prepare(self, data: Path, out: Path, *, rows: int) -> None:
        """Write train.tsv, at most `rows` rows drawn at random (0: all), and dev.tsv into `out`."""
        files = self.files(data)
        header, *lines = files[0].read_bytes().splitlines(keepends=True)
        order = np.random.default_rng(0).permutation(len(lines)).tolist()
        if len(files) > 1:
            dev = files[1].read_bytes()
        else:
            split = round(SPLIT_OFF * len(lines))
            dev = header + b"".join(lines[place] for place in sorted(order[:split]))
            order = order[split:]
        chosen = sorted(order[:rows] if rows else order)
        train = header + b"".join(lines[place] for place in chosen)
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / "train.tsv", lambda aside: aside.write_bytes(train))
        replace_file(out / "dev.tsv", lambda aside: aside.write_bytes(dev))


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the paper as it can be run here. Columns of the paper without a data set are shown, never run."""

    published: Published
    rows: tuple[Row, ...]
    datasets: tuple[DataSet, ...]

    def present(self, data: Path) -> tuple[DataSet, ...]:
        """Return the data sets whose files are there. Raises UserError that lists all files when none is."""
        present = tuple(dataset for dataset in self.datasets if dataset.files(data))
        if not present:
            problems = Problems(heading="This table cannot be run: --data takes a folder with GLUE's own layout")
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
SST2 = DataSet(column="SST-2", folder="SST-2", task="sst2")


def _masking(mix: str) -> Row:
    mask, _, random = (int(share) / 100 for share in mix.split("/"))
    return Row(name=mix, pretraining=("--mlm.mask", f"{mask:g}", "--mlm.random", f"{random:g}"))


TABLES: Mapping[str, Table] = {
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
        datasets=(MNLI, QNLI, MRPC, SST2),
    ),
    "table8": Table(
        published=TABLE_8,
        rows=tuple(_masking(mix) for mix in TABLE_8.figures),
        datasets=(MNLI, SST2),
    ),
}


def columns(table: Table) -> tuple[str, ...]:
    """Return the paper's columns, then those that it does not have."""
    ours = (dataset.column for dataset in table.datasets)
    return tuple(dict.fromkeys([*table.published.columns, *ours]))


def spread(values: Sequence[float]) -> str:
    """Return a mean and its standard deviation in per cent, "71.2 +- 0.4"; the deviation from two values on."""
    if not values:
        return "-"
    text = f"{100 * float(np.mean(values)):.1f}"
    return text + (f" +- {100 * float(np.std(values, ddof=1)):.1f}" if len(values) > 1 else "")
