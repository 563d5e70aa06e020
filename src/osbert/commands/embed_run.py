"""One embedding of a file, from where it stands to its end: windows of texts into growing columns, then the file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from osbert import __version__, recipe
from osbert.commands.embed import VectorOptions
from osbert.commands.embed_rows import KEPT, Rows
from osbert.data.example import Example
from osbert.errors import UserError
from osbert.files import disk_full, read_sealed, refuse_foreign, replace_file, require_file, write_sealed
from osbert.inference.embedder import Embedder, remarks, weights_fingerprint
from osbert.inference.engine import Engine, load
from osbert.inference.vectors.files import ENDS, Column, VectorOutput, beside, write_vectors
from osbert.inference.vectors.growing import Growing
from osbert.inference.vectors.settings import NAMED, VectorSettings
from osbert.interop.opening import Opening
from osbert.interop.tensorflow.features import feature_line
from osbert.lock import claim
from osbert.reading.table import Row
from osbert.runs.file_options import TextOptions
from osbert.terminal import one_line, open_console

FACTS = "run.json"
UNFINISHED = ("progress.json", KEPT, "*.bin")
"""The other files of an unfinished embedding."""
TEXTS = ("text", "pair")
"""The names under which texts are kept, whatever their columns are called."""
ROWS, CHARACTERS = 2**13, 2**19
"""Most texts of a window, and about the most characters: enough to find many of nearly one length."""


def run(model: Path, file: Path, out: Path, *, vectors: VectorOptions, reading: TextOptions, opening: Opening) -> None:
    """Embed a file from where an earlier run of the same command has come, and write `out` when all is done.

    The suffix of `out` decides the form and the name of the file beside it, also if `out` is a link to another name.

    Raises UserError when the command cannot be, and when the earlier run was another one.
    """
    vectors = _fitting(vectors, out)
    written = [out, beside(out)] if out.suffix == ".npy" else [out]
    for path in written:
        require_file(path, (file,))
    _refuse_half(out)
    try:
        with ExitStack() as held:
            paths = [held.enter_context(claim(path)) for path in written]
            target = VectorOutput(form=out.suffix, path=paths[0], rows=paths[1] if len(paths) > 1 else None)
            folder = target.path.with_name(f"{target.path.name}.unfinished")
            if not (folder / FACTS).is_file():
                refuse_foreign(folder, "an embedding that was begun", UNFINISHED)
            folder.mkdir(exist_ok=True)
            try:
                _complete(model, Rows.open(file, reading, folder), target, vectors, folder, opening)
            finally:
                if not (folder / FACTS).is_file():  # nothing was begun, or all is done
                    shutil.rmtree(folder)
    except OSError as error:
        if not disk_full(error):
            raise
        again = "Make room and give the same command again; it goes on after the last window"
        raise UserError(f"{out} could not be written: {error.strerror}. {again}.") from error


def _refuse_half(out: Path) -> None:
    """Raise UserError if `out` is a link to an .npy whose own file of rows would then describe other vectors."""
    real, rows = Path(os.path.realpath(out)), beside(out)
    other = beside(real)
    if out.suffix == real.suffix == ".npy" and other.is_file() and not (rows.exists() and rows.samefile(other)):
        raise UserError(f"{out} is a link to {real}, whose rows are described in {other}. Give --out {real}.")


def _fitting(vectors: VectorOptions, out: Path) -> VectorOptions:
    """Return the options, with no pooling for JSON lines; UserError where the form cannot hold such vectors."""
    if out.suffix == ".jsonl":
        if vectors.pooling not in (None, "tokens"):
            raise UserError(
                f"{out}: JSON lines hold every token of a text, as extract_features.py writes them. Leave --pooling "
                "out, or write .npy, .npz or .parquet."
            )
        if vectors.layers in NAMED:
            raise UserError(f"{out}: JSON lines number the layers: give --layers as numbers, such as -1,-2,-3,-4.")
        return replace(vectors, pooling="tokens")
    if vectors.pooling == "tokens" and out.suffix != ".npz":
        raise UserError(f"{out}: with --pooling tokens a text has many vectors. Write .npz or .jsonl.")
    return vectors


def _complete(
    model: Path, rows: Rows, out: VectorOutput, options: VectorOptions, folder: Path, opening: Opening
) -> None:
    before = _begun(folder)
    print(one_line(rows.describe()))
    if not before:
        for line in rows.check():
            print(one_line(line))
    engine = load(model, device=options.device, opening=opening)
    rows.fit(engine)
    embedder = _embedder(engine, options)
    for line in (*(f"{model}: {one_line(remark)}" for remark in engine.remarks), *remarks(options, engine)):
        print(line, flush=True)
    facts = {**_facts(engine, rows, embedder), "output": out.form}
    if before:
        _refuse_other({"output": out.path.suffix, **before["facts"]}, facts, out.path, folder)
    else:
        if options.long == "error":
            rows.refuse_long(embedder)
        write_sealed(folder / FACTS, {"facts": facts, "count": rows.count})
    count = before.get("count", rows.count)
    growing = Growing(folder)
    if growing.tally:
        print(f"going on after {growing.tally['rows']:,} of {count:,} texts")
    tables = rows.table.format.kind != "lines"
    _follow(growing, rows, Window(embedder=embedder, features=out.form == ".jsonl", tables=tables), count)
    rows.before.require_rows(growing.tally.get("rows", 0), count)
    rows.before.require_same(whole=True)
    settings = {"osbert": __version__, "model": str(model.resolve()), "file": str(rows.file), **facts}
    shape = _finish(growing, embedder, out, settings)
    (folder / FACTS).unlink()
    for line in _told(growing.tally, embedder.settings, shape, out.path):
        print(line)


def _begun(folder: Path) -> dict[str, Any]:
    """Return the facts of the unfinished run in a folder, {} if there is none. Raises UserError if they are damaged."""
    path = folder / FACTS
    try:
        return read_sealed(path) if path.is_file() else {}
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}). Remove {folder} to begin anew.") from error


def _embedder(engine: Engine, options: VectorOptions) -> Embedder:
    if options.tokens < 1:
        raise UserError(f"--tokens must be at least 1, not {options.tokens}.")
    return engine.embedder(options, tokens=options.tokens)


def _facts(engine: Engine, rows: Rows, embedder: Embedder) -> dict[str, Any]:
    """Return what a run that goes on must have in common with the one before. Folders are left out: data may move."""
    return {
        "input": rows.before.sha256,
        "columns": list(rows.columns.texts),
        "form": rows.table.format.describe(),
        "weights": weights_fingerprint(engine),
        "tokenizer": engine.tokenizer.fingerprint,
        "vectors": asdict(embedder.settings),
        "tokens": embedder.tokens,
    }


def _refuse_other(before: Mapping[str, Any], facts: Mapping[str, Any], out: Path, folder: Path) -> None:
    if lines := recipe.difference(before, facts):
        raise UserError(
            f"{out} was begun with other settings or inputs:\n"
            + "\n".join(f"  {line}" for line in lines)
            + f"\nGive the command that it was begun with to go on, remove {folder} to begin anew, or choose another "
            "--out."
        )


@dataclass(frozen=True, kw_only=True)
class Window:
    """Turns rows into what the columns grow by: vectors, or JSON lines (`features`).

    `tables`: whether the texts come from a table, whose rows count, and not from lines.
    """

    embedder: Embedder
    features: bool
    tables: bool

    @property
    def characters(self) -> int:
        """Return about the most characters of a window, fewer where each token has a vector of each layer."""
        single = self.embedder.settings.pooling != "tokens"
        return CHARACTERS if single else CHARACTERS // len(self.embedder.layers.numbers)

    def of(self, rows: Iterator[Row], names: Sequence[str]) -> Iterator[list[Row]]:
        """Yield rows some at a time, always the same ones together: as many as fit into memory whatever they hold."""
        window: list[Row] = []
        size = 0
        for row in rows:
            window.append(row)
            size += sum(len(row.values[name]) for name in names)
            if len(window) >= ROWS or size >= self.characters:
                yield window
                window, size = [], 0
        if window:
            yield window

    def grow(self, growing: Growing, rows: Sequence[Row], names: Sequence[str]) -> None:
        """Embed the rows' texts in the columns `names`, and add what comes of them to `growing`."""
        texts = {kept: [row.values[name] for row in rows] for kept, name in zip(TEXTS, names)}
        groups = [self.embedder.sequences(own, place) for place, own in enumerate(zip(*texts.values(), strict=True))]
        values = self.embedder.vectors(groups)
        if self.features:
            parts = {"features": self._lines(rows, groups, values, growing.tally.get("rows", 0))}
        else:
            parts = self._vectors(groups, values, growing) | _texts(texts, growing)
            parts["lines"] = np.array([row.line for row in rows], np.int64).tobytes()
        growing.append(parts, _tally(growing.tally, texts, groups))

    def _vectors(self, groups: Sequence[Sequence[Example]], values: Any, growing: Growing) -> dict[str, bytes]:
        """Return the vectors, and of a vector for each token where each text starts and what its pieces are."""
        if self.embedder.settings.pooling != "tokens":
            return {"vectors": values.tobytes()}
        starts = np.cumsum([growing.tally.get("pieces", 0), *map(len, values)]).astype(np.int64)
        ids = np.concatenate([example.ids for (example,) in groups]).astype(np.int64)
        return {
            "vectors": np.concatenate(values).tobytes(),
            "starts": (starts[1:] if growing.sizes else starts).tobytes(),
            "ids": ids.tobytes(),
        }

    def _lines(self, rows: Sequence[Row], groups: Sequence[Sequence[Example]], values: Any, before: int) -> bytes:
        """Return JSON lines; the place of a text is its line's in a file of lines, else its row's, from 0."""
        layers, tokenizer = self.embedder.layers.numbers, self.embedder.engine.tokenizer
        lines = []
        for place, (row, (example,), states) in enumerate(zip(rows, groups, values, strict=True)):
            tokens = [tokenizer.vocabulary[piece] for piece in example.ids.tolist()]
            index = before + place if self.tables else row.line - 1
            lines.append(feature_line(index, tokens, states.reshape(len(tokens), len(layers), -1), layers) + "\n")
        return "".join(lines).encode()


