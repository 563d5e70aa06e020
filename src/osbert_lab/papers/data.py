"""The data sets of a table: official files, sampled down to the wanted number of rows."""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from osbert.errors import UserError
from osbert.files import replace_file
from osbert.reading.splits import find_named
from osbert.tasks.kinds.span.files import read_json
from osbert_lab.papers.glue import COLUMNS, SETS

DOCUMENT = b"-DOCSTART-"
TRAIN, PACKED = "train", ".xz"
SPLIT_OFF = 0.2
"""Fraction of the rows held out where a data set has no development file beside its training file."""


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """A data set that fills one or more columns of a table, and how `osbert finetune` reads it."""

    name: str
    set: str
    """The data set's task."""
    files: tuple[str, ...] = ("train.tsv", "dev.tsv")
    """File names: training, development, then optional further files. A name that begins with "train" is a training
    file. A file may be compressed (.xz)."""
    alone: str = ""
    """The file to use if the first two do not both exist; a fifth of its rows is split off for development."""
    header: bool = True
    """Whether the files begin with a line of column names."""
    task: str = ""
    """The task to fine-tune as; empty for the data set's own."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of fine-tuning for this data set."""
    scores: Mapping[str, str] = field(default_factory=dict)
    """The task's metric for each column that the data set fills; empty for GLUE's official metrics, else accuracy."""
    release: str = ""
    """The release of the files, if a folder may hold several; empty for the release in `settings`, if any."""
    path: Path | None = None
    """The data's own path, in place of the folder of its name. If `files` is empty, the task finds the files there."""

    @property
    def measured(self) -> Mapping[str, str]:
        """The task's metric for each column."""
        if self.scores:
            return self.scores
        official = {glue.task: glue.scores for glue in SETS}.get("" if self.task else self.set, {})
        return {column: score for column, score in official.items() if column in COLUMNS} or {self.name: "accuracy"}

    @property
    def folder(self) -> str:
        """The folder name of the files: GLUE's name for the set if it has one, else the data set's."""
        return next((glue.name for glue in SETS if glue.task == self.set), self.set)

    def find(self, data: Path) -> list[Path]:
        """Return the files to read: training and development files, or one file for both; [] if they are missing."""
        folder = self.path or data / self.folder
        if not self.files:
            return [path for path in (sorted(folder.iterdir()) if folder.is_dir() else [folder]) if path.is_file()]
        # Files of several releases may lie side by side, so the names alone do not decide.
        if release := self.release or self.settings.get("release"):
            return _of_release(folder, release)
        for names in (self.files[:2], [self.alone]):
            paths = [folder / name for name in names]
            if all(names) and all(path.is_file() for path in paths):
                more = [folder / name for name in self.files[2:]] if len(paths) > 1 else []
                return paths + [path for path in more if path.is_file()]
        return []

    def missing(self, data: Path) -> UserError:
        """Return the error to raise if `find` finds nothing."""
        folder = self.path or data / self.folder
        names = " and ".join(str(folder / name) for name in self.files[:2])
        message = f"{names} are missing" if names else f"{folder} is no file, and no folder with files"
        return UserError(f"{message}.", code="missing-split")

    def prepare(self, data: Path, out: Path, *, rows: int, dev_rows: int = 0) -> None:
        """Write the training and the development file into `out`, with at most `rows` and `dev_rows` rows (0: all).

        Rows are sampled with a fixed seed. Nothing is copied if `files` is empty: the task reads the data in its own
        folder, with all rows. Raises UserError if a file has another format.
        """
        if not self.files:
            return
        files = self.find(data)
        dev = f"dev{Path(self.files[1]).suffix}" if self.task else self.files[1]  # the name that the task knows
        if len(files) < 2:
            # One file for both splits: a fixed permutation, whose first fifth is for development. Each split keeps file
            # order.
            lines, header = self._lines(files[0])
            order = np.random.default_rng(0).permutation(len(lines)).tolist()
            border = round(SPLIT_OFF * len(lines))
            parts = {self.files[0]: (order[border:], rows), dev: (order[:border], dev_rows)}
            contents = {
                name: header + b"".join(lines[index] for index in sorted(indices[:most] if most else indices))
                for name, (indices, most) in parts.items()
            }
        else:
            names = (self.files[0], dev, *(path.name for path in files[2:]))
            most = (rows, *(rows if path.name.startswith(TRAIN) else dev_rows for path in files[1:]))
            contents = {
                name.removesuffix(PACKED): self.sample_file(path, count) if count else read_decompressed(path)
                for name, path, count in zip(names, files, most)
            }
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            replace_file(out / name, lambda aside, content=content: aside.write_bytes(content))  # type: ignore[misc]

    def sample_file(self, path: Path, rows: int) -> bytes:
        """Return a file's content with at most `rows` rows; some formats keep whole documents or paragraphs."""
        if path.suffix == ".json":
            return _questions(path, rows)
        if path.suffix == ".csv":
            return _cells(path, rows)
        if path.name.startswith("eng."):  # tagged words, whose sentences are read in their documents
            documents = [DOCUMENT + part for part in path.read_bytes().split(DOCUMENT)[1:]]
            return b"".join(
                documents[index] for index in sample_parts([_sentences(document) for document in documents], rows)
            )
        lines, header = self._lines(path)
        return header + b"".join(lines[index] for index in sample_parts([1] * len(lines), rows))

    def _lines(self, path: Path) -> tuple[list[bytes], bytes]:
        """Return the lines of a file and its header line, b"" if it has none."""
        lines = io.BytesIO(read_decompressed(path)).readlines()
        return (lines[1:], lines[0]) if self.header and lines else (lines, b"")


