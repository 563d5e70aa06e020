"""One embedding of a file, from where it stands to its end: windows of texts into growing columns, then the file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from osbert import __version__, recipe
from osbert.errors import UserError
from osbert.files import read_own, refuse_foreign, replace_file, require_file, write_sealed
from osbert.inference.embedder import Embedder, remarks
from osbert.inference.engine import Engine, load
from osbert.inference.vectors.files import ENDS, Column, VectorOutput, beside, write_vectors
from osbert.inference.vectors.growing import GrowingFiles
from osbert.inference.vectors.settings import NAMED, VectorSettings
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.embed.rows import KEPT, TextRows
from osbert.runs.embed.settings import TextFile, VectorOptions
from osbert.runs.embed.windows import RowBatches
from osbert.terminal import counted
from osbert.training.checkpoint import disk_needed

FACTS = "run.json"
UNFINISHED = ("progress.json", KEPT, "*.bin")
"""The other files of an unfinished embedding."""
SUFFIXES = (".npy", ".npz", ".parquet", ".jsonl")
"""The forms in which vectors are written."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingProgress:
    """An event: so many of the texts have their vectors."""

    done: int
    count: int


@dataclass(frozen=True, kw_only=True)
class FileVectors:
    """A finished file of vectors: its name, the shape of all vectors, their settings, and counts of the texts.

    `tally`: rows; pieces; empty, texts without a character; cut, texts that were not read whole; unread, their pieces
    that were not; windowed, texts that were read in several windows.
    """

    path: Path
    shape: tuple[int, ...]
    settings: VectorSettings
    tally: Mapping[str, int]


