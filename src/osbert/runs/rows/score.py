"""Scores every row of a file with a language model, in windows of rows; the whole file is checked first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from osbert.analysis.likelihood import LanguageModel
from osbert.analysis.scoring import ScoringOptions, TextLikelihood, perplexity
from osbert.errors import Problems, UserError
from osbert.inference.engine import Engine, load
from osbert.inference.pieces import language_model, refuse_unscorable, score_texts
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
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
"""Rows that are scored together."""
MILLIONTHS = 1e6
"""The sum of log-likelihoods is kept in millionths of a nat, since tallies are integers."""
COLUMNS = ("log_likelihood", "tokens", "words", "unknown", "perplexity", "word_perplexity")


@dataclass(frozen=True, kw_only=True)
class ScoringKeywords:
    """The keywords of `osbert.score`: how texts are scored, how the file is read, how the model is opened."""

    scoring: ScoringOptions = field(default_factory=ScoringOptions)
    file: EmbeddedOptions = field(default_factory=EmbeddedOptions)
    opening: Opening = CAREFUL


class ScoringProgress(RowProgress):
    """Event: `done` of `count` rows are scored and written."""


@dataclass(frozen=True, kw_only=True)
class ScoringTally:
    """Counts of rows and of empty rows without a score, and sums over all others.

    `perplexity` is per piece, `word_perplexity` per word, each of all texts together.
    """

    rows: int
    empty: int
    tokens: int
    words: int
    unknown: int
    log_likelihood: float
    perplexity: float
    word_perplexity: float

    @classmethod
    def of(cls, tally: Mapping[str, int]) -> ScoringTally:
        """Convert the integer sums of a tally."""
        counts = {name: tally.get(name, 0) for name in ("rows", "empty", "tokens", "words", "unknown")}
        total = tally.get("millionths", 0) / MILLIONTHS
        return cls(
            **counts,
            log_likelihood=total,
            perplexity=perplexity(total, counts["tokens"]),
            word_perplexity=perplexity(total, counts["words"]),
        )

    def lines(self) -> Iterator[str]:
        """Yield the counts, and the perplexity of all texts together."""
        empty = f", {self.empty:,} without text" if self.empty else ""
        counts = f"{self.tokens:,} pieces, {self.unknown:,} of them unknown, in {self.words:,} words"
        yield f"{format_count(self.rows, 'row')}{empty}: {counts}"
        if self.tokens:
            yield f"perplexity {self.perplexity:,.2f} per piece, {self.word_perplexity:,.2f} per word"


class FourDecimals(float):
    """A number in a cell with four decimals: further ones depend on the other rows of a batch, by the rounding of fp32.

    >>> str(FourDecimals(1.5)), FourDecimals(0.123456) == 0.1235
    ('1.5000', True)
    """

    def __new__(cls, value: float) -> FourDecimals:
        """Round a number."""
        return super().__new__(cls, round(value, 4))

    def __str__(self) -> str:
        """Format it with four decimals."""
        return f"{float(self):.4f}"


@dataclass(frozen=True, kw_only=True)
class WrittenScore(RowResult):
    """The likelihood of a text; None for a row without text."""

    likelihood: TextLikelihood | None

    def cells(self) -> Mapping[str, Any]:
        """Return the cells of a table's row."""
        return {name: "" if value is None else value for name, value in self._values().items()}

    def fields(self) -> Mapping[str, Any]:
        """Return the fields of a JSON object, with the log-probability of each piece."""
        pieces = self.likelihood and [
            {name: _round_float(value) for name, value in piece.items()}
            for piece in self.likelihood.as_dict()["pieces"]
        ]
        return {**self._values(), "pieces": pieces or None}

    def _values(self) -> dict[str, Any]:
        likelihood = self.likelihood.as_dict() if self.likelihood else {}
        return {name: _round_float(likelihood.get(name)) for name in COLUMNS}


@dataclass(frozen=True, kw_only=True)
class ScoringSource(TextFileSource):
    """The texts to score, the folder of the model, and the output."""

    options: ScoringKeywords
    output: RowOutput

    def open(self) -> ScoringJob:
        """Open the model and the file. Raises UserError, as for a model without a language head."""
        rows = TextRows.open(self.texts, self.folder)
        form = self.output.choose_form(rows.layout(COLUMNS, self.output))
        folder = open_folder(self.model, self.options.opening)
        weights = folder.fingerprint if self.output.kept else ""  # before `load`, which frees the memory of the weights
        engine = load(folder, device=self.options.file.device)
        facts = {
            "weights": weights,
            "tokenizer": engine.tokenizer.fingerprint,
            "input": rows.before.sha256,
            "columns": asdict(rows.columns),
            "form": form_name(type(form)),
            **asdict(self.options.scoring),
        }
        model = language_model(engine)
        return ScoringJob(
            engine=engine,
            model=model,
            rows=rows,
            form=form,
            options=self.options.scoring,
            before=rows.before,
            facts=facts,
        )


