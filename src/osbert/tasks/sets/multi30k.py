"""multi30k: Multi30k, captions and their translations, line by line (Elliott et al. 2016); and such files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal

from osbert.errors import Problems
from osbert.reading.form import find_encoding, open_text
from osbert.reading.splits import USUAL
from osbert.reading.table import Origin, Row
from osbert.tasks import Inputs, Record, Source, Task
from osbert.tasks.kinds.generate import Generate, PairedTextSource

ENDS = ("", ".gz", ".xz", ".bz2")
"""How the name of a file may end behind its language."""


class ParallelSource(PairedTextSource):
    """Reads pairs of files whose lines belong together: train.en and train.de. Tables have a column a language."""

    def find_files(self, data: Path) -> Mapping[str, Path]:
        """Return the file of each split in the source's language, or the tables of a folder."""
        if data.is_file():
            return {"all": data}
        language = "".join(self.task.text[:1])
        found = {
            split: path
            for split, names in USUAL.items()
            for path in [data / f"{name}.{language}{end}" for name in names for end in ENDS][::-1]
            if path.is_file() and self._other(path)
        }
        return found or super().find_files(data)

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        """Yield the pairs of lines of two files, or the rows of a table."""
        if not (other := self._other(origin)):
            yield from super().read(origin, problems, labelled=labelled)
            return
        assert isinstance(origin, Path)
        lines = zip_longest(self._lines(origin), self._lines(other))
        for line, (source, target) in enumerate(lines, 1):
            if source is None or target is None:
                short, long = (origin, other) if source is None else (other, origin)
                problems.add(f"{long}, line {line}: {short} ends before it. Are they of one text?", code="wrong-format")
                return
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
            lines.append(f"no files for development: {self.task.held_out:.0%} of the training lines are held out")
        return lines

    def resolved(self) -> Task:
        """Return the task with the columns of its training table; two files are named by the languages."""
        return self.task if self._other(self.file("train")) else super().resolved()

    def left_out(self, split: str) -> list[str]:
        """Return nothing of files whose lines belong together, of which no line is left out."""
        return [] if all(map(self._other, self.files().values())) else super().left_out(split)

    def moved(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data; a file in the source's language keeps the languages."""
        if isinstance(data, Path) and (data.is_dir() or self._other(data) or self._is_source(data)):
            return Source.moved(self, data, given)
        return super().moved(data, given)

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
        with open_text(path, find_encoding(path, self.task.encoding)) as file:
            for line in file:
                yield line.rstrip("\r\n")

    def _is_source(self, path: Path) -> bool:
        return path.name.removesuffix(path.suffix if path.suffix in ENDS else "").endswith(f".{self.task.text[0]}")

    def _other(self, origin: Origin) -> Path | None:
        """Return the file whose lines belong to those of a file in the source's language, None without one."""
        if not (isinstance(origin, Path) and self._is_source(origin)):
            return None
        end = origin.suffix if origin.suffix in ENDS else ""
        stem = origin.name.removesuffix(end).removesuffix(f".{self.task.text[0]}")
        paths = [origin.with_name(f"{stem}.{self.task.target}{one}") for one in (end, *ENDS)]
        return next((path for path in paths if path.is_file()), None)


@dataclass(frozen=True, kw_only=True)
class Multi30k(Generate):
    """A folder with train.en, train.de, val.en and val.de, each a text a line; --text and --target name the languages.

    Other files that are named and laid out so do as well.
    """

    reader: ClassVar[type[Source]] = ParallelSource

    text: tuple[str, ...] = ("en",)
    target: str = "de"
    kept_by: Literal["rougeL", "bleu", "exact_match"] = "bleu"
