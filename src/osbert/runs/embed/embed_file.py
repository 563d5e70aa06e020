"""Embeds a file, started or resumed: windows of texts go into growing columns, which then become the output."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np

from osbert import __version__
from osbert.files import disk_needed, replace_file, require_file
from osbert.inference.embedder import Embedder, remarks
from osbert.inference.vectors.files import ENDS, Column, VectorOutput, beside, write_vectors
from osbert.inference.vectors.growing import GrowingFiles
from osbert.inference.vectors.settings import VectorSettings
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.remote.addresses import display_path
from osbert.remote.cache import address_of
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.embed.addresses import local_texts
from osbert.runs.embed.opened_texts import EmbeddedRows, EmbeddingSource
from osbert.runs.embed.output import (
    LINES,
    LineStream,
    Output,
    fitting,
    form_of,
    is_streamed,
    open_stream,
    refuse_half,
)
from osbert.runs.embed.rows import TextRows
from osbert.runs.embed.settings import TextFile, VectorOptions
from osbert.runs.embed.tasks import EmbeddingWork, join_columns
from osbert.runs.embed.windows import GrowingColumns, name_column_files
from osbert.runs.file_options import TextOptions
from osbert.runs.row_tasks import RowTasks, row_plan
from osbert.runs.standard_input import rename_in_errors
from osbert.runs.unfinished import UnfinishedOutput, explaining_stops, link_or_copy, open_unfinished_output
from osbert.terminal import format_count


@dataclass(frozen=True, kw_only=True)
class EmbeddingProgress:
    """Event: `done` of `count` texts are embedded."""

    done: int
    count: int


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
    with local_texts(texts, out) as (local, local_out):
        done = _embed(model, local, out=local_out, vectors=vectors, opening=opening, watch=watch)
    return replace(done, path=out) if done.path and isinstance(out, Path) else done


def _embed(
    model: Path,
    texts: TextFile,
    *,
    out: Output,
    vectors: VectorOptions | None,
    opening: Opening,
    watch: Watch,
) -> FileVectors:
    """Embed a local file into a local output."""
    form = form_of(out, vectors or VectorOptions())
    vectors = fitting(vectors or VectorOptions(), form, out)
    begin = partial(_Embedding, model=model, options=vectors, opening=opening, watch=watch, reading=texts.options)
    if not isinstance(out, Path) or is_streamed(out):
        # A stream cannot be resumed, so its columns grow in a temporary folder; a file's grow beside it and are kept.
        with TemporaryDirectory(prefix="osbert-") as scratch, rename_in_errors(folder := Path(scratch)):
            path = folder / f"finished{form}"
            target = VectorOutput(form=form, path=path, rows=beside(path) if form == ".npy" else None)
            with open_stream(out) as stream:
                return begin(out=target, folder=folder, stream=stream).complete(TextRows.open(texts, folder))
    written = [out, beside(out)] if form == ".npy" else [out]
    for path in written:
        require_file(path, (texts.path,))
    refuse_half(out)
    with disk_needed(out, goes_on="after the last window"), ExitStack() as held:
        # Every output is claimed before the work, so that two runs cannot write the same file.
        paths = [held.enter_context(claim(path)) for path in written]
        target = VectorOutput(form=form, path=paths[0], rows=paths[1] if len(paths) > 1 else None)
        work = held.enter_context(open_unfinished_output(target.path, "an embedding that was begun"))
        held.enter_context(rename_in_errors(work.folder))
        return begin(out=target, folder=work.folder, work=work).complete(TextRows.open(texts, work.folder))


@dataclass(frozen=True, kw_only=True)
class _Embedding:
    """One embedding of a file, in a folder beside the output.

    `folder`: for the growing columns. `work`: the unfinished output; None if the output is `stream`.
    """

    model: Path
    out: VectorOutput
    options: VectorOptions
    folder: Path
    opening: Opening
    watch: Watch
    reading: TextOptions
    work: UnfinishedOutput | None = None
    stream: BinaryIO | None = None

    def complete(self, rows: TextRows) -> FileVectors:
        """Embed the remaining texts, and write the file of vectors."""
        plan = row_plan(self.reading, is_kept=self.work is not None)
        before = self.work.begun if self.work else {}
        # A resumed run was checked when it began.
        self._say(rows.describe(), *(() if before else rows.check()))
        source = self.source(rows)
        opened = EmbeddedRows.open(source, rows)
        embedder, facts = opened.embedder, opened.facts
        self._say(*(f"{self.model}: {remark}" for remark in opened.engine.remarks))
        self._say(*remarks(self.options, opened.engine))
        if before and self.work:
            self.work.refuse_other({"output": self.out.path.suffix, **before["facts"]}, facts)
        else:
            if self.options.long == "error":
                rows.refuse_long(embedder)
            if self.work:
                self.work.begin(facts, rows.count)
        # Counting the rows reads the whole file: a resumed run knows the number.
        count = before.get("count", rows.count)
        if plan is None:
            growing = self._grow(opened, count)
        else:
            growing = self._grow_in_tasks(RowTasks(plan=plan, folder=self.folder), opened, source)
        model, file = address_of(self.model), address_of(rows.file)
        model = model if model != str(self.model) else str(self.model.resolve())
        settings = {"osbert": __version__, "model": model, "file": file, **facts}
        shape = self._finish(growing, embedder, settings)
        path = None if self.stream else self.out.path
        return FileVectors(path=path, shape=shape, settings=embedder.settings, tally=growing.tally)

    def source(self, rows: TextRows) -> EmbeddingSource:
        """Return what is embedded, by which model, into which form."""
        return EmbeddingSource(
            model=self.model,
            texts=TextFile(rows.before.path, self.reading),
            options=self.options,
            opening=self.opening,
            form=self.out.form,
        )

    def _grow(self, opened: EmbeddedRows, count: int) -> GrowingColumns:
        """Embed the remaining texts in this process."""
        growing = LineStream(self.stream) if self.stream and self.out.form == ".jsonl" else GrowingFiles(self.folder)
        texts = format_count(count, "text")
        if growing.tally:
            self._say(f"going on after {growing.tally['rows']:,} of {texts}")
        with explaining_stops(self.work, lambda: growing.tally.get("rows", 0), texts, self.watch):
            self.watch(EmbeddingProgress(done=growing.tally.get("rows", 0), count=count))
            for done in opened.grow(growing):
                self.watch(EmbeddingProgress(done=done, count=count))
            opened.rows.before.require_rows(growing.tally.get("rows", 0), count)
            opened.rows.before.require_same(whole=True)
        return growing

    def _grow_in_tasks(self, tasks: RowTasks, opened: EmbeddedRows, source: EmbeddingSource) -> GrowingColumns:
        """Embed all texts in tasks."""

        def report(done: int, count: int) -> None:
            self.watch(EmbeddingProgress(done=done, count=count))

        parts = tasks.run(EmbeddingWork.of(source, opened.facts), opened.windows, report)
        return join_columns(parts, self.folder / "tasks-joined")

    def _finish(self, growing: GrowingColumns, embedder: Embedder, settings: Mapping[str, Any]) -> tuple[int, ...]:
        """Write the output from the columns, unless it was streamed; return the shape of all vectors."""
        if isinstance(growing, GrowingFiles):
            _write(growing, embedder, self.out, settings)
            if self.stream:
                with self.out.path.open("rb") as finished:
                    shutil.copyfileobj(finished, self.stream, 2**20)
                self.stream.flush()
        if self.work:
            self.work.end()
        tokens = embedder.settings.pooling == "tokens"
        return (growing.tally["pieces" if tokens else "rows"], *embedder.shape)

    def _say(self, *lines: str) -> None:
        for line in lines:
            self.watch(Notice(line))


def _write(growing: GrowingFiles, embedder: Embedder, out: VectorOutput, settings: Mapping[str, Any]) -> None:
    """Write the output file from the columns."""
    growing.check()
    if out.form == ".jsonl":
        replace_file(out.path, lambda aside: link_or_copy(growing.path(LINES), aside))
        return
    kinds = {"vectors": "<f4"} | {name: "|u1" for name in growing.sizes if name + ENDS in growing.sizes}
    columns = {}
    names_by_file = name_column_files(settings.get("kept", ()))
    output_names = {file_name + end: name + end for file_name, name in names_by_file.items() for end in ("", ENDS)}
    for name, size in growing.sizes.items():
        dtype, inner = kinds.get(name, "<i8"), embedder.shape if name == "vectors" else ()
        # Columns are raw bytes on disk, so their number of rows follows from their size.
        rows = size // (np.dtype(dtype).itemsize * int(np.prod(inner, dtype=np.int64)))
        columns[output_names.get(name, name)] = Column(path=growing.path(name), dtype=dtype, shape=(rows, *inner))
    write_vectors(out, columns, {**settings, "rows": growing.tally["rows"]})
