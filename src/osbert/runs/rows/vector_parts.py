"""Embeds texts in windows. Windows always have the same texts, so that a stopped run can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, are_mostly_unknown
from osbert.data.multi_vectors import MultiVectors
from osbert.inference.embedder import Embedder
from osbert.inference.kinds import KINDS
from osbert.inference.vectors.files import ENDS, Column
from osbert.inference.vectors.sparse import name_piece, name_pieces
from osbert.reading.table import Row
from osbert.runs.rows.contract import Appended, RowSink
from osbert.runs.rows.vector_output import LINES
from osbert.runs.rows.vector_reuse import EarlierVectors
from osbert.text.file_tokenizer import unknown_id

TEXTS = ("text", "pair")
"""Stored names of the columns of texts, whatever their names in the input."""
DECIMALS = 6
"""Decimal places of the hidden states in JSON lines, as in extract_features.py of google-research/bert."""
ARRAYS = ("data", "indices", "indptr", "shape", "format")
"""The names of the arrays of scipy's CSR form, as `scipy.sparse.load_npz` reads them."""
COUNTS = "counts"
"""The name of the column with the number of weights of each row, of which `indptr` is made at the end: counts of a part
of the rows, unlike offsets, do not depend on the rows before it."""
NUMBER_TYPES = {"data": "<f4", "indices": "<i4"}
"""The types of the columns that are not int64."""
ROWS, CHARACTERS = 2**13, 2**19
"""Most texts in a window, and about the most characters: large enough for batches of texts of similar length."""


@dataclass(frozen=True, kw_only=True)
class RowBatches:
    """Converts rows into parts of columns: vectors, or JSON lines (`is_json`) with a vector or those of all tokens.

    `tables`: whether texts come from a table (rows are counted) or from lines of text. `other_columns`: further columns
    of the table to store, by their stored names. `earlier`: vectors that are used again.
    """

    embedder: Embedder
    is_json: bool
    tables: bool
    other_columns: Mapping[str, str] = field(default_factory=dict)
    earlier: EarlierVectors | None = None

    @property
    def window_size(self) -> tuple[int, int]:
        """Most rows, and about the most characters, of a window; fewer if each token has a vector for each layer."""
        single = self.embedder.settings.pooling != "tokens"
        return ROWS, CHARACTERS if single else CHARACTERS // len(self.embedder.layers.numbers)

    @property
    def is_sparse(self) -> bool:
        """Whether the vectors are sparse."""
        return self.embedder.settings.kind == "sparse"

    def compute(self, rows: Sequence[Row], names: Sequence[str], sink: RowSink) -> Appended:
        """Embed the rows' texts in the columns `names`; return what is appended to `sink`, and the counts."""
        texts = {key: [row.values[name] for row in rows] for key, name in zip(TEXTS, names)}
        groups = [
            self.embedder.sequences(row_texts, index)
            for index, row_texts in enumerate(zip(*texts.values(), strict=True))
        ]
        kind = self.embedder.settings.kind
        reused, values = self._embed(groups, list(zip(*texts.values(), strict=True)))
        if kind == "tokens":
            values = MultiVectors.of(values, [example.ids for (example,) in groups])
        if self.is_json:
            tokens = kind == "tokens"
            first = sink.tally.get("rows", 0)
            parts = {
                LINES: self._lines(rows, groups, values, first) if tokens else self._vector_lines(rows, texts, values)
            }
        else:
            named = zip(name_column_files(self.other_columns), self.other_columns.values())
            others = {file_name: [row.values.get(name, "") for row in rows] for file_name, name in named}
            parts = self._vectors(values, sink) | _texts(texts | others, sink)
            parts["lines"] = np.array([row.line for row in rows], np.int64).tobytes()
        more = {"weights": values.nnz} if kind == "sparse" else {"vectors": len(values.ids)} if kind == "multi" else {}
        lacking = sum(are_mostly_unknown(groups, unknown_id(self.embedder.packer.tokenizer)))
        unknown = {"unknown": lacking} if lacking else {}
        return parts, _counts(texts, groups) | unknown | reused | more

    def _embed(self, groups: Sequence[Sequence[Example]], texts: Sequence[Sequence[str]]) -> tuple[dict[str, int], Any]:
        """Return how many vectors were there already, and the vectors."""
        if self.earlier is None:
            return {}, self.embedder.vectors(groups)
        indices = self.earlier.find(texts)
        known = indices >= 0
        values = self.earlier.vectors(indices[known])
        if new := [group for group, reused in zip(groups, known) if not reused]:
            values = KINDS[self.embedder.settings.kind].stack([values, self.embedder.vectors(new)])
            values = values[np.argsort(np.argsort(~known, kind="stable"))]  # in the order of the texts again
        return {"reused": len(groups) - len(new)}, values

    def _vectors(self, values: Any, sink: RowSink) -> dict[str, bytes]:
        """Return the vectors; with many a text also the start of each text and the ids of the pieces."""
        if self.is_sparse:
            return {
                "data": values.data.astype("<f4").tobytes(),
                "indices": values.indices.astype("<i4").tobytes(),
                COUNTS: np.diff(values.indptr).astype("<i8").tobytes(),
            }
        if not isinstance(values, MultiVectors):
            return {"vectors": values.tobytes()}
        # Offsets (n + 1,) of the texts' vectors in the whole file. Later windows leave out the first one: it is the
        # last one of the window before.
        starts = values.starts + sink.tally.get("vectors", sink.tally.get("pieces", 0))
        return {
            "vectors": values.vectors.tobytes(),
            "starts": (starts[1:] if sink.sizes else starts).astype(np.int64).tobytes(),
            "ids": values.ids.astype(np.int64).tobytes(),
        }

    def _lines(self, rows: Sequence[Row], groups: Sequence[Sequence[Example]], values: Any, before: int) -> bytes:
        """Return JSON lines with each token's hidden states, as extract_features.py of google-research/bert writes.

        The index of a text, from 0, is that of its line, or for tables of its row. Layer -1 is the last one.
        """
        layers, tokenizer = self.embedder.layers.numbers, self.embedder.packer.tokenizer
        lines = []
        for offset, (row, (example,), states) in enumerate(zip(rows, groups, values, strict=True)):
            numbers = np.round(states.astype(np.float64), DECIMALS).reshape(len(example), len(layers), -1)
            features = [
                {
                    "token": tokenizer.vocabulary[piece],
                    "layers": [{"index": layer, "values": values} for layer, values in zip(layers, token, strict=True)],
                }
                for piece, token in zip(example.ids.tolist(), numbers.tolist(), strict=True)
            ]
            index = before + offset if self.tables else row.line - 1
            lines.append(json.dumps({"linex_index": index, "features": features}, allow_nan=False) + "\n")
        return "".join(lines).encode()

    def _vector_lines(self, rows: Sequence[Row], texts: Mapping[str, Sequence[str]], values: Any) -> bytes:
        """Return JSON lines: line number, text or both texts of a pair, and the vector, or one for each layer. A sparse
        vector is an object, its weights by piece, the largest first. Many vectors a text have their pieces beside them.

        Numbers have the fewest digits that identify the float32.
        """
        lines: list[str] = []
        for row, vector, *row_texts in zip(rows, values, *texts.values(), strict=True):
            others = {key: (row.source or row.values).get(name) for key, name in self.other_columns.items()}
            row_json = json.dumps(
                {"line": row.line, **dict(zip(texts, row_texts)), **others}, ensure_ascii=False, default=str
            )
            # str of a float32 gives its shortest digits; json.dumps would write those of a float64.
            if self.is_sparse:
                pieces = name_pieces(vector, self.embedder.packer.tokenizer.vocabulary)
                weights = (f"{json.dumps(piece, ensure_ascii=False)}: {weight!s}" for piece, weight in pieces)
                vector_json = "{" + ", ".join(weights) + "}"
            else:
                if isinstance(values, MultiVectors):
                    row_json = f'{row_json[:-1]}, "pieces": {self._spell(values[len(lines) : len(lines) + 1].ids)}}}'
                numbers = ["[" + ", ".join(map(str, layer)) + "]" for layer in np.atleast_2d(vector)]
                vector_json = numbers[0] if vector.ndim == 1 else f"[{', '.join(numbers)}]"
            lines.append(f'{row_json[:-1]}, "vector": {vector_json}}}\n')
        return "".join(lines).encode("utf-8", "backslashreplace")

    def _spell(self, ids: NDArray[np.integer]) -> str:
        """Return pieces by name, as JSON."""
        vocabulary = self.embedder.packer.tokenizer.vocabulary
        return json.dumps([name_piece(piece, vocabulary) for piece in ids.tolist()], ensure_ascii=False)


