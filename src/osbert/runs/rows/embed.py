"""Embeds a file, started or resumed: windows of texts go into growing columns, which then become the output."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from osbert import __version__
from osbert.errors import UserError
from osbert.files import link_or_copy, replace_file, require_file
from osbert.inference.embedder import Embedder, remarks
from osbert.inference.engine import Engine, load
from osbert.inference.vectors.files import ENDS, Column, VectorOutput, beside, write_vectors
from osbert.inference.vectors.growing import GrowingFiles
from osbert.inference.vectors.settings import VectorSettings
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.reading.data_file import DataFile
from osbert.reading.table import Row
from osbert.remote.addresses import display_path
from osbert.remote.cache import address_of
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.file_options import TextFile
from osbert.runs.rows.contract import ROWS, RowJob, RowProgress, RowSink, RowStream
from osbert.runs.rows.machine import RowMachine, open_workspace
from osbert.runs.rows.texts import TextFileSource, TextRows, local_texts
from osbert.runs.rows.vector_options import VectorOptions
from osbert.runs.rows.vector_output import LINES, Output, fitting, form_of, is_streamed, open_stream, refuse_half
from osbert.runs.rows.vector_parts import RowBatches, name_column_files
from osbert.terminal import format_count


class EmbeddingProgress(RowProgress):
    """Event: `done` of `count` texts are embedded."""


@dataclass(frozen=True, kw_only=True)
class FileVectors:
    """A finished file of vectors: its path (None for a stream), the shape of all vectors, their settings, and counts.

    `tally`: rows; pieces; empty (texts without characters); cut (truncated texts); unread (their missing pieces);
    windowed (texts that were read in several windows).
    """

    path: Path | None
    shape: tuple[int, ...]
    settings: VectorSettings
    tally: Mapping[str, int]

    def describe(self) -> Iterator[str]:
        """Yield sentences on the file's content, and on texts that were empty, truncated or windowed."""
        tally, settings = self.tally, self.settings
        target = f" -> {display_path(self.path)}" if self.path else ""
        yield f"{format_count(tally['rows'], 'text')}: vectors {self.shape}{target}"
        if empty := tally["empty"]:
            vectors = "text is empty: its vector is that" if empty == 1 else "texts are empty: their vectors are those"
            yield f"{empty:,} {vectors} of [CLS] and [SEP] alone."
        longer = f"longer than {settings.length} tokens"
        if cut := tally["cut"]:
            where = "middle" if settings.long == "head+tail" else "end"
            was = f"text is {longer}; its {where} was" if cut == 1 else f"texts are {longer}; their {where}s were"
            yield f"{cut:,} {was} not read ({format_count(tally['unread'], 'piece')}). --long window reads all."
        if windowed := tally["windowed"]:
            was = f"text is {longer}; it was" if windowed == 1 else f"texts are {longer}; they were"
            yield f"{windowed:,} {was} read in windows."


@dataclass(frozen=True, kw_only=True)
class EmbeddingSource(TextFileSource):
    """The texts to embed, the folder of the encoder, and the form of the output (".npz")."""

    options: VectorOptions
    opening: Opening
    form: str

    def open(self) -> EmbeddingJob:
        """Open the model and the file. Raises UserError if the model cannot read the rows."""
        rows = TextRows.open(self.texts, self.folder)
        options = self.options
        folder = open_folder(self.model, self.opening)
        weights = folder.fingerprint  # before `load`, which frees the memory of the weights
        engine = load(folder, device=options.device)
        rows.fit(engine)
        if options.tokens < 1:
            raise UserError(f"--tokens must be at least 1, not {options.tokens}.", code="invalid-value")
        embedder = engine.embedder(options, tokens=options.tokens)
        other_columns = rows.others if options.keep_columns else {}
        facts = {
            "input": rows.before.sha256,
            "columns": list(rows.columns.texts),
            "form": rows.table.format.describe(),
            "weights": weights,
            "tokenizer": embedder.packer.tokenizer.fingerprint,
            "vectors": embedder.settings.facts(),
            "tokens": embedder.tokens,
            "output": self.form,
            **({"kept": [*other_columns]} if other_columns else {}),
        }
        batches = RowBatches(
            embedder=embedder,
            is_json=self.form == ".jsonl",
            tables=rows.table.format.kind != "lines",
            other_columns=other_columns,
        )
        return EmbeddingJob(
            source=self, rows=rows, engine=engine, embedder=embedder, batches=batches, before=rows.before, facts=facts
        )


