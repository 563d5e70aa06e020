"""Sparse vectors in files: the forms that hold them, and the columns of an .npz.

While a file grows it has the number of weights of each row, from which the offsets `indptr` are made at the end: counts
of a part of the rows, unlike offsets, do not depend on the rows before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from osbert.errors import UserError
from osbert.inference.vectors.files import Column
from osbert.models.forms import VectorKind
from osbert.runs.rows.vector_output import VectorOptions

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # which takes a tenth of a second to import, for dense vectors too

ARRAYS = ("data", "indices", "indptr", "shape", "format")
"""The names of the arrays of scipy's CSR form, as `scipy.sparse.load_npz` reads them."""
COUNTS = "counts"
"""The name of the column with the number of weights of each row."""
NUMBER_TYPES = {"data": "<f4", "indices": "<i4"}
"""The types of the columns that are not int64."""


def with_own_pooling(options: VectorOptions, form: str, model: Path) -> VectorOptions:
    """Return the options with the pooling of a sparse model, or of one of many vectors, for JSON lines.

    Their default is no pooling.
    """
    if form != ".jsonl" or options.pooling is not None:
        return options
    from osbert.interop.sentence_files import read_sentence_model  # loads torch

    try:
        sentences = read_sentence_model(model)
    except UserError:  # of a model that osbert does not support, the states of the encoder
        return options
    if sentences is None or sentences.kind == "dense":
        return options
    return replace(options, pooling=sentences.pooling)  # type: ignore[arg-type]


def require_form(form: str, options: VectorOptions, kind: VectorKind) -> None:
    """Raise UserError if such vectors, which are not dense, cannot be written in this form, or with these options."""
    if form not in (".npz", ".jsonl"):
        raise UserError(
            f"This model's vectors ({kind}) are written as .npz or .jsonl, not {form}. For dense ones, give a "
            "--pooling such as mean.",
            code="unknown-output-format",
        )
    for name, given in ((f"dtype {options.dtype}", options.dtype != "float32"), ("update", options.update)):
        if given:
            raise UserError(f"--{name} is for dense vectors.", code="options-exclude-each-other")


def split_columns(matrix: csr_array) -> dict[str, bytes]:
    """Return what sparse vectors (n, V) add to the growing columns."""
    return {
        "data": matrix.data.astype("<f4").tobytes(),
        "indices": matrix.indices.astype("<i4").tobytes(),
        COUNTS: np.diff(matrix.indptr).astype("<i8").tobytes(),
    }


def finish_columns(columns: Mapping[str, Column], width: int, folder: Path) -> dict[str, Column]:
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