def finish_sparse(columns: Mapping[str, Column], width: int, folder: Path) -> dict[str, Column]:
    """Return the columns of a finished file, some of them written into `folder`; `width`: V. Raises OSError."""
    counts = columns[COUNTS]
    others = {name: column for name, column in columns.items() if name != COUNTS}
    rows, total = counts.shape[0], 0
    with (folder / "indptr.bin").open("wb") as file:
        file.write(np.zeros(1, "<i8").tobytes())
        for block in counts.blocks():
            ends = total + np.cumsum(block)
            file.write(ends.astype("<i8").tobytes())
            total = int(ends[-1])
    (folder / "shape.bin").write_bytes(np.array([rows, width], "<i8").tobytes())
    (folder / "format.bin").write_bytes(b"csr")
    return others | {
        "indptr": Column(path=folder / "indptr.bin", dtype="<i8", shape=(rows + 1,)),
        "shape": Column(path=folder / "shape.bin", dtype="<i8", shape=(2,)),
        "format": Column(path=folder / "format.bin", dtype="|S3", shape=()),
    }


def name_column_files(columns: Iterable[str]) -> dict[str, str]:
    """Return names of files for the kept columns while they grow, mapped to the columns' names.

    >>> name_column_files(["id", "a/b"])
    {'kept-0': 'id', 'kept-1': 'a/b'}
    """
    return {f"kept-{index}": name for index, name in enumerate(columns)}


def _texts(texts: Mapping[str, Sequence[str]], sink: RowSink) -> dict[str, bytes]:
    """Return each column of texts as UTF-8 bytes, and the end offsets of its texts in the whole file."""
    parts: dict[str, bytes] = {}
    for name, column in texts.items():
        spelt = [text.encode("utf-8", "replace") for text in column]
        ends = sink.sizes.get(name, 0) + np.cumsum([len(text) for text in spelt])
        parts |= {name: b"".join(spelt), name + ENDS: ends.astype(np.int64).tobytes()}
    return parts


def _counts(texts: Mapping[str, Sequence[str]], groups: Sequence[Sequence[Example]]) -> dict[str, int]:
    cut = [sum(example.truncated for example in group) for group in groups]
    return {
        "rows": len(groups),
        "pieces": sum(len(example) for group in groups for example in group),
        "empty": sum(not any(text.strip() for text in row_texts) for row_texts in zip(*texts.values(), strict=True)),
        "cut": sum(count > 0 for count in cut),
        "unread": sum(cut),
        "windowed": sum(len(group) > 1 for group in groups),
    }
