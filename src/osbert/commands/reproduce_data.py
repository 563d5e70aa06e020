"""The data sets that a table's models are judged on: official files, of which so many rows are drawn."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from osbert.data.split_names import find_named
from osbert.errors import UserError
from osbert.files import replace_file
from osbert.tasks.spans.files import read_json

DOCUMENT = b"-DOCSTART-"
SPLIT_OFF = 0.2
"""Share of the rows that are held out where a data set has no development file beside its training file."""


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A column of a table: official files, and how `osbert finetune` is to read them."""

    column: str
    folder: str
    train: str = "train.tsv"
    dev: str = "dev.tsv"
    alone: str = ""
    """The file that serves where those two are not both there: a fifth of its rows is split off for development."""
    header: bool = True
    """Whether the files begin with a line that names the columns."""
    beside: tuple[str, ...] = ()
    """Files that are taken along as they are, where they are there."""
    kept_as: str = "dev.tsv"
    """What the task calls its development file."""
    task: str = "classify"
    settings: tuple[str, ...] = ()
    scores: Mapping[str, str] = field(default_factory=dict)
    """The task's metric for each column that it fills; accuracy for its own when left open."""

    @property
    def measured(self) -> Mapping[str, str]:
        """Return the task's metric for each column."""
        return self.scores or {self.column: "accuracy"}

    def files(self, data: Path) -> list[Path]:
        """Return the files to read: for training and development, or one for both; none when they are missing."""
        for names in ([self.train, self.dev], [self.alone]):
            found = [data / self.folder / name for name in names]
            if all(names) and all(path.is_file() for path in found):
                more = [data / self.folder / name for name in self.beside] if len(found) > 1 else []
                return found + [path for path in more if path.is_file()]
        return []

    def prepare(self, data: Path, out: Path, *, rows: int) -> None:
        """Write train.tsv, at most `rows` rows drawn at random (0: all), and the development rows into `out`."""
        files = self.files(data)
        lines = files[0].read_bytes().splitlines(keepends=True)
        header = lines.pop(0) if self.header else b""
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
        _write(out / "train.tsv", train)
        _write(out / self.kept_as, dev)
        for path in files[2:]:
            _write(out / path.name, path.read_bytes())


@dataclass(frozen=True, kw_only=True)
class Tagged(DataSet):
    """Official columns of tagged words, of which whole documents are drawn: sentences are read in their documents."""

    def prepare(self, data: Path, out: Path, *, rows: int) -> None:
        """Write the training file, with documents of at most `rows` sentences (0: all), and the development file."""
        train, dev = self.files(data)
        documents = [DOCUMENT + part for part in train.read_bytes().split(DOCUMENT)[1:]]
        sizes = [_sentences(document) for document in documents]
        out.mkdir(parents=True, exist_ok=True)
        _write(out / self.train, b"".join(documents[place] for place in drawn(sizes, rows)))
        _write(out / self.dev, dev.read_bytes())


@dataclass(frozen=True, kw_only=True)
class Asked(DataSet):
    """Questions in SQuAD's files of a release, of which whole paragraphs are drawn: their questions share them."""

    release: str

    def files(self, data: Path) -> list[Path]:
        """Return the files for training and development, whatever else their names say; none when one is missing."""
        try:
            found = find_named(data / self.folder, release=self.release)
        except UserError:
            return []
        named = [found[split] for split in ("train", "dev") if split in found and self.release in found[split].name]
        return named if len(named) > 1 else []

    def prepare(self, data: Path, out: Path, *, rows: int) -> None:
        """Write the training file, paragraphs with at most `rows` questions (0: all), and the development file.

        Raises UserError when the training file is not of SQuAD's form.
        """
        train, dev = self.files(data)
        content = read_json(train)
        try:
            paragraphs = [one for entry in content["data"] for one in entry["paragraphs"]]
            sizes = [len(paragraph["qas"]) for paragraph in paragraphs]
        except (KeyError, TypeError) as error:
            raise UserError(f"{train} is no file in SQuAD's form (data, paragraphs, qas): {error!r}.") from error
        kept = [{"title": "", "paragraphs": [paragraphs[place]]} for place in drawn(sizes, rows)]
        chosen = json.dumps({"version": self.release, "data": kept}, ensure_ascii=False)
        out.mkdir(parents=True, exist_ok=True)
        _write(out / self.train, chosen.encode("utf-8", "surrogatepass"))
        _write(out / self.dev, dev.read_bytes())


@dataclass(frozen=True, kw_only=True)
class Cells(DataSet):
    """CSV files, whose rows may go over several lines."""

    def prepare(self, data: Path, out: Path, *, rows: int) -> None:
        """Write the training file, at most `rows` rows drawn at random (0: all), and the development file."""
        train, dev = self.files(data)
        header, *lines = csv.reader(io.StringIO(train.read_text("utf-8-sig"), newline=""))
        page = io.StringIO(newline="")
        csv.writer(page).writerows([header, *(lines[place] for place in drawn([1] * len(lines), rows))])
        out.mkdir(parents=True, exist_ok=True)
        _write(out / self.train, page.getvalue().encode("utf-8"))
        _write(out / self.dev, dev.read_bytes())


def drawn(sizes: Sequence[int], most: int) -> list[int]:
    """Return the places, in order, of parts drawn at random with at most `most` rows together (0: all), at least one.

    `sizes`: the rows of each part.
    """
    chosen: list[int] = []
    rows = 0
    for place in np.random.default_rng(0).permutation(len(sizes)).tolist():
        if most and rows + sizes[place] > most and chosen:
            break
        chosen.append(place)
        rows += sizes[place]
    return sorted(chosen)


def _sentences(document: bytes) -> int:
    """Return how many sentences a document has; its first block is the mark."""
    return sum(1 for block in document.replace(b"\r", b"").split(b"\n\n") if block.strip()) - 1


def _write(path: Path, content: bytes) -> None:
    replace_file(path, lambda aside: aside.write_bytes(content))