@dataclass(frozen=True, kw_only=True)
class EmbeddingJob(RowJob):
    """The rows of a file with the encoder that embeds them."""

    progress = EmbeddingProgress
    unit = "text"
    cursor = ROWS  # each row of the file is a row of vectors

    source: EmbeddingSource
    rows: TextRows
    engine: Engine
    embedder: Embedder
    batches: RowBatches
    before: DataFile
    facts: Mapping[str, Any]

    def check(self, watch: Watch) -> int:
        """Read the whole file and return the number of texts. Raises UserError, as for long texts (--long error)."""
        for line in self.rows.check():
            watch(Notice(line))
        if self.source.options.long == "error":
            self.rows.refuse_long(self.embedder)
        return self.rows.count

    def windows(self, start: int = 0, stop: int | None = None) -> Iterator[list[Row]]:
        """Yield rows, with limits on texts and characters."""
        return self.batches.of(islice(self.rows.rows(), start, stop), self.rows.columns.texts)

    def compute(self, window: Sequence[Row], sink: RowSink) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return the columns of the rows."""
        return self.batches.compute(window, self.rows.columns.texts, sink)


def embed_file(
    model: Path,
    texts: TextFile,
    *,
    out: Output,
    vectors: VectorOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> FileVectors:
    """Embed a file, resuming a stopped run with the same arguments, and write `out` at the end.

    The suffix of `out` determines the form and the name of the file beside it, even if `out` is a link. A stopped run
    keeps its vectors in OUT.unfinished. A stream gets JSON lines window by window, and other forms at the end.

    Raises UserError for invalid arguments, and if the unfinished run had other arguments.
    """
    from osbert.runs.rows.tasks import row_plan

    with local_texts(texts, out) as (local, local_out):
        form = form_of(local_out, vectors or VectorOptions())
        options = fitting(vectors or VectorOptions(), form, local_out)
        # A stream cannot be resumed, so its columns grow in a temporary folder; a file's grow beside it and are kept.
        file = local_out if isinstance(local_out, Path) and not is_streamed(local_out) else None
        rows_file = beside(file) if file and form == ".npy" else None
        for path in filter(None, (file, rows_file)):
            require_file(path, (local.path,))
        if file:
            refuse_half(file)
        # Every output is claimed before the work, so that two runs cannot write the same file.
        with (
            open_workspace(file, "an embedding that was begun") as (folder, work),
            claim(rows_file) if rows_file else nullcontext() as claimed_rows,
        ):
            plan = row_plan(local.options, is_kept=work is not None)
            source = EmbeddingSource(
                model=model, texts=local, options=options, opening=opening, form=form, folder=folder
            )
            job = source.open()
            for line in (job.rows.describe(), *(f"{model}: {remark}" for remark in job.engine.remarks)):
                watch(Notice(line))
            for line in remarks(options, job.engine):
                watch(Notice(line))
            machine = RowMachine(job=job, folder=folder, work=work, watch=watch)
            tokens = job.embedder.settings.pooling == "tokens"
            if work is None:
                with open_stream(local_out) as stream:
                    tally = _stream(machine, job, stream)
            else:
                opened_texts = replace(local, path=job.before.path.absolute())
                grown = machine.run(replace(source, model=model.absolute(), texts=opened_texts), plan)
                _write(grown, job, VectorOutput(form=form, path=work.out, rows=claimed_rows))
                tally = grown.tally
                work.end()
        shape = (tally["pieces" if tokens else "rows"], *job.embedder.shape)
    written = out if isinstance(out, Path) and file else None
    return FileVectors(path=written, shape=shape, settings=job.embedder.settings, tally=tally)


def _stream(machine: RowMachine, job: EmbeddingJob, stream: BinaryIO) -> Mapping[str, int]:
    """Do the work into a stream: JSON lines window by window, other forms when they are complete."""
    form = job.source.form

    def write(lines: bytes) -> None:
        stream.write(lines)
        stream.flush()

    if form == ".jsonl":
        return machine.stream(RowStream(write))
    grown = machine.run(job.source)
    path = machine.folder / f"finished{form}"
    _write(grown, job, VectorOutput(form=form, path=path, rows=beside(path) if form == ".npy" else None))
    with path.open("rb") as finished:
        shutil.copyfileobj(finished, stream, 2**20)
    stream.flush()
    return grown.tally


def _write(growing: GrowingFiles, job: EmbeddingJob, out: VectorOutput) -> None:
    """Write the output file from the columns."""
    if out.form == ".jsonl":
        replace_file(out.path, lambda aside: link_or_copy(growing.path(LINES), aside))
        return
    model, file = address_of(job.source.model), address_of(job.rows.file)
    model = model if model != str(job.source.model) else str(job.source.model.resolve())
    settings = {"osbert": __version__, "model": model, "file": file, **job.facts}
    settings["vectors"] = asdict(job.embedder.settings)
    kinds = {"vectors": "<f4"} | {name: "|u1" for name in growing.sizes if name + ENDS in growing.sizes}
    columns = {}
    names_by_file = name_column_files(settings.get("kept", ()))
    output_names = {file_name + end: name + end for file_name, name in names_by_file.items() for end in ("", ENDS)}
    for name, size in growing.sizes.items():
        dtype, inner = kinds.get(name, "<i8"), job.embedder.shape if name == "vectors" else ()
        # Columns are raw bytes on disk, so their number of rows follows from their size.
        rows = size // (np.dtype(dtype).itemsize * int(np.prod(inner, dtype=np.int64)))
        columns[output_names.get(name, name)] = Column(path=growing.path(name), dtype=dtype, shape=(rows, *inner))
    write_vectors(out, columns, {**settings, "rows": growing.tally["rows"]})
