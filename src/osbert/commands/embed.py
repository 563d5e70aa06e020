"""osbert embed: the vectors that an encoder gives the texts of a file, as arrays, Parquet or JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from osbert.commands.file_consoles import showing_progress
from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.commands.output import Result
from osbert.commands.printing import print_notices
from osbert.data.long_texts import Long  # noqa: F401  (cyclopts looks up inherited fields' types in this module)
from osbert.inference.vectors.settings import Pooling  # noqa: F401
from osbert.interop.opening import CAREFUL
from osbert.runs.contract import Notice
from osbert.runs.embed.settings import TextFile, VectorOptions
from osbert.runs.file_options import TextOptions
from osbert.terminal import counted

if TYPE_CHECKING:
    from osbert.runs.embed.run import FileVectors


@dataclass(frozen=True, kw_only=True)
class VectorArguments(VectorOptions):
    """How vectors are made, and on what; numbers of layers begin with a hyphen."""

    layers: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-1"


def embed(
    model: ModelFolder,
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    out: Path,
    vectors: Annotated[VectorArguments | None, Parameter(name="*")] = None,
    reading: Annotated[TextOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
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
        A run folder of osbert's, a Hugging Face folder, that of a sentence-transformers model included, or a name
        (docs/models-by-name.md).
    file
        A .txt file with a text a line, a CSV, TSV, JSON-lines or Parquet file; - for lines from standard input.
    out
        The file to write: .npy, .npz, .parquet or .jsonl.
    """
    from osbert.runs.embed.run import embed_file

    texts = TextFile(file, reading or TextOptions())
    with showing_progress("texts") as watch:
        written = embed_file(model, texts, out=out, vectors=vectors, opening=opening, watch=watch)
    note = print_notices()
    for line in described(written):
        note(Notice(line))
    return written


def described(written: FileVectors) -> Iterator[str]:
    """Yield what is in a file of vectors, and which texts were not read whole."""
    tally, settings = written.tally, written.settings
    yield f"{counted(tally['rows'], 'text')}: vectors {written.shape} -> {written.path}"
    if empty := tally["empty"]:
        vectors = "text is empty: its vector is that" if empty == 1 else "texts are empty: their vectors are those"
        yield f"{empty:,} {vectors} of [CLS] and [SEP] alone."
    longer = f"longer than {settings.length} tokens"
    if cut := tally["cut"]:
        where = "middle" if settings.long == "head+tail" else "end"
        was = f"text is {longer}; its {where} was" if cut == 1 else f"texts are {longer}; their {where}s were"
        yield f"{cut:,} {was} not read ({counted(tally['unread'], 'piece')}). --long window reads all."
    if windowed := tally["windowed"]:
        was = f"text is {longer}; it was" if windowed == 1 else f"texts are {longer}; they were"
        yield f"{windowed:,} {was} read in windows."
