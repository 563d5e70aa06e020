"""Reads sparse vectors of an .npz: the arrays of scipy's CSR form, by the names that `scipy.sparse.load_npz` reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from osbert.errors import UserError
from osbert.inference.vectors.reading import ArrayReader


def read_blocks(open_array: ArrayReader, rows: int) -> Iterator[csr_array]:
    """Yield the vectors (n, V) of a file in blocks of at most `rows` rows.

    Raises ValueError if the arrays contradict each other, and UserError if a weight is NaN or infinite.
    """
    with open_array("indptr") as (file, shape, dtype):
        indptr = np.frombuffer(file.read(), dtype)
    with open_array("shape") as (file, _, dtype):
        count, width = np.frombuffer(file.read(), dtype).tolist()
    with open_array("data") as (data, total, data_type), open_array("indices") as (indices, _, index_type):
        if shape != (count + 1,) or indptr[0] != 0 or (np.diff(indptr) < 0).any() or total != (indptr[-1],):
            raise ValueError("its offsets are damaged")
        for first in range(0, count, rows):
            ends = indptr[first : first + rows + 1] - indptr[first]
            size = int(ends[-1])
            weights = np.frombuffer(data.read(size * data_type.itemsize), data_type)
            pieces = np.frombuffer(indices.read(size * index_type.itemsize), index_type)
            if not np.isfinite(weights).all():
                raise UserError("A sparse vector has infinite or undefined weights. Embed again.", code="not-finite")
            block = csr_array((weights, pieces, ends), shape=(len(ends) - 1, width))
            block.check_format(full_check=True)  # products do not check that pieces are within the vocabulary
            yield block
