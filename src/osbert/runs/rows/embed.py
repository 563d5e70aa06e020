"""Embeds a file, started or resumed: windows of texts go into growing columns, which then become the output."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from osbert import __version__
from osbert.errors import Problems, UserError
from osbert.files import link_or_copy, replace_file, require_file
from osbert.inference.embedder import Embedder, remarks
from osbert.inference.engine import Engine
from osbert.inference.vectors.files import BITS, ENDS, ROW_CHECKSUMS, Column, VectorOutput, beside, write_vectors
from osbert.inference.vectors.quantizing import add_bits, measure_small, quantize_column
from osbert.inference.vectors.settings import VectorSettings
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.reading.data_file import sampled_sha256
from osbert.reading.table import Row
from osbert.remote import address_of, display_path
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.file_options import TextFile
from osbert.runs.rows.contract import ROWS, Appended, RowJob, RowSink, RowSource, RowStream
from osbert.runs.rows.machine import GrowingFiles, RowMachine, open_machine
from osbert.runs.rows.standard_input import NAME, STREAM
from osbert.runs.rows.texts import TAKEN, TextRows
from osbert.runs.rows.vector_output import (
    LINES,
    Output,
    VectorOptions,
    fitting,
    form_of,
    is_streamed,
    open_stream,
    refuse_half,
    require_form,
    with_own_pooling,
)
from osbert.runs.rows.vector_parts import (
    ARRAYS,
    COUNTS,
    NUMBER_TYPES,
    RowBatches,
    finish_sparse,
    name_column_files,
)
from osbert.runs.rows.vector_reuse import EarlierVectors
from osbert.terminal import format_count


@dataclass(frozen=True, kw_only=True)
class FileVectors:
    """A finished file of vectors: its path (None for a stream), the shape of all vectors, their settings, and counts.

    `tally`: rows; pieces; empty (texts without characters); cut (truncated texts); unread (their missing pieces);
    windowed (texts that were read in several windows); unknown, if above 0 (texts that the vocabulary mostly lacks).
    """

    path: Path | None
    shape: tuple[int, ...]
    settings: VectorSettings
    tally: Mapping[str, int]
    recall: float | None = None
    """Of int8 or binary vectors: the fraction of the 10 nearest ones of float32 that a search in them finds, for up to
    200 of the texts."""
    dtype: str = "float32"
    """The type of the numbers: float32, int8 or binary."""

    def describe(self) -> Iterator[str]:
        """Yield sentences on the file's content, and on texts that were empty, truncated or windowed."""
        tally, settings = self.tally, self.settings
        target = f" -> {display_path(self.path)}" if self.path else ""
        yield f"{format_count(tally['rows'], 'text')}: vectors {self.shape}{target}"
        if "reused" in tally:
            new = tally["rows"] - tally["reused"]
            yield f"{format_count(tally['reused'], 'text')} had a vector already; embedded: {new:,}."
        if self.recall is not None:
            bits = ", and bits choose the candidates of a search" if self.dtype == "binary" else ""
            recall = f"recall@10 against float32, of some of the texts as queries: {self.recall:.4f}"
            yield f"Numbers are int8{bits}. {recall}"
        if "weights" in tally:
            yield f"{tally['weights'] / max(tally['rows'], 1):.1f} of {self.shape[1]:,} weights of a text are not 0."
        if "vectors" in tally:
            yield f"{tally['vectors'] / max(tally['rows'], 1):.1f} vectors a text, of {self.shape[1]:,} numbers."
        if empty := tally["empty"]:
            vectors = "text is empty: its vector is that" if empty == 1 else "texts are empty: their vectors are those"
            yield f"{empty:,} {vectors} of {'the prompt' if settings.prompt else '[CLS] and [SEP]'} alone."
        if unknown := tally.get("unknown"):
            yield f"{format_count(unknown, 'text')} with mostly unknown pieces: the vocabulary lacks their script."
        longer = f"longer than {settings.length} tokens"
        if cut := tally["cut"]:
            where = "middle" if settings.long == "head+tail" else "end"
            was = f"text is {longer}; its {where} was" if cut == 1 else f"texts are {longer}; their {where}s were"
            yield f"{cut:,} {was} not read ({format_count(tally['unread'], 'piece')}). --long window reads all."
        if windowed := tally["windowed"]:
            was = f"text is {longer}; it was" if windowed == 1 else f"texts are {longer}; they were"
            yield f"{windowed:,} {was} read in windows."