def embed_file(
    model: Path,
    texts: TextFile,
    *,
    out: Path,
    vectors: VectorOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> FileVectors:
    """Embed a file from where an earlier run with the same arguments stopped, and write `out` when all is done.

    The suffix of `out` decides the form and the name of the file beside it, also if `out` is a link to another name.
    A run that is stopped keeps what it has in OUT.unfinished.

    Raises UserError when the arguments cannot be, and when the earlier run was another one.
    """
    if out.suffix not in SUFFIXES:
        raise UserError(f"{out}: vectors are written as {', '.join(SUFFIXES)}.", code="unknown-output-format")
    vectors = _fitting(vectors or VectorOptions(), out)
    written = [out, beside(out)] if out.suffix == ".npy" else [out]
    for path in written:
        require_file(path, (texts.path,))
    _refuse_half(out)
    with disk_needed(out, goes_on="after the last window"), ExitStack() as held:
        paths = [held.enter_context(claim(path)) for path in written]
        target = VectorOutput(form=out.suffix, path=paths[0], rows=paths[1] if len(paths) > 1 else None)
        folder = target.path.with_name(f"{target.path.name}.unfinished")
        if not (folder / FACTS).is_file():
            refuse_foreign(folder, "an embedding that was begun", UNFINISHED)
        folder.mkdir(exist_ok=True)
        try:
            embedding = _Embedding(
                model=model, out=target, options=vectors, folder=folder, opening=opening, watch=watch
            )
            return embedding.complete(TextRows.open(texts, folder))
        finally:
            if not (folder / FACTS).is_file():  # nothing was begun, or all is done
                shutil.rmtree(folder)


def _refuse_half(out: Path) -> None:
    """Raise UserError if `out` is a link to an .npy whose own file of rows would then describe other vectors."""
    real, rows = Path(os.path.realpath(out)), beside(out)
    other = beside(real)
    if out.suffix == real.suffix == ".npy" and other.is_file() and not (rows.exists() and rows.samefile(other)):
        raise UserError(
            f"{out} is a link to {real}, whose rows are described in {other}. Give --out {real}.",
            code="output-holds-something-else",
        )


def _fitting(vectors: VectorOptions, out: Path) -> VectorOptions:
    """Return the options, with no pooling for JSON lines; UserError where the form cannot hold such vectors."""
    if out.suffix == ".jsonl":
        if vectors.pooling not in (None, "tokens"):
            raise UserError(
                f"{out}: JSON lines hold every token of a text, as extract_features.py writes them. Leave --pooling "
                "out, or write .npy, .npz or .parquet.",
                code="unknown-output-format",
            )
        if vectors.layers in NAMED:
            raise UserError(
                f"{out}: JSON lines number the layers: give --layers as numbers, such as -1,-2,-3,-4.",
                code="unknown-output-format",
            )
        return replace(vectors, pooling="tokens")
    if vectors.pooling == "tokens" and out.suffix != ".npz":
        raise UserError(
            f"{out}: with --pooling tokens a text has many vectors. Write .npz or .jsonl.", code="unknown-output-format"
        )
    return vectors


@dataclass(frozen=True, kw_only=True)
class _Embedding:
    """One embedding of a file, from where it stands to its end, in a folder beside the file of vectors."""

    model: Path
    out: VectorOutput
    options: VectorOptions
    folder: Path
    opening: Opening
    watch: Watch

    def complete(self, rows: TextRows) -> FileVectors:
        """Embed what is not embedded yet, and write the file of vectors."""
        before = _begun(self.folder)
        self._say(rows.describe(), *(() if before else rows.check()))
        source = open_folder(self.model, self.opening)
        weights = source.fingerprint  # before `load`, which frees the memory of the weights
        engine = load(source, device=self.options.device)
        rows.fit(engine)
        embedder = _embedder(engine, self.options)
        self._say(*(f"{self.model}: {remark}" for remark in engine.remarks), *remarks(self.options, engine))
        facts = {**_facts(embedder, rows, weights), "output": self.out.form}
        if before:
            _refuse_other({"output": self.out.path.suffix, **before["facts"]}, facts, self.out.path, self.folder)
        else:
            if self.options.long == "error":
                rows.refuse_long(embedder)
            write_sealed(self.folder / FACTS, {"facts": facts, "count": rows.count})
        count = before.get("count", rows.count)
        growing = GrowingFiles(self.folder)
        if growing.tally:
            self._say(f"going on after {growing.tally['rows']:,} of {counted(count, 'text')}")
        tables = rows.table.format.kind != "lines"
        windows = RowBatches(embedder=embedder, features=self.out.form == ".jsonl", tables=tables)
        self._follow(growing, rows, windows, count)
        rows.before.require_rows(growing.tally.get("rows", 0), count)
        rows.before.require_same(whole=True)
        settings = {"osbert": __version__, "model": str(self.model.resolve()), "file": str(rows.file), **facts}
        shape = _finish(growing, embedder, self.out, settings)
        (self.folder / FACTS).unlink()
        return FileVectors(path=self.out.path, shape=shape, settings=embedder.settings, tally=growing.tally)

    def _say(self, *lines: str) -> None:
        for line in lines:
            self.watch(Notice(line))

    def _follow(self, growing: GrowingFiles, rows: TextRows, windows: RowBatches, count: int) -> None:
        """Embed what is not embedded yet, a window at a time."""
        names = rows.columns.texts
        done = growing.tally.get("rows", 0)
        self.watch(EmbeddingProgress(done=done, count=count))
        try:
            for window in windows.of(islice(rows.rows(), done, None), names):
                rows.before.require_same()  # so that what is kept is always of one content
                windows.grow(growing, window, names)
                self.watch(EmbeddingProgress(done=growing.tally["rows"], count=count))
        except KeyboardInterrupt:
            done = growing.tally.get("rows", 0)
            goes_on = f"stopped after {done:,} of {counted(count, 'text')}; the same command goes on from there"
            self.watch(Notice(goes_on, warning=True))
            raise


def _begun(folder: Path) -> dict[str, Any]:
    """Return the facts of the unfinished run in a folder, {} if there is none. Raises UserError if they are damaged."""
    path = folder / FACTS
    return read_own(path, f"Remove {folder} to begin anew.") if path.is_file() else {}


def _embedder(engine: Engine, options: VectorOptions) -> Embedder:
    if options.tokens < 1:
        raise UserError(f"--tokens must be at least 1, not {options.tokens}.", code="invalid-value")
    return engine.embedder(options, tokens=options.tokens)


def _facts(embedder: Embedder, rows: TextRows, weights: str) -> dict[str, Any]:
    """Return what a run that goes on must have in common with the one before. Folders are left out: data may move."""
    return {
        "input": rows.before.sha256,
        "columns": list(rows.columns.texts),
        "form": rows.table.format.describe(),
        "weights": weights,
        "tokenizer": embedder.packer.tokenizer.fingerprint,
        "vectors": asdict(embedder.settings),
        "tokens": embedder.tokens,
    }


def _refuse_other(before: Mapping[str, Any], facts: Mapping[str, Any], out: Path, folder: Path) -> None:
    if lines := recipe.difference(before, facts):
        raise UserError(
            f"{out} was begun with other settings or inputs:\n"
            + "\n".join(f"  {line}" for line in lines)
            + f"\nGive the command that it was begun with to go on, remove {folder} to begin anew, or choose another "
            "--out.",
            code="begun-with-other-settings",
        )


def _finish(
    growing: GrowingFiles, embedder: Embedder, out: VectorOutput, settings: Mapping[str, Any]
) -> tuple[int, ...]:
    """Write the file from the columns; return the shape of all vectors."""
    growing.check()
    if out.form == ".jsonl":
        replace_file(out.path, lambda aside: _linked(growing.path("features"), aside))
        return (growing.tally["pieces"], *embedder.shape)
    kinds = {"vectors": "<f4"} | {name: "|u1" for name in growing.sizes if name + ENDS in growing.sizes}
    columns = {}
    for name, size in growing.sizes.items():
        dtype, inner = kinds.get(name, "<i8"), embedder.shape if name == "vectors" else ()
        rows = size // (np.dtype(dtype).itemsize * int(np.prod(inner, dtype=np.int64)))
        columns[name] = Column(path=growing.path(name), dtype=dtype, shape=(rows, *inner))
    write_vectors(out, columns, {**settings, "rows": growing.tally["rows"]})
    return columns["vectors"].shape


def _linked(source: Path, path: Path) -> None:
    """Give a file a second name, without its bytes being copied where the file system can do that."""
    path.unlink(missing_ok=True)
    try:
        os.link(source, path)
    except OSError:
        shutil.copyfile(source, path)
