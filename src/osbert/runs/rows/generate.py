"""Generates text for every row of a file, in windows of rows; a stopped call can be resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from osbert.data.example import Example
from osbert.errors import Problems, UserError
from osbert.inference.engine import Engine, load
from osbert.inference.generate import TextWriter
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.models.generation.settings import Generation, GivenOptions
from osbert.reading.data_file import DataFile
from osbert.reading.table import Row
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.file_options import EmbeddedOptions, TextFile
from osbert.runs.rows.contract import ROWS, RowProgress
from osbert.runs.rows.forms.contract import ResultRow, RowForm, RowResult
from osbert.runs.rows.machine import open_workspace
from osbert.runs.rows.output import RowOutput, form_name
from osbert.runs.rows.table import LostFields, TableJob, write_rows
from osbert.runs.rows.texts import TextFileSource, TextRows, local_texts
from osbert.terminal import format_count

WINDOW = 256
"""Rows that are read at a time, so that prompts of similar length share a batch."""
COLUMNS = ("generated", "pieces", "log_probability", "ended", "truncated")


@dataclass(frozen=True, kw_only=True)
class GenerationKeywords:
    """The keywords of `osbert.generate`: how texts are written, how the file is read, how the model is opened."""

    writing: GivenOptions = field(default_factory=GivenOptions)
    file: EmbeddedOptions = field(default_factory=EmbeddedOptions)
    opening: Opening = CAREFUL


class GenerationProgress(RowProgress):
    """Event: `done` of `count` rows are finished."""


@dataclass(frozen=True, kw_only=True)
class GenerationTally:
    """Counts of rows, of rows without text, of truncated rows, of texts that ended at once, and of generated pieces."""

    rows: int
    empty: int
    cut: int
    blank: int
    pieces: int

    def lines(self) -> Iterator[str]:
        """Yield sentences with the counts."""
        cut = f"; of {format_count(self.cut, 'text')} a part is not read, see the column truncated" if self.cut else ""
        empty = f"; {self.empty:,} without text" if self.empty else ""
        blank = f"; {format_count(self.blank, 'text')} ended at once, without a piece" if self.blank else ""
        yield f"{format_count(self.rows, 'row')}, {format_count(self.pieces, 'piece')} written{empty}{cut}{blank}"


@dataclass(frozen=True, kw_only=True)
class WrittenGeneration(RowResult):
    """The text generated for a row; None for a row with nothing to read."""

    generation: Generation | None

    def cells(self) -> Mapping[str, Any]:
        """Return the cells of a table's row."""
        return {name: "" if value is None else value for name, value in self.fields().items()}

    def fields(self) -> Mapping[str, Any]:
        """Return the fields of a JSON object."""
        if self.generation is None:
            return dict.fromkeys(COLUMNS)
        # Further decimals depend on the other rows of a batch, by the rounding of fp32.
        values = {name: getattr(self.generation, name) for name in COLUMNS if name != "generated"}
        return {
            "generated": self.generation.text,
            **values,
            "log_probability": round(self.generation.log_probability, 4),
        }


@dataclass(frozen=True, kw_only=True)
class GenerationSource(TextFileSource):
    """The texts to go on with, the folder of the model, and the output."""

    options: GenerationKeywords
    output: RowOutput

    def open(self) -> GenerationJob:
        """Open the model and the file. Raises UserError, as for a model that cannot generate."""
        rows = TextRows.open(self.texts, self.folder)
        form = self.output.choose_form(rows.layout(COLUMNS, self.output))
        folder = open_folder(self.model, self.options.opening)
        weights = folder.fingerprint if self.output.kept else ""  # before `load`, which frees the memory of the weights
        engine = load(folder, device=self.options.file.device)
        writer = TextWriter.of(engine, self.options.writing)
        facts = {
            "input": rows.before.sha256,
            "weights": weights,
            "tokenizer": engine.tokenizer.fingerprint,
            "column": rows.columns.text,
            "form": form_name(type(form)),
            "writing": asdict(writer.writer.options),
        }
        return GenerationJob(engine=engine, writer=writer, rows=rows, form=form, before=rows.before, facts=facts)


