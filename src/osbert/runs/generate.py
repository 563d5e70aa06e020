"""Generates text for every row of a file, in windows of rows; a stopped call can be resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from osbert.data.example import Example
from osbert.errors import Problems, UserError
from osbert.files import disk_needed, is_stream, replace_file
from osbert.inference.engine import load
from osbert.inference.generate import TextWriter
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.models.generation.generated_text import Generation
from osbert.models.generation.settings import GivenOptions
from osbert.reading.table import Row
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.embed.addresses import local_texts
from osbert.runs.embed.rows import TextRows
from osbert.runs.embed.settings import TextFile
from osbert.runs.file_options import EmbeddedOptions
from osbert.runs.predict.forms.contract import free_names
from osbert.runs.predict.part import RowPart, RowSink, RowStream
from osbert.runs.row_file import RowText, require_row_file
from osbert.runs.standard_input import rename_in_errors
from osbert.runs.unfinished import UnfinishedOutput, explaining_stops, link_or_copy, open_unfinished_output
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


@dataclass(frozen=True, kw_only=True)
class GenerationProgress:
    """Event: `done` of `count` rows are finished."""

    done: int
    count: int


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


def _cells(generation: Generation | None) -> tuple[Any, ...]:
    if generation is None:
        return (None,) * len(COLUMNS)
    # Further decimals depend on the other rows of a batch, by the rounding of fp32.
    return (
        generation.text,
        generation.pieces,
        round(generation.log_probability, 4),
        generation.ended,
        generation.truncated,
    )


def generate_file(
    model: Path, texts: TextFile, *, out: Path, options: GenerationKeywords, watch: Watch = ignore
) -> GenerationTally:
    """Write the rows of a file with the text generated for each to `out`: .csv, .tsv or .jsonl.

    With sampling, a result depends on the seed and the text's index among the rows with text. Rows without a piece to
    read get no result. The file gets its name when it is complete; until then its rows are in OUT.unfinished, and the
    same call resumes a stopped one. Raises UserError if the model cannot generate, for invalid options and unusable
    rows, and if the unfinished work is of another call.
    """
    with local_texts(texts, out) as (local, local_out):
        return _generate(model, local, out=local_out, options=options, watch=watch)


def _generate(model: Path, texts: TextFile, *, out: Path, options: GenerationKeywords, watch: Watch) -> GenerationTally:
    """Generate for the rows of a local file into a local output."""
    require_row_file(out, [texts.path])
    with ExitStack() as held:
        work = None
        if not is_stream(out):
            held.enter_context(disk_needed(out, goes_on="after the last window"))
            output_path = held.enter_context(claim(out))
            work = held.enter_context(open_unfinished_output(output_path, "a generation that was begun"))
        folder = work.folder if work else Path(held.enter_context(TemporaryDirectory(prefix="osbert-")))
        held.enter_context(rename_in_errors(folder))
        source = open_folder(model, options.opening)
        weights = source.fingerprint if work else ""  # before `load`, which frees the memory of the weights
        engine = load(source, device=options.file.device)
        report_remarks(engine, watch, writes=True)
        writer = TextWriter.of(engine, options.writing)
        rows = TextRows.open(texts, folder)
        if rows.columns.pair:
            raise UserError(
                f"{rows.name}: one text a row is gone on with. A run that reads several: osbert predict --file.",
                code="wrong-number-of-texts",
            )
        watch(Notice(rows.describe()))
        facts = {
            "input": rows.before.sha256,
            "weights": weights,
            "tokenizer": engine.tokenizer.fingerprint,
            "column": rows.columns.text,
            "writing": asdict(writer.writer.options),
        }
        return _FileGeneration(writer=writer, rows=rows, work=work, watch=watch).complete(out, folder, facts)


@dataclass(frozen=True, kw_only=True)
class _FileGeneration:
    """Generation for the rows of a file, started or resumed.

    `work`: the unfinished output; None if the output is a stream.
    """

    writer: TextWriter
    rows: TextRows
    work: UnfinishedOutput | None
    watch: Watch

    def complete(self, out: Path, folder: Path, facts: Mapping[str, Any]) -> GenerationTally:
        """Generate for the remaining rows. Raises UserError if the work was started with other `facts`."""
        if self.work and (begun := self.work.begun):
            self.work.refuse_other(begun["facts"], facts)
            # The file was checked when the work began, and its hash is among the facts.
            self.rows.count = int(begun["count"])
        else:
            self._check()
        input_columns = self.rows.table.columns
        text = RowText(suffix=out.suffix, columns=[*input_columns, *free_names(COLUMNS, input_columns)])
        if self.work is None:
            with out.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
                sink: RowSink = RowStream(stream)
                self._follow(sink, text, facts)
        else:
            sink = part = RowPart(folder)
            if done := part.tally.get("rows"):
                self.watch(Notice(f"going on after {done:,} of {format_count(self.rows.count, 'row')}"))
            self._follow(part, text, facts)
            part.check()
            replace_file(self.work.out, partial(link_or_copy, part.path))
            self.work.end()
        return GenerationTally(
            **{name: sink.tally.get(name, 0) for name in ("rows", "empty", "cut", "blank", "pieces")}
        )

    def _check(self) -> None:
        """Raise UserError that lists every unusable row, or if the memory does not suffice for the longest one."""
        self.rows.check()
        problems = Problems(heading=f"{self.rows.name} cannot be used")
        for row in self.rows.rows():
            if (prompt := self._prompt(row, problems)) is not None:
                self.writer.writer.require_memory([prompt])
        problems.stop_if_any()

    def _prompt(self, row: Row, problems: Problems) -> Example | None:
        """Return the prompt of a row, None if there is nothing in it to read; an unusable row goes to `problems`."""
        text = row.values[self.rows.columns.text]
        try:
            prompt = self.writer.prompt((text,)) if text.strip() else None
        except UserError as error:
            problems.add(f"{self.rows.name}, line {row.line}: {error}", code=error.code)
            return None
        return None if prompt is None or self.writer.lack(prompt) else prompt

    def _follow(self, sink: RowSink, text: RowText, facts: Mapping[str, Any]) -> None:
        """Generate for the remaining rows, window by window."""
        left = islice(self.rows.rows(), sink.tally.get("rows", 0), None)
        of = format_count(self.rows.count, "row")
        with explaining_stops(self.work, lambda: sink.tally.get("rows", 0), of, self.watch):
            while window := list(islice(left, WINDOW)):
                self.rows.before.require_same()
                if self.work and not (sink.tally or self.work.begun):
                    self.work.begin(facts, self.rows.count)
                written, tally = self._window(window, sink.tally, text)
                sink.append(written, tally)
                self.watch(GenerationProgress(done=tally["rows"], count=self.rows.count))

    def _window(self, window: Sequence[Row], tally: Mapping[str, int], text: RowText) -> tuple[str, Mapping[str, int]]:
        """Return the output text of a window of rows after those of `tally`, and the new tally."""
        problems = self.rows.before.problems()
        prompts = [self._prompt(row, problems) for row in window]
        problems.stop_if_any()
        # The index among rows with text seeds the sampling: a resumed call draws as an uninterrupted one would.
        first = tally.get("rows", 0) - tally.get("empty", 0)
        generations = iter(self.writer.writer.write([prompt for prompt in prompts if prompt is not None], first=first))
        # An empty tally means that nothing is written yet.
        lines = [] if tally else [text.header]
        empty, cut, blank, pieces = (tally.get(name, 0) for name in ("empty", "cut", "blank", "pieces"))
        for row, prompt in zip(window, prompts, strict=True):
            generation = None if prompt is None else next(generations)
            lines.append(
                text.row([*(row.values.get(name, "") for name in self.rows.table.columns), *_cells(generation)])
            )
            empty += generation is None
            cut += generation is not None and generation.truncated > 0
            blank += generation is not None and not generation.pieces
            pieces += generation.pieces if generation else 0
        rows = tally.get("rows", 0) + len(window)
        return "".join(lines), {"rows": rows, "empty": empty, "cut": cut, "blank": blank, "pieces": pieces}
