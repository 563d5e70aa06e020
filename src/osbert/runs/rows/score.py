"""Scores every row of a file with a language model, in windows of rows; the whole file is checked first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from osbert.analysis.likelihood import LanguageModel
from osbert.analysis.scoring import ScoringOptions, TextLikelihood, perplexity
from osbert.errors import Problems
from osbert.inference.engine import Engine
from osbert.inference.pieces import language_model, refuse_unscorable, score_texts
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.table import Row
from osbert.runs.contract import Watch, ignore
from osbert.runs.file_options import TextFile
from osbert.runs.rows.forms.contract import ValueResult
from osbert.runs.rows.output import RowOutput, form_name
from osbert.runs.rows.table import Results, ResultSource, write_table
from osbert.runs.rows.texts import TextJob, TextRows
from osbert.terminal import format_count

MILLIONTHS = 1e6
"""The sum of log-likelihoods is kept in millionths of a nat, since tallies are integers."""
COLUMNS = ("log_likelihood", "tokens", "words", "unknown", "perplexity", "word_perplexity")


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
        return super().__new__(cls, round(value, 4))

    def __str__(self) -> str:
        return f"{float(self):.4f}"


def score_result(likelihood: TextLikelihood | None) -> ValueResult:
    """Return the likelihood of a text as a row's result, in JSON with each piece; empty for a row without text."""
    if likelihood is None:
        return ValueResult(values=dict.fromkeys(COLUMNS), nested={"pieces": None})
    score = likelihood.as_dict()
    pieces = [{name: _round_float(value) for name, value in piece.items()} for piece in score["pieces"]]
    values = {name: _round_float(score.get(name)) for name in COLUMNS}
    return ValueResult(values=values, nested={"pieces": pieces or None})


@dataclass(frozen=True, kw_only=True)
class ScoringSource(ResultSource["ScoringJob"]):
    """A call that scores the texts of a file."""

    work_name = "a scoring that was begun"

    scoring: ScoringOptions
    device: str

    def open(self) -> ScoringJob:
        rows = TextRows.open(self.file, self.reading, name=self.name)
        form = self.output.choose_form(rows.layout(COLUMNS))
        engine, weights = self.load_model(self.device, resumable=bool(self.output.kept))
        facts = {
            "weights": weights,
            "tokenizer": engine.tokenizer.fingerprint,
            "input": rows.before.sha256,
            "columns": asdict(rows.columns),
            "form": form_name(type(form)),
            **asdict(self.scoring),
        }
        return ScoringJob(
            engine=engine,
            model=language_model(engine),
            rows=rows,
            form=form,
            options=self.scoring,
            before=rows.before,
            facts=facts,
        )


@dataclass(frozen=True, kw_only=True)
class ScoringJob(TextJob):
    """The texts of a file, the model that scores them, and the form of the output."""

    verb = "score"
    work = "scoring"
    with_blanks = True

    engine: Engine
    model: LanguageModel
    options: ScoringOptions

    def check_row(self, row: Row, problems: Problems) -> Row:
        """Add a text that is too long, or has other pieces that cannot be scored, to `problems`."""
        if (text := self.text(row)).strip():
            refuse_unscorable(self.engine.packer, text, f"{self.rows.name}, line {row.line}", problems)
        return row

    def results(self, window: Sequence[Row], tally: Mapping[str, int]) -> Results:
        texts = [text for row in window if (text := self.text(row)).strip()]
        scores = score_texts(self.model, self.engine.packer, texts, self.options.masking)
        remaining = iter(scores)
        results = [score_result(next(remaining) if self.text(row).strip() else None) for row in window]
        return list(zip(window, results, strict=True)), {
            "empty": len(window) - len(scores),
            "tokens": sum(score.tokens for score in scores),
            "words": sum(score.words for score in scores),
            "unknown": sum(score.unknown for score in scores),
            # fsum rounds once: the sum of a window does not depend on the order of its terms.
            "millionths": round(math.fsum(round(score.log_likelihood, 4) for score in scores) * MILLIONTHS),
        }


def score_file(
    model: Path,
    texts: TextFile,
    *,
    out: Path | TextIO,
    scoring: ScoringOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> ScoringTally:
    """Score every text of a file; write the rows with their scores to `out`, in the form of its ending, or to a stream.

    A stream gets JSON lines. A stopped call keeps its rows in OUT.unfinished, and the same call resumes it. Raises
    UserError if the model has no language head, and, before anything is written, with every text that cannot be scored.
    """
    output = RowOutput(path=out) if isinstance(out, Path) else RowOutput(stream=out, out_form="jsonl")
    source = ScoringSource(
        model=model,
        file=texts.path,
        reading=texts.options,
        opening=opening,
        form=texts.input_form,
        output=output,
        scoring=scoring or ScoringOptions(),
        device=texts.device,
    )
    return ScoringTally.of(write_table(source, watch)[1])


def _round_float(value: Any) -> Any:
    return FourDecimals(value) if isinstance(value, float) else value