def read_decompressed(path: Path) -> bytes:
    """Return the content of a file, decompressed if its name ends with .xz."""
    return lzma.decompress(path.read_bytes()) if path.suffix == PACKED else path.read_bytes()


def _of_release(folder: Path, release: str) -> list[Path]:
    """Return the files whose names contain the release of SQuAD; [] if the training or development file is missing."""
    try:
        paths_by_split = find_named(folder, release=release)
    except UserError:
        return []
    named = [
        paths_by_split[split]
        for split in ("train", "dev")
        if split in paths_by_split and release in paths_by_split[split].name
    ]
    return named if len(named) > 1 else []


def _questions(path: Path, rows: int) -> bytes:
    """Return SQuAD's JSON with at most `rows` questions. Whole paragraphs are kept, since their questions share
    them."""
    content = read_json(path)
    try:
        paragraphs = [paragraph for entry in content["data"] for paragraph in entry["paragraphs"]]
        sizes = [len(paragraph["qas"]) for paragraph in paragraphs]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not a file in SQuAD's format (data, paragraphs, qas): {error!r}.", code="wrong-format"
        ) from error
    articles = [{"title": "", "paragraphs": [paragraphs[index]]} for index in sample_parts(sizes, rows)]
    # Every kept paragraph becomes an article of its own: titles do not matter for the task.
    chosen = json.dumps({"version": content.get("version", ""), "data": articles}, ensure_ascii=False)
    return chosen.encode("utf-8", "surrogatepass")


def _cells(path: Path, rows: int) -> bytes:
    """Return CSV with at most `rows` rows; a quoted row may span several lines."""
    header, *lines = csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline=""))
    page = io.StringIO(newline="")
    csv.writer(page).writerows([header, *(lines[index] for index in sample_parts([1] * len(lines), rows))])
    return page.getvalue().encode("utf-8")


def sample_parts(sizes: Sequence[int], most: int) -> list[int]:
    """Return the sorted indices of randomly sampled parts with at most `most` rows in total (0: all), at least one.

    `sizes`: the rows of each part.
    """
    chosen: list[int] = []
    rows = 0
    # A fixed seed: the sample is the same whenever the data is prepared, and a smaller one is a part of a larger one.
    for index in np.random.default_rng(0).permutation(len(sizes)).tolist():
        # `and chosen`: the first part is kept even if it alone is larger than the limit.
        if most and rows + sizes[index] > most and chosen:
            break
        chosen.append(index)
        rows += sizes[index]
    return sorted(chosen)


def _sentences(document: bytes) -> int:
    """Return the number of sentences in a document. Its first block is the document mark."""
    return sum(1 for block in document.replace(b"\r", b"").split(b"\n\n") if block.strip()) - 1