@dataclass(frozen=True, kw_only=True)
class GenerationJob(TableJob):
    """The texts of a file, what generates for them, and the form of the output."""

    progress = GenerationProgress

    engine: Engine
    writer: TextWriter
    rows: TextRows
    form: RowForm
    before: DataFile
    facts: Mapping[str, Any]

    def check(self, watch: Watch) -> int:
        """Raise UserError that lists every unusable row, or if the memory does not suffice for the longest one."""
        if self.rows.columns.pair:
            raise UserError(
                f"{self.rows.name}: `osbert generate` reads one text per row, but two columns were found "
                f"({self.rows.columns.text}, {self.rows.columns.pair}). Choose one with --text; a run that reads "
                "several texts together: osbert predict --file.",
                code="wrong-number-of-texts",
            )
        self.rows.check()
        problems = Problems(heading=f"{self.rows.name} cannot be used")
        lost = LostFields(self.form)
        for row in self.rows.rows():
            if (prompt := self._prompt(row, problems)) is not None:
                self.writer.writer.require_memory([prompt])
            lost.add(row)
        problems.stop_if_any()
        for notice in lost.notices():
            watch(notice)
        return self.rows.count

    def windows(self, start: int = 0, stop: int | None = None) -> Iterator[list[Row]]:
        """Yield the rows, so many at a time."""
        rows = islice(self.rows.rows(), start, stop)
        while window := list(islice(rows, WINDOW)):
            yield window

    def results(self, window: Sequence[Row], tally: Mapping[str, int]) -> tuple[list[ResultRow], dict[str, int]]:
        """Return the rows with what is generated for each."""
        problems = self.before.problems()
        prompts = [self._prompt(row, problems) for row in window]
        problems.stop_if_any()
        # The index among rows with text seeds the sampling: a resumed call draws as an uninterrupted one would.
        first = tally.get(ROWS, 0) - tally.get("empty", 0)
        generations = self.writer.writer.write([prompt for prompt in prompts if prompt is not None], first=first)
        remaining = iter(generations)
        rows = [
            ResultRow(
                number=tally.get(ROWS, 0) + index,
                row=row,
                result=WrittenGeneration(generation=None if prompt is None else next(remaining)),
            )
            for index, (row, prompt) in enumerate(zip(window, prompts, strict=True))
        ]
        return rows, {
            "empty": prompts.count(None),
            "cut": sum(generation.truncated > 0 for generation in generations),
            "blank": sum(not generation.pieces for generation in generations),
            "pieces": sum(generation.pieces for generation in generations),
        }

    def _prompt(self, row: Row, problems: Problems) -> Example | None:
        """Return the prompt of a row, None if there is nothing in it to read; an unusable row goes to `problems`."""
        text = row.values[self.rows.columns.text]
        try:
            prompt = self.writer.prompt((text,)) if text.strip() else None
        except UserError as error:
            problems.add(f"{self.rows.name}, line {row.line}: {error}", code=error.code)
            return None
        return None if prompt is None or self.writer.lack(prompt) else prompt


def generate_file(
    model: Path, texts: TextFile, *, out: Path, options: GenerationKeywords, watch: Watch = ignore
) -> GenerationTally:
    """Write the rows of a file with the text generated for each to `out`, in the form of its ending.

    With sampling, a result depends on the seed and the text's index among the rows with text. Rows without a piece to
    read get no result. The file gets its name when it is complete; until then its rows are in OUT.unfinished, and the
    same call resumes a stopped one. Raises UserError if the model cannot generate, for invalid options and unusable
    rows, and if the unfinished work is of another call.
    """
    with local_texts(texts, out) as (local, local_out):
        output = RowOutput(path=local_out)
        output.refuse_inputs((local.path,))
        with open_workspace(output.kept, "a generation that was begun") as (folder, work):
            source = GenerationSource(model=model, texts=local, options=options, output=output, folder=folder)
            job = source.open()
            report_remarks(job.engine, watch, writes=True)
            watch(Notice(job.rows.describe()))
            tally = write_rows(job, source, output, folder=folder, work=work, watch=watch)
        counts = {name: tally.get(name, 0) for name in ("rows", "empty", "cut", "blank", "pieces")}
        return GenerationTally(**counts)
