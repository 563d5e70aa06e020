"""The settings of a file of vectors: how vectors are made, and how the file of texts is read."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.data.long_texts import Long  # noqa: F401  (the command line looks up inherited fields' types here)
from osbert.inference.vectors.quantizing import NumberType
from osbert.inference.vectors.settings import EmbeddingOptions, Pooling  # noqa: F401


@dataclass(frozen=True, kw_only=True)
class VectorOptions(EmbeddingOptions):
    """How vectors are made, and on what."""

    tokens: int = 4096
    """Most tokens in one pass through the model."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto is a GPU where there is one."""
    dtype: NumberType = "float32"
    """int8: a quarter of the bytes; a vector keeps its direction, not its length. binary: bits beside int8, 9/32 of the
    bytes; a search has the bits in memory, 1/32, and reads only the int8 vectors of candidates. How many of the 10
    nearest texts a search then still finds is measured and reported."""
    update: bool = False
    """Use the vectors that --out has already again: only texts that are new are embedded, and those that FILE does not
    have any more go."""
    out_form: str = ""
    """The form of the output: npy, npz, parquet or jsonl; by the ending of --out when left open."""
    keep_columns: bool = False
    """Keep the file's other columns beside the vectors, as text; in JSON lines as they were."""
