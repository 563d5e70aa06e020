"""Generates text for every row of a file, in windows of rows; a stopped call can be resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from osbert.data.example import Example
from osbert.errors import Problems, UserError
from osbert.inference.engine import Engine
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.table import Row
from osbert.runs.contract import Watch, ignore
from osbert.runs.file_options import TextFile
from osbert.runs.rows.contract import ROWS
from osbert.runs.rows.forms.contract import ValueResult
from osbert.runs.rows.output import RowOutput, form_name
from osbert.runs.rows.table import Results, ResultSource, write_table
from osbert.runs.rows.texts import TextJob, TextRows
from osbert.terminal import format_count
from osbert_lab.writing.settings import Generation, GivenOptions
from osbert_lab.writing.text_writer import TextWriter, describe_remarks

EMPTY_BEFORE = "empty_before"
"""The rows without a prompt before the range of a task, in its tally."""
COLUMNS = ("generated", "pieces", "log_probability", "ended", "truncated")


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


def generation_result(generation: Generation | None) -> ValueResult:
    """Return the text generated for a row as its result; empty for a row with nothing to read."""
    if generation is None:
        return ValueResult(values=dict.fromkeys(COLUMNS))
    values = {name: getattr(generation, name) for name in COLUMNS[1:]}
    # Further decimals depend on the other rows of a batch, by the rounding of fp32.
    rounded = {"log_probability": round(generation.log_probability, 4)}
    return ValueResult(values={"generated": generation.text, **values, **rounded})


@dataclass(frozen=True, kw_only=True)
class GenerationSource(ResultSource["GenerationJob"]):
    """A call that generates text for the rows of a file."""

    work_name = "a generation that was begun"

    writing: GivenOptions
    device: str

    def open(self) -> GenerationJob:
        """Open the model and the file. Raises UserError, as for a model that cannot generate."""
        rows = TextRows.open(self.file, self.reading, name=self.name)
        form = self.output.choose_form(rows.layout(COLUMNS))
        engine, weights = self.load_model(self.device, resumable=bool(self.output.kept))
        writer = TextWriter.of(engine, self.writing)
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
class GenerationJob(TextJob):
    """The texts of a file, what generates for them, and the form of the output."""

    verb = "generate"
    work = "generation"

    engine: Engine
    writer: TextWriter

    def describe(self) -> Iterator[str]:
        """Yield remarks on the model, and the description of the file."""
        yield from describe_remarks(self.engine)
        yield self.description

    def check_row(self, row: Row, problems: Problems) -> Row:
        """Raise UserError if the memory does not suffice for a prompt; an unusable row goes to `problems`."""
        if (prompt := self._prompt(row, problems)) is not None:
            self.writer.writer.require_memory([prompt])
        return row

    def results(self, window: Sequence[Row], tally: Mapping[str, int]) -> Results:
        """Return the rows with the text generated for each."""
        problems = self.before.problems()
        prompts = [self._prompt(row, problems) for row in window]
        problems.stop_if_any()
        # The index among rows with text seeds the sampling: a resumed call draws as an uninterrupted one would.
        first = tally.get(ROWS, 0) - tally.get("empty", 0) - tally.get(EMPTY_BEFORE, 0)
        generations = self.writer.writer.write([prompt for prompt in prompts if prompt is not None], first=first)
        remaining = iter(generations)
        results = [generation_result(None if prompt is None else next(remaining)) for prompt in prompts]
        return list(zip(window, results, strict=True)), {
            "empty": prompts.count(None),
            "cut": sum(generation.truncated > 0 for generation in generations),
            "blank": sum(not generation.pieces for generation in generations),
            "pieces": sum(generation.pieces for generation in generations),
        }

    def count_before(self, start: int) -> dict[str, int]:
        """Return the number of rows without a prompt before row number `start`."""
        problems = self.before.problems()
        return {EMPTY_BEFORE: sum(self._prompt(row, problems) is None for row in islice(self.rows.rows(), start))}

    def _prompt(self, row: Row, problems: Problems) -> Example | None:
        """Return the prompt of a row, None if there is nothing in it to read; an unusable row goes to `problems`."""
        text = self.text(row)
        try:
            prompt = self.writer.prompt((text,)) if text.strip() else None
        except UserError as error:
            problems.add(f"{self.rows.name}, line {row.line}: {error}", code=error.code)
            return None
        return None if prompt is None or self.writer.lack(prompt) else prompt


def generate_file(
    model: Path,
    texts: TextFile,
    *,
    out: Path,
    writing: GivenOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> GenerationTally:
    """Write the rows of a file with the text generated for each to `out`, in the form of its ending.

    With sampling, a result depends on the seed and the text's index among the rows with text. Rows without a piece to
    read get no result. The file gets its name when it is complete; until then its rows are in OUT.unfinished, and the
    same call resumes a stopped one. Raises UserError if the model cannot generate, for invalid options and unusable
    rows, and if the unfinished work is of another call.
    """
    source = GenerationSource(
        model=model,
        file=texts.path,
        reading=texts.options,
        opening=opening,
        form=texts.input_form,
        output=RowOutput(path=out),
        writing=writing or GivenOptions(),
        device=texts.device,
    )
    _, tally = write_table(source, watch)
    return GenerationTally(**{name: tally.get(name, 0) for name in ("rows", "empty", "cut", "blank", "pieces")})
