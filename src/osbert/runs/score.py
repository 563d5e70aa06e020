"""Scores every row of a file with a language model, in windows of rows; the whole file is checked first."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from osbert.analysis.likelihood import LanguageModel
from osbert.analysis.scoring import ScoringOptions, TextLikelihood, perplexity
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.files import disk_needed, replace_file
from osbert.inference.engine import load
from osbert.inference.score import language_model, refuse_unscorable, score_texts
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.reading.table import Row
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.embed.addresses import local_texts
from osbert.runs.embed.rows import TextRows
from osbert.runs.embed.settings import TextFile
from osbert.runs.file_options import EmbeddedOptions
from osbert.runs.predict.forms.contract import as_json, free_names, nonfinite_notice
from osbert.runs.predict.part import RowPart, RowSink, RowStream
from osbert.runs.row_file import require_row_file
from osbert.runs.standard_input import rename_in_errors
from osbert.runs.unfinished import UnfinishedOutput, explaining_stops, link_or_copy, open_unfinished_output
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


@dataclass(frozen=True, kw_only=True)
class ScoringProgress:
    """Event: `done` rows are scored and written."""

    done: int
    count: int


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


def score_file(
    model: Path, texts: TextFile, *, out: Path | TextIO, options: ScoringKeywords, watch: Watch = ignore
) -> ScoringTally:
    """Score every text of a file; write the rows with their scores to `out`: .csv, .tsv or .jsonl, or a stream.

    A stream gets JSON lines. A stopped call keeps its rows in OUT.unfinished, and the same call resumes it. Raises
    UserError if the model has no language head, and, before anything is written, with every text that cannot be scored.
    """
    with local_texts(texts, out) as (local, local_out):
        return _score(model, local, out=local_out, options=options, watch=watch)


def _score(model: Path, texts: TextFile, *, out: Path | TextIO, options: ScoringKeywords, watch: Watch) -> ScoringTally:
    """Score the texts of a local file into a local output, or a stream."""
    with ExitStack() as held:
        if isinstance(out, Path):
            require_row_file(out, (texts.path,))
            held.enter_context(disk_needed(out, goes_on="after the last window"))
            output_path = held.enter_context(claim(out))
            work = held.enter_context(open_unfinished_output(output_path, "a scoring that was begun"))
            folder, suffix = work.folder, out.suffix
        else:
            work, suffix = None, ".jsonl"
            folder = Path(held.enter_context(TemporaryDirectory(prefix="osbert-")))
        held.enter_context(rename_in_errors(folder))
        source = open_folder(model, options.opening)
        weights = source.fingerprint  # before `load`, which frees the memory of the weights
        engine = load(source, device=options.file.device)
        report_remarks(engine, watch)
        rows = TextRows.open(texts, folder)
        scoring = _FileScoring(
            model=language_model(engine), packer=engine.packer, rows=rows, suffix=suffix, options=options.scoring
        )
        facts = {"weights": weights, "tokenizer": engine.tokenizer.fingerprint, **scoring.facts}
        watch(Notice(rows.describe()))
        count = scoring.check(watch)
        sink = RowPart(folder) if work else RowStream(out)  # type: ignore[arg-type] # a stream where nothing is kept
        scoring.follow(sink, _Begun(work=work, facts=json.loads(json.dumps(facts)), count=count), watch)
        if work and isinstance(sink, RowPart):
            sink.check()
            replace_file(work.out, lambda aside: link_or_copy(sink.path, aside))
            work.end()
        return ScoringTally.of(sink.tally)


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """The saved state of a call: its facts and number of rows, in `work`; None if the output is a stream."""

    work: UnfinishedOutput | None
    facts: Mapping[str, Any]
    count: int


@dataclass(frozen=True, kw_only=True)
class _FileScoring:
    """The texts of a file, the scorer, and the output format."""

    model: LanguageModel
    packer: Packer
    rows: TextRows
    suffix: str
    options: ScoringOptions

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that must be equal for a call to resume earlier work."""
        columns = asdict(self.rows.columns)
        return {"input": self.rows.before.sha256, "columns": columns, "form": self.suffix, **asdict(self.options)}

    def check(self, watch: Watch) -> int:
        """Read the whole file and return the number of rows. Raises UserError with all rows that cannot be scored."""
        if self.rows.columns.pair:
            raise UserError(f"{self.rows.name}: one text a row is scored, not pairs.", code="wrong-number-of-texts")
        self.rows.check()  # that the table can be read; of blank lines it says what matters for vectors
        problems = Problems(heading=f"{self.rows.name} cannot be scored")
        nonfinite: dict[str, int] = {}
        count = 0
        for count, row in enumerate(self.rows.rows(blanks=True), 1):  # noqa: B007 - the count is returned
            text = row.values[self.rows.columns.text]
            if text.strip():
                refuse_unscorable(self.packer, text, f"{self.rows.name}, line {row.line}", problems)
            for name in sorted(row.nonfinite) if self.suffix == ".jsonl" else ():
                nonfinite.setdefault(name, row.line)
        problems.stop_if_any()
        if nonfinite:
            watch(nonfinite_notice(nonfinite))
        return count

    def follow(self, sink: RowSink, begun: _Begun, watch: Watch) -> None:
        """Score and write the remaining rows, window by window."""
        work, count = begun.work, begun.count
        if work and (before := work.begun):
            work.refuse_other(before["facts"], begun.facts)
            watch(Notice(f"going on after {sink.tally.get('rows', 0):,} of {format_count(count, 'row')}"))
        with explaining_stops(work, lambda: sink.tally.get("rows", 0), format_count(count, "row"), watch):
            # Skip the rows that an earlier call has written.
            rows = islice(self.rows.rows(blanks=True), sink.tally.get("rows", 0), None)
            while window := list(islice(rows, WINDOW)):
                self.rows.before.require_same()
                text, tally = self._score_window(window, sink.tally)
                if work and not sink.tally:
                    work.begin(begun.facts, count)
                sink.append(text, tally)
                watch(ScoringProgress(done=tally["rows"], count=count))
            self.rows.before.require_same(whole=True)

    def _score_window(self, window: Sequence[Row], tally: Mapping[str, int]) -> tuple[str, dict[str, int]]:
        """Return the text of some rows, with the header before the first ones, and the tally up to their end."""
        texts = [row.values[self.rows.columns.text] for row in window]
        # Empty texts are not scored; `found` puts None in their positions.
        scores = iter(
            score_texts(self.model, self.packer, [text for text in texts if text.strip()], self.options.masking)
        )
        row_scores = [next(scores) if text.strip() else None for text in texts]
        lines = [] if tally or self.suffix == ".jsonl" else [self._line([*self._columns, *self._names])]
        lines += [self._row(row, score) for row, score in zip(window, row_scores, strict=True)]
        scored = [score for score in row_scores if score]
        counts = {
            "rows": len(window),
            "empty": len(window) - len(scored),
            "tokens": sum(score.tokens for score in scored),
            "words": sum(score.words for score in scored),
            "unknown": sum(score.unknown for score in scored),
            # fsum rounds once: the sum of a window does not depend on the order of its terms.
            "millionths": round(math.fsum(_round_float(score.log_likelihood) for score in scored) * MILLIONTHS),
        }
        return "".join(lines), {name: tally.get(name, 0) + value for name, value in counts.items()}

    @property
    def _columns(self) -> tuple[str, ...]:
        return self.rows.table.columns

    @cached_property
    def _names(self) -> list[str]:
        return free_names(COLUMNS, self._columns)

    def _row(self, row: Row, score: TextLikelihood | None) -> str:
        score_fields: Mapping[str, Any] = {} if score is None else score.as_dict()
        cells = {
            name: _round_float(score_fields.get(column)) for name, column in zip(self._names, COLUMNS, strict=True)
        }
        if self.suffix == ".jsonl":
            pieces = score_fields and [
                {name: _round_float(value) for name, value in piece.items()} for piece in score_fields["pieces"]
            ]
            return as_json({**(row.source or row.values), **cells, "pieces": pieces or None}) + "\n"
        cell_texts = [
            "" if cell is None else f"{cell:.4f}" if isinstance(cell, float) else cell for cell in cells.values()
        ]
        return self._line([*(row.values.get(name, "") for name in self._columns), *cell_texts])

    def _line(self, cells: Sequence[object]) -> str:
        line = io.StringIO()
        csv.writer(line, delimiter="\t" if self.suffix == ".tsv" else ",", lineterminator="\n").writerow(cells)
        return line.getvalue()


def _round_float(value: Any) -> Any:
    """Return a number with four decimals: further ones depend on the other rows of a batch, by the rounding of fp32."""
    return round(value, 4) if isinstance(value, float) else value