def _texts(texts: Mapping[str, Sequence[str]], growing: Growing) -> dict[str, bytes]:
    """Return columns of texts as their bytes, and where each text ends in all of them."""
    parts: dict[str, bytes] = {}
    for name, column in texts.items():
        spelt = [text.encode("utf-8", "replace") for text in column]
        ends = growing.sizes.get(name, 0) + np.cumsum([len(text) for text in spelt])
        parts |= {name: b"".join(spelt), name + ENDS: ends.astype(np.int64).tobytes()}
    return parts


def _tally(
    before: Mapping[str, int], texts: Mapping[str, Sequence[str]], groups: Sequence[Sequence[Example]]
) -> dict[str, int]:
    cut = [sum(example.truncated for example in group) for group in groups]
    found = {
        "rows": len(groups),
        "pieces": sum(len(example) for group in groups for example in group),
        "empty": sum(not any(text.strip() for text in own) for own in zip(*texts.values(), strict=True)),
        "cut": sum(count > 0 for count in cut),
        "unread": sum(cut),
        "windowed": sum(len(group) > 1 for group in groups),
    }
    return {name: before.get(name, 0) + count for name, count in found.items()}


def _follow(growing: Growing, rows: Rows, window: Window, count: int) -> None:
    """Embed what is not embedded yet, a window at a time."""
    names = rows.columns.texts
    console = open_console(stderr=True)
    done = growing.tally.get("rows", 0)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("texts", total=count, completed=done)
        try:
            for chunk in window.of(islice(rows.rows(), done, None), names):
                rows.before.require_same()  # so that what is kept is always of one content
                window.grow(growing, chunk, names)
                shown.update(task, completed=growing.tally["rows"])
        except KeyboardInterrupt:
            done = growing.tally.get("rows", 0)
            print(f"stopped after {done:,} of {count:,} texts; the same command goes on from there", file=sys.stderr)
            raise


def _finish(growing: Growing, embedder: Embedder, out: VectorOutput, settings: Mapping[str, Any]) -> tuple[int, ...]:
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


def _told(tally: Mapping[str, int], settings: VectorSettings, shape: tuple[int, ...], out: Path) -> Iterator[str]:
    yield f"{tally['rows']:,} texts: vectors {shape} -> {out}"
    if tally["empty"]:
        yield f"{tally['empty']:,} texts are empty: their vectors are those of [CLS] and [SEP] alone."
    if tally["cut"]:
        where = "middles" if settings.long == "head+tail" else "ends"
        yield (
            f"{tally['cut']:,} texts are longer than {settings.length} tokens; their {where} were not read "
            f"({tally['unread']:,} pieces). --long window reads all."
        )
    if tally["windowed"]:
        yield f"{tally['windowed']:,} texts are longer than {settings.length} tokens; they were read in windows."
