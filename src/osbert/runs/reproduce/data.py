"""The data sets that a table's models are judged on: official files, of which so many rows are drawn."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from osbert.errors import UserError
from osbert.files import replace_file
from osbert.reading.splits import find_named
from osbert.tasks.kinds.span.files import read_json

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

    def prepare(self, data: Path, out: Path, *, rows: int, dev_rows: int = 0) -> None:
        """Write the training and the development file into `out`, at most so many rows of each (0: all).

        Rows are drawn at random, the same ones whenever it is done. Raises UserError when a file has another form.
        """
        files = self.files(data)
        kept = self._split(files[0], rows, dev_rows) if len(files) < 2 else self._both(files, rows, dev_rows)
        out.mkdir(parents=True, exist_ok=True)
        for name, content in kept.items():
            replace_file(out / name, lambda aside, content=content: aside.write_bytes(content))  # type: ignore[misc]

    def shortened(self, path: Path, rows: int) -> bytes:
        """Return the content of a file with at most `rows` of its rows."""
        lines = path.read_bytes().splitlines(keepends=True)
        header = lines.pop(0) if self.header else b""
        return header + b"".join(lines[place] for place in drawn([1] * len(lines), rows))

    def _both(self, files: Sequence[Path], rows: int, dev_rows: int) -> dict[str, bytes]:
        train, dev, *beside = files
        sizes = {self.train: (train, rows), self.kept_as: (dev, dev_rows)} | {
            one.name: (one, dev_rows) for one in beside
        }
        return {name: self.shortened(path, most) if most else path.read_bytes() for name, (path, most) in sizes.items()}

    def _split(self, path: Path, rows: int, dev_rows: int) -> dict[str, bytes]:
        lines = path.read_bytes().splitlines(keepends=True)
        header = lines.pop(0) if self.header else b""
        order = np.random.default_rng(0).permutation(len(lines)).tolist()
        border = round(SPLIT_OFF * len(lines))
        parts = {self.train: (order[border:], rows), self.kept_as: (order[:border], dev_rows)}
        return {
            name: header + b"".join(lines[place] for place in sorted(places[:most] if most else places))
            for name, (places, most) in parts.items()
        }


@dataclass(frozen=True, kw_only=True)
class Tagged(DataSet):
    """Official columns of tagged words, of which whole documents are drawn: sentences are read in their documents."""

    def shortened(self, path: Path, rows: int) -> bytes:
        """Return the content of a file with documents of at most `rows` sentences."""
        documents = [DOCUMENT + part for part in path.read_bytes().split(DOCUMENT)[1:]]
        return b"".join(documents[place] for place in drawn([_sentences(one) for one in documents], rows))


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

    def shortened(self, path: Path, rows: int) -> bytes:
        """Return the content of a file with paragraphs of at most `rows` questions."""
        content = read_json(path)
        try:
            paragraphs = [one for entry in content["data"] for one in entry["paragraphs"]]
            sizes = [len(paragraph["qas"]) for paragraph in paragraphs]
        except (KeyError, TypeError) as error:
            raise UserError(f"{path} is no file in SQuAD's form (data, paragraphs, qas): {error!r}.") from error
        kept = [{"title": "", "paragraphs": [paragraphs[place]]} for place in drawn(sizes, rows)]
        chosen = json.dumps({"version": self.release, "data": kept}, ensure_ascii=False)
        return chosen.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, kw_only=True)
class Cells(DataSet):
    """CSV files, whose rows may go over several lines."""

    def shortened(self, path: Path, rows: int) -> bytes:
        """Return the content of a file with at most `rows` of its rows."""
        header, *lines = csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline=""))
        page = io.StringIO(newline="")
        csv.writer(page).writerows([header, *(lines[place] for place in drawn([1] * len(lines), rows))])
        return page.getvalue().encode("utf-8")


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
