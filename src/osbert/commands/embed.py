"""osbert embed: writes an encoder's vectors for the texts of a file, as arrays, Parquet or JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions, checks_options
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result, print_notices, row_stream
from osbert.data.long_texts import Long  # noqa: F401  (cyclopts looks up inherited fields' types in this module)
from osbert.files import is_stream
from osbert.inference.vectors.quantizing import NumberType  # noqa: F401
from osbert.inference.vectors.settings import Pooling  # noqa: F401
from osbert.interop.opening import CAREFUL
from osbert.runs.contract import Notice
from osbert.runs.file_options import TextFile, TextTaskOptions
from osbert.runs.rows.standard_input import STREAM
from osbert.runs.rows.vector_output import VectorOptions, fitting, form_of


@dataclass(frozen=True, kw_only=True)
class VectorArguments(VectorOptions):
    """How vectors are made, and on what; numbers of layers begin with a hyphen."""

    layers: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-1"


def _check(arguments: Mapping[str, Any]) -> None:
    out, vectors = arguments.get("out", STREAM), arguments.get("vectors") or VectorArguments()
    if out != STREAM:
        fitting(vectors, form_of(out, vectors), out)


@checks_options(_check)
def embed(
    model: ModelFolder,
    /,
    file: Annotated[InputFile, Parameter(allow_leading_hyphen=True)],
    *,
    out: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    vectors: Annotated[VectorArguments | None, Parameter(name="*")] = None,
    reading: Annotated[TextTaskOptions | None, Parameter(name="*")] = None,
    form: str = "",
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Write the vectors of a file's texts, in the file's order, with the texts, their lines and the settings.

    Texts are read in windows and batched by length, so memory does not grow with the file. The same command resumes a
    stopped run after its last window. Blank lines have no vector; `lines` says which line each row is of.

    An .npz holds `vectors` (n, D), `lines` and `settings`, and the texts as bytes: text k of column `text` ends at
    `text_ends`[k]. An .npy holds the vectors; the rest is in the .rows.npz beside it. Parquet has a row for each text.
    With --pooling tokens an .npz has a row for each token: text k is vectors[starts[k]:starts[k + 1]], its pieces are
    `ids`. Several layers are stacked, (layers, D). A .jsonl has the layout of google-research/bert's
    extract_features.py: every token with the numbers of its layers; with --pooling, and on standard output, each line
    is {"line", "text", "vector"}.

    Parameters
    ----------
    model
        A run folder of osbert's, a Hugging Face folder, that of a sentence-transformers model included, or a name
        (docs/models-by-name.md).
    file
        A .txt file with a text a line, a CSV, TSV, JSON-lines or Parquet file; - for lines from standard input.
    out
        The file to write: .npy, .npz, .parquet or .jsonl; - for standard output.
    form
        What standard input holds, if not a text a line: csv, tsv, jsonl or parquet.
    """
    from osbert.runs.rows.embed import embed_file

    texts = TextFile(file, reading or TextTaskOptions(), form)
    streamed = out == STREAM
    to = sys.stderr if streamed or is_stream(out) else None  # standard output may be for the vectors
    with showing_progress("texts", to) as watch:
        target = row_stream().buffer if streamed else out
        written = embed_file(model, texts, out=target, vectors=vectors, opening=opening, watch=watch)
    note = print_notices(to)
    for line in written.describe():
        note(Notice(line))
    return written if written.path else None
