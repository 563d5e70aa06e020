"""A file of texts and an encoder, opened together: what one process does, and each task does again for its range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.inference.embedder import Embedder
from osbert.inference.engine import Engine, load
from osbert.interop.folder import open_folder
from osbert.interop.opening import Opening
from osbert.reading.table import Row
from osbert.runs.embed.settings import TextFile, VectorOptions
from osbert.runs.embed.windows import GrowingColumns, RowBatches
from osbert.runs.rows.texts import TextRows


@dataclass(frozen=True, kw_only=True)
class EmbeddingSource:
    """The texts to embed, the folder of the encoder, and the form of the output (".npz")."""

    model: Path
    texts: TextFile
    options: VectorOptions
    opening: Opening
    form: str


@dataclass(frozen=True, kw_only=True)
class EmbeddedRows:
    """The rows of a file with the encoder that embeds them.

    `facts`: those that must be equal to resume a run. They contain no folders: data may move.
    """

    rows: TextRows
    engine: Engine
    embedder: Embedder
    batches: RowBatches
    facts: Mapping[str, Any]

    @classmethod
    def open(cls, source: EmbeddingSource, rows: TextRows) -> EmbeddedRows:
        """Open the model for the rows. Raises UserError if it cannot read them."""
        options = source.options
        folder = open_folder(source.model, source.opening)
        weights = folder.fingerprint  # before `load`, which frees the memory of the weights
        engine = load(folder, device=options.device)
        rows.fit(engine)
        embedder = _embedder(engine, options)
        other_columns = rows.others if options.keep_columns else {}
        facts = {
            **_facts(embedder, rows, weights),
            "output": source.form,
            **({"kept": [*other_columns]} if other_columns else {}),
        }
        tables = rows.table.format.kind != "lines"
        batches = RowBatches(
            embedder=embedder, is_json=source.form == ".jsonl", tables=tables, other_columns=other_columns
        )
        return cls(rows=rows, engine=engine, embedder=embedder, batches=batches, facts=facts)

    def windows(self, start: int = 0, stop: int | None = None) -> Iterator[list[Row]]:
        """Yield the rows from number `start` to `stop`, in windows."""
        return self.batches.of(islice(self.rows.rows(), start, stop), self.rows.columns.texts)

    def grow(self, growing: GrowingColumns, stop: int | None = None) -> Iterator[int]:
        """Embed the rows behind those of `growing`, window by window; yield the number of rows reached.

        Raises UserError if the file has changed.
        """
        for window in self.windows(growing.tally.get("rows", 0), stop):
            self.rows.before.require_same()  # so that what is kept is always of one content
            self.batches.grow(growing, window, self.rows.columns.texts)
            yield growing.tally["rows"]


def _embedder(engine: Engine, options: VectorOptions) -> Embedder:
    if options.tokens < 1:
        raise UserError(f"--tokens must be at least 1, not {options.tokens}.", code="invalid-value")
    return engine.embedder(options, tokens=options.tokens)


def _facts(embedder: Embedder, rows: TextRows, weights: str) -> dict[str, Any]:
    """Return the facts that must be equal to resume a run. They contain no folders: data may move."""
    return {
        "input": rows.before.sha256,
        "columns": list(rows.columns.texts),
        "form": rows.table.format.describe(),
        "weights": weights,
        "tokenizer": embedder.packer.tokenizer.fingerprint,
        "vectors": asdict(embedder.settings),
        "tokens": embedder.tokens,
    }