@dataclass(frozen=True, kw_only=True)
class ScoringJob(TableJob):
    """The texts of a file, the model that scores them, and the form of the output."""

    progress = ScoringProgress

    engine: Engine
    model: LanguageModel
    rows: TextRows
    form: RowForm
    options: ScoringOptions
    before: DataFile
    facts: Mapping[str, Any]

    def check(self, watch: Watch) -> int:
        """Read the whole file and return the number of rows. Raises UserError with all rows that cannot be scored."""
        if self.rows.columns.pair:
            columns = self.rows.columns
            raise UserError(
                f"{self.rows.name}: `osbert score` reads one text per row, but two columns were found "
                f"({columns.text}, {columns.pair}). Choose one with --text.",
                code="wrong-number-of-texts",
            )
        self.rows.check()  # that the table can be read; of blank lines it says what matters for vectors
        problems = Problems(heading=f"{self.rows.name} cannot be scored")
        lost = LostFields(self.form)
        count = 0
        for count, row in enumerate(self.rows.rows(blanks=True), 1):  # noqa: B007 - the count is returned
            if (text := row.values[self.rows.columns.text]).strip():
                refuse_unscorable(self.engine.packer, text, f"{self.rows.name}, line {row.line}", problems)
            lost.add(row)
        problems.stop_if_any()
        for notice in lost.notices():
            watch(notice)
        return count

    def windows(self, start: int = 0, stop: int | None = None) -> Iterator[list[Row]]:
        """Yield the rows, blank ones too, so many at a time."""
        rows = islice(self.rows.rows(blanks=True), start, stop)
        while window := list(islice(rows, WINDOW)):
            yield window

    def results(self, window: Sequence[Row], tally: Mapping[str, int]) -> tuple[list[ResultRow], dict[str, int]]:
        """Return the rows with their scores; empty texts have none."""
        texts = [row.values[self.rows.columns.text] for row in window]
        scores = score_texts(
            self.model, self.engine.packer, [text for text in texts if text.strip()], self.options.masking
        )
        remaining = iter(scores)
        rows = [
            ResultRow(
                number=tally.get(ROWS, 0) + index,
                row=row,
                result=WrittenScore(likelihood=next(remaining) if text.strip() else None),
            )
            for index, (row, text) in enumerate(zip(window, texts, strict=True))
        ]
        return rows, {
            "empty": len(window) - len(scores),
            "tokens": sum(score.tokens for score in scores),
            "words": sum(score.words for score in scores),
            "unknown": sum(score.unknown for score in scores),
            # fsum rounds once: the sum of a window does not depend on the order of its terms.
            "millionths": round(math.fsum(round(score.log_likelihood, 4) for score in scores) * MILLIONTHS),
        }


def score_file(
    model: Path, texts: TextFile, *, out: Path | TextIO, options: ScoringKeywords, watch: Watch = ignore
) -> ScoringTally:
    """Score every text of a file; write the rows with their scores to `out`, in the form of its ending, or to a stream.

    A stream gets JSON lines. A stopped call keeps its rows in OUT.unfinished, and the same call resumes it. Raises
    UserError if the model has no language head, and, before anything is written, with every text that cannot be scored.
    """
    with local_texts(texts, out) as (local, local_out):
        if isinstance(local_out, Path):
            output = RowOutput(path=local_out)
        else:
            output = RowOutput(stream=local_out, out_form="jsonl")
        output.refuse_inputs((local.path,))
        with open_workspace(output.kept, "a scoring that was begun") as (folder, work):
            source = ScoringSource(model=model, texts=local, options=options, output=output, folder=folder)
            job = source.open()
            report_remarks(job.engine, watch)
            watch(Notice(job.rows.describe()))
            tally = write_rows(job, source, output, folder=folder, work=work, watch=watch)
        return ScoringTally.of(tally)


def _round_float(value: Any) -> Any:
    return FourDecimals(value) if isinstance(value, float) else value
