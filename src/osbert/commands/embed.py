"""osbert embed: the vectors that an encoder gives the texts of a file, as arrays, Parquet or JSON lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.commands.opening_options import OpeningOptions
from osbert.data.long_texts import Long  # noqa: F401  (cyclopts looks up inherited fields' types in this module)
from osbert.errors import UserError
from osbert.inference.vectors.settings import EmbeddingOptions, Pooling  # noqa: F401
from osbert.interop.opening import CAREFUL
from osbert.runs.file_options import TextOptions

SUFFIXES = (".npy", ".npz", ".parquet", ".jsonl")


@dataclass(frozen=True, kw_only=True)
class VectorOptions(EmbeddingOptions):
    """How vectors are made, and on what."""

    layers: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-1"
    tokens: int = 4096
    """Most tokens in one pass through the model."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto is a GPU where there is one."""


def embed(
    model: Path,
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    out: Path,
    vectors: Annotated[VectorOptions | None, Parameter(name="*")] = None,
    reading: Annotated[TextOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Write the vectors of a file's texts, in the file's order, with the texts, their lines and what made them.

    Texts are read in windows, and the longest of a window together, so a file of any size fits into memory. A run that
    was stopped, by whatever, goes on after its last window when the same command is given again. Blank lines have no
    vector; `lines` says which line each row is of.

    An .npz holds `vectors` (n, D), `lines` and `settings`, and the texts as bytes: text k of column `text` ends at
    `text_ends`[k]. An .npy holds the vectors; the rest is in the .rows.npz beside it. Parquet has a row for each text.
    With --pooling tokens an .npz has a row for each token: text k is vectors[starts[k]:starts[k + 1]], its pieces are
    `ids`. Several layers are stacked, (layers, D). A .jsonl has the layout of google-research/bert's
    extract_features.py: every token with the numbers of its layers.

    Parameters
    ----------
    model
        A run folder of osbert's, or a Hugging Face BERT folder, that of a sentence-transformers model included.
    file
        A .txt file with a text a line, a CSV, TSV, JSON-lines or Parquet file; - for lines from standard input.
    out
        The file to write: .npy, .npz, .parquet or .jsonl.
    """
    from osbert.commands.embed_run import run

    if out.suffix not in SUFFIXES:
        raise UserError(f"{out}: vectors are written as {', '.join(SUFFIXES)}.")
    run(model, file, out, vectors=vectors or VectorOptions(), reading=reading or TextOptions(), opening=opening)
