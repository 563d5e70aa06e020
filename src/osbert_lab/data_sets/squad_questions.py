"""squad_questions: question generation from an answer and its paragraph, in SQuAD's files (Du et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from osbert.data.example import Booleans
from osbert.errors import Problems
from osbert.reading.splits import find_named
from osbert.reading.table import Origin
from osbert.tasks import Record, Source, Task
from osbert.tasks.kinds.span.files import SquadFiles, hold_out_paragraphs, questions
from osbert_lab.writing.generate import Generate, PairedTextSource


class QuestionWritingSource(PairedTextSource):
    """Reads files in SQuAD's form, and tables with answers, contexts and questions."""

    indivisible: ClassVar[str] = "the questions on a paragraph stay together, and there is one paragraph"

    @cached_property
    def squad(self) -> SquadFiles:
        """The reader of files in SQuAD's form."""
        return SquadFiles(self.task.encoding)

    def find_files(self, data: Path) -> Mapping[str, Path]:
        """Return the file of each split."""
        return find_named(data)

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        """Yield each answer with its paragraph and question; skip questions without an answer."""
        content = self.squad.content(origin)
        if content is None:
            yield from super().read(origin, problems, labelled=labelled)
            return
        assert isinstance(origin, Path)
        for record in questions(content, origin, problems):
            question, paragraph = record.texts
            # Annotators often mark the same text: each distinct answer counts once.
            for answer in dict.fromkeys(gold.text for gold in record.label or ()):
                yield Record(number=0, texts=(answer, paragraph), label=(question,), path=str(origin))

    def mark_held_out(self, records: Sequence[Record]) -> Booleans:
        """Return which records (n,) are held out: all questions on a fraction of the paragraphs."""
        return hold_out_paragraphs(records, self.task.held_out)

    def findings(self) -> list[str]:
        """Return the files in use, and where development questions come from."""
        files = self.files()
        if not self.squad.has(self.file("train")):
            return super().findings()
        lines = [f"{origin}: questions in SQuAD's form" for split, origin in files.items() if split != "test"]
        if "dev" not in files:
            portion = f"{100 * self.task.held_out:g}% of the paragraphs"
            lines.append(f"no file for development: the questions on {portion} are held out")
        return lines

    def resolve(self) -> Task:
        """Return the task with the columns of its training table."""
        return self.task if self.squad.has(self.file("train")) else super().resolve()

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data."""
        of_squad = isinstance(data, Path) and (data.is_dir() or self.squad.has(data))
        return Source.switch_data(self, data, given) if of_squad else super().switch_data(data, given)


@dataclass(frozen=True, kw_only=True)
class SquadQuestions(Generate):
    """A folder with train-v1.1.json and dev-v1.1.json, or one such file; or tables: answer, context and question."""

    reader: ClassVar[type[Source]] = QuestionWritingSource

    text: tuple[str, ...] = ("answer", "context")
    target: str = "question"