@dataclass(frozen=True, kw_only=True)
class EmbeddingSource(RowSource["EmbeddingJob"]):
    """A call that embeds the texts of a file; `output`: the form of the output (".npz")."""

    work_name = "an embedding that was begun"

    options: VectorOptions
    output: str
    rows_file: Path | None = None
    """The file of texts and lines beside an .npy."""
    earlier: Path | None = None
    """The output of an earlier call, whose vectors are used again."""

    def with_paths(self, file: Path, out: Path | None) -> Self:
        if out is None:
            return super().with_paths(file, out)
        rows_file = beside(out) if self.output == ".npy" else None
        for path in filter(None, (out, rows_file)):
            require_file(path, (file,))
        refuse_half(out)
        earlier = out if self.options.update and out.is_file() else None
        return replace(super().with_paths(file, out), rows_file=rows_file, earlier=earlier)

    def with_absolute_paths(self) -> Self:
        return replace(super().with_absolute_paths(), earlier=self.earlier and self.earlier.absolute())

    def open(self) -> EmbeddingJob:
        rows = TextRows.open(self.file, self.reading, name=self.name)
        options = self.options
        engine, weights = self.load_model(options.device)
        rows.fit(engine)
        if options.tokens < 1:
            raise UserError(f"--tokens must be at least 1, not {options.tokens}.", code="invalid-value")
        embedder = engine.embedder(options, tokens=options.tokens)
        if options.dtype == "binary" and len(embedder.shape) != 1:
            raise UserError(
                f"--dtype binary is for one vector a text: --layers {options.layers} gives several.",
                code="options-exclude-each-other",
            )
        kind = embedder.settings.kind
        if kind in ("sparse", "multi"):
            require_form(self.output, options, kind)
        columns = (*ARRAYS, COUNTS) if kind == "sparse" else (BITS, ROW_CHECKSUMS)
        taken = (*TAKEN, *columns)
        other_columns = rows.other_columns(taken) if options.keep_columns else {}
        facts = {
            "input": rows.before.sha256,
            "columns": list(rows.columns.texts),
            "form": rows.table.format.describe(),
            "weights": weights,
            "tokenizer": embedder.packer.tokenizer.fingerprint,
            "vectors": embedder.settings.facts(),
            "tokens": embedder.tokens,
            "output": self.output,
            **({"kept": [*other_columns]} if other_columns else {}),
            **({"update": sampled_sha256(self.earlier)} if self.earlier else {}),
        }
        batches = RowBatches(
            embedder=embedder,
            is_json=self.output == ".jsonl",
            tables=rows.table.format.kind != "lines",
            other_columns=other_columns,
            earlier=EarlierVectors(self.earlier, facts, embedder, options.dtype) if self.earlier else None,
        )
        return EmbeddingJob(
            source=self, rows=rows, engine=engine, embedder=embedder, batches=batches, before=rows.before, facts=facts
        )


@dataclass(frozen=True, kw_only=True)
class EmbeddingJob(RowJob):
    """The rows of a file with the encoder that embeds them."""

    work = "embedding"
    unit = "text"
    cursor = ROWS  # each row of the file is a row of vectors

    source: EmbeddingSource
    rows: TextRows
    engine: Engine
    embedder: Embedder
    batches: RowBatches

    @property
    def description(self) -> str:
        return self.rows.describe()

    def describe(self) -> Iterator[str]:
        yield self.description
        if {"_id", "title"} <= {*self.rows.table.columns} - {*self.rows.columns.texts}:
            yield (
                "The titles are not read, which osbert evaluate retrieval and osbert mine put before the texts. To "
                "search what they read, put both into one column."
            )
        if self.source.options.update and self.source.earlier is None:
            yield "There is no earlier output that --update could use: all texts are embedded."
        yield from (f"{self.source.model}: {remark}" for remark in self.engine.remarks)
        yield from remarks(self.source.options, self.engine)

    def check(self, watch: Watch) -> int:
        """Read the whole file and return the number of texts. Raises UserError, as for long texts (--long error)."""
        for line in self.rows.check():
            watch(Notice(line))
        if self.source.options.long == "error":
            self.rows.refuse_long(self.embedder)
        return self.rows.count

    @property
    def window_size(self) -> tuple[int, int]:
        return self.batches.window_size

    def sizes(self, row: Row) -> tuple[int, int]:
        return 1, sum(len(row.values[name]) for name in self.rows.columns.texts)

    def read(self, problems: Problems) -> Iterator[Row]:
        return self.rows.rows()

    def compute(self, window: Sequence[Row], sink: RowSink) -> Appended:
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
    form = form_of(out, vectors or VectorOptions())
    options = with_own_pooling(vectors or VectorOptions(), form, model)
    # A stream cannot be resumed, so its columns grow in a temporary folder; a file's grow beside it and are kept.
    file = out if isinstance(out, Path) and not is_streamed(out) else None
    source = EmbeddingSource(
        model=model,
        file=texts.path,
        reading=texts.options,
        opening=opening,
        form=texts.input_form,
        options=fitting(options, form, out),
        output=form,
    )
    recall = None
    with open_machine(source, file, watch) as machine:
        job = machine.job
        if machine.work is None:
            with open_stream(out) as stream:
                tally, recall = _stream(machine, stream)
        else:
            rows_file = job.source.rows_file
            # Both files are claimed before the work, so that two runs cannot write the same file.
            with claim(rows_file) if rows_file else nullcontext() as claimed_rows:
                grown = machine.run()
                recall = _write(grown, job, VectorOutput(form=form, path=machine.work.out, rows=claimed_rows))
                tally = grown.tally
                machine.work.end()
    settings, dtype = job.embedder.settings, job.source.options.dtype
    counted = {"tokens": "pieces", "multi": "vectors"}.get(settings.kind, "rows")
    shape = (tally[counted], *job.embedder.shape)
    return FileVectors(path=file, shape=shape, settings=settings, tally=tally, recall=recall, dtype=dtype)


