"""osbert neighbours: which texts of a file of vectors are nearest to a text, for a look."""

from __future__ import annotations

from pathlib import Path

from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.commands.output import Result
from osbert.interop.opening import CAREFUL
from osbert.terminal import counted, one_line


def neighbours(
    vectors: Path,
    /,
    *texts: str,
    count: int = 10,
    model: ModelFolder | None = None,
    device: str = "auto",
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Show the texts whose vectors are nearest to that of a text, with their cosines and the lines they stand on.

    The text is embedded as those of the file were, by the same model. Every vector is compared, in blocks, so the
    answer is exact and a file of any size fits into memory.

    Parameters
    ----------
    vectors
        A file that `osbert embed` wrote: .npy, .npz or .parquet, with one vector a text.
    texts
        The text, in quotes; two where the file is one of pairs.
    count
        How many to show.
    model
        Where the model is now, if it is not where it was; a folder, or a name (docs/models-by-name.md).
    device
        cpu, cuda or cuda:N; auto is a GPU where there is one.
    """
    from osbert.runs.neighbours import find_neighbours

    found = find_neighbours(vectors, texts, count=count, model=model, device=device, opening=opening)
    if found.unread:
        were = "was" if found.unread == 1 else "were"
        pieces = counted(found.unread, "piece")
        print(f"{pieces} of the text {were} not read: it is longer than {found.length} tokens.")
    for one in found.nearest:
        print(f"{one.cosine:7.4f}  line {one.line:,}  {one_line(' | '.join(one.texts))}")
    return found
