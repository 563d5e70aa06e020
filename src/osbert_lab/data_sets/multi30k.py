"""multi30k: captions and their translations in parallel files, line by line (Elliott et al. 2016)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal

from osbert.errors import Problems
from osbert.reading.form import open_text
from osbert.reading.splits import USUAL
from osbert.reading.table import Origin, Row
from osbert.tasks import Inputs, Record, Source, Task
from osbert_lab.writing.generate import Generate, PairedTextSource

ENDS = ("", ".gz", ".xz", ".bz2")
"""Suffixes of a file name after its language."""


class ParallelSource(PairedTextSource):
    """Reads parallel files, such as train.en and train.de, and tables with a column for each language."""

    def find_files(self, data: Path) -> Mapping[str, Path]:
        """Return the file of each split in the source's language, or the tables of a folder."""
        if data.is_file():
            return {"all": data}
        language = "".join(self.task.text[:1])
        paths = {
            split: path
            for split, names in USUAL.items()
            # Reversed: of several files, the last one in the dict wins, so the first usual name and the plain file
            # take precedence.
            for path in [data / f"{name}.{language}{end}" for name in names for end in ENDS][::-1]
            if path.is_file() and self._other(path)
        }
        return paths or super().find_files(data)

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        """Yield the pairs of lines of two files, or the rows of a table."""
        if not (other := self._other(origin)):
            yield from super().read(origin, problems, labelled=labelled)
            return
        assert isinstance(origin, Path)
        # zip_longest, so that a file that ends early is noticed.
        lines = zip_longest(self._lines(origin), self._lines(other))
        for line, (source, target) in enumerate(lines, 1):
            if source is None or target is None:
                short, long = (origin, other) if source is None else (other, origin)
                problems.add(f"{long}, line {line}: {short} ends before it. Are they of one text?", code="wrong-format")
                return
            # A line that is empty in both files is skipped; one that is empty in one file only is an error.
            if bool(source.strip()) != bool(target.strip()):
                problems.add(f"{origin}, line {line}: it or the line in {other} is empty.", code="empty-text")
            elif source.strip():
                yield Record(number=0, texts=(source,), label=(target,), path=str(origin), line=line)

    def findings(self) -> list[str]:
        """Return the files in use."""
        files = self.files()
        pairs = {split: self._other(origin) for split, origin in files.items()}
        if not all(pairs.values()):
            return super().findings()
        lines = [f"{files[split]} and {other}, line by line" for split, other in pairs.items() if split != "test"]
        if "dev" not in files:
            lines.append(f"no files for development: {100 * self.task.held_out:g}% of the training lines are held out")
        return lines

    def resolve(self) -> Task:
        """Return the task with the columns of its training table; unchanged for parallel files."""
        return self.task if self._other(self.file("train")) else super().resolve()

    def left_out(self, split: str) -> list[str]:
        """Return no messages for parallel files, whose lines are all used; those of a table otherwise."""
        return [] if all(map(self._other, self.files().values())) else super().left_out(split)

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data; a file in the source's language keeps the languages."""
        if isinstance(data, Path) and (data.is_dir() or self._other(data) or self._is_source(data)):
            return Source.switch_data(self, data, given)
        return super().switch_data(data, given)

    def inputs(self, data: Origin) -> Inputs:
        """Return the lines of a file in the source's language, or a table."""
        if not (isinstance(data, Path) and self._is_source(data)):
            return super().inputs(data)

        def rows(problems: Problems) -> Iterator[tuple[Row, Record | None]]:
            for line, text in enumerate(self._lines(data), 1):
                record = Record(number=line - 1, texts=(text,), path=str(data), line=line)
                yield Row(line=line, values={"line": str(line), "text": text}), record if text.strip() else None

        return Inputs(describe=f"{data}: a text a line", columns=("line", "text"), rows=rows)

    def _lines(self, path: Path) -> Iterator[str]:
        with open_text(path, self.task.encoding) as file:
            for line in file:
                # Only the line break: other whitespace may belong to the text.
                yield line.rstrip("\r\n")

    def _is_source(self, path: Path) -> bool:
        return path.name.removesuffix(path.suffix if path.suffix in ENDS else "").endswith(f".{self.task.text[0]}")

    def _other(self, origin: Origin) -> Path | None:
        """Return the file parallel to a file in the source's language; None if there is none."""
        if not (isinstance(origin, Path) and self._is_source(origin)):
            return None
        end = origin.suffix if origin.suffix in ENDS else ""
        stem = origin.name.removesuffix(end).removesuffix(f".{self.task.text[0]}")
        # First the file that is compressed in the same way, then any other.
        paths = [origin.with_name(f"{stem}.{self.task.target}{suffix}") for suffix in (end, *ENDS)]
        return next((path for path in paths if path.is_file()), None)


@dataclass(frozen=True, kw_only=True)
class Multi30k(Generate):
    """A folder with train.en, train.de, val.en and val.de, one text per line; --text and --target name the languages.

    Any parallel files with such names can be used.
    """

    reader: ClassVar[type[Source]] = ParallelSource

    text: tuple[str, ...] = ("en",)
    target: str = "de"
    kept_by: Literal["rougeL", "bleu", "exact_match"] = "bleu"