def _stream(machine: RowMachine[EmbeddingJob], stream: BinaryIO) -> tuple[Mapping[str, int], float | None]:
    """Do the work into a stream: JSON lines window by window, other forms when they are complete.

    Return the tally, and what `_write` returns.
    """
    form = machine.job.source.output

    def write(lines: bytes) -> None:
        stream.write(lines)
        stream.flush()

    if form == ".jsonl":
        return machine.stream(RowStream(write)), None
    grown = machine.run()
    path = machine.folder / f"finished{form}"
    out = VectorOutput(form=form, path=path, rows=beside(path) if form == ".npy" else None)
    recall = _write(grown, machine.job, out)
    with path.open("rb") as finished:
        shutil.copyfileobj(finished, stream, 2**20)
    stream.flush()
    return grown.tally, recall


def _write(growing: GrowingFiles, job: EmbeddingJob, out: VectorOutput) -> float | None:
    """Write the output file from the columns; return the recall of vectors that are not float32."""
    if out.form == ".jsonl":
        replace_file(out.path, lambda aside: link_or_copy(growing.path(LINES), aside))
        return None
    model = address_of(job.source.model)
    file = str(STREAM) if job.rows.name == NAME else address_of(job.source.file)
    model = model if model != str(job.source.model) else str(job.source.model.resolve())
    settings = {"osbert": __version__, "model": model, "file": file, **job.facts}
    settings["vectors"] = asdict(job.embedder.settings)
    settings.pop("update", None)  # so that the file is that of an embedding of all texts
    kinds = {"vectors": "<f4", **NUMBER_TYPES} | {name: "|u1" for name in growing.sizes if name + ENDS in growing.sizes}
    columns = {}
    names_by_file = name_column_files(settings.get("kept", ()))
    output_names = {file_name + end: name + end for file_name, name in names_by_file.items() for end in ("", ENDS)}
    for name, size in growing.sizes.items():
        dtype, inner = kinds.get(name, "<i8"), job.embedder.shape if name == "vectors" else ()
        # Columns are raw bytes on disk, so their number of rows follows from their size.
        rows = size // (np.dtype(dtype).itemsize * int(np.prod(inner, dtype=np.int64)))
        columns[output_names.get(name, name)] = Column(path=growing.path(name), dtype=dtype, shape=(rows, *inner))
    dtype, recall = job.source.options.dtype, None
    with tempfile.TemporaryDirectory(dir=growing.folder) as folder:
        if job.embedder.settings.kind == "sparse":
            columns = finish_sparse(columns, job.embedder.shape[-1], Path(folder))
        elif dtype != "float32":
            exact = columns["vectors"]
            columns["vectors"] = quantize_column(exact, Path(folder) / "vectors.bin")
            columns |= add_bits(columns["vectors"], Path(folder)) if dtype == "binary" else {}
            if not (job.batches.earlier and job.batches.earlier.reduced):  # else some exact vectors are gone
                recall = measure_small(exact, columns["vectors"], columns.get(BITS))
            settings |= {"dtype": dtype, "recall@10": recall}
        write_vectors(out, columns, {**settings, "rows": growing.tally["rows"]})
    return recall
