"""osbert duplicates: finds texts of a file that nearly repeat an earlier one, by their vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import ModelFolder, OpeningOptions
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result
from osbert.interop.opening import CAREFUL
from osbert.runs.file_options import EmbeddedOptions
from osbert.terminal import one_line


def duplicates(
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    model: ModelFolder | None = None,
    above: float = 0.95,
    out: Path | None = None,
    options: Annotated[EmbeddedOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Find texts whose cosine with an earlier kept text is at least --above: the first of each group is kept.

    Every text is compared with all earlier kept texts, in blocks: the result is exact and memory is bounded, but the
    time is quadratic in the number of texts. The cosine of two kept texts is below --above.

    Parameters
    ----------
    file
        A file that `osbert embed` wrote, or a file of texts, as it reads them, with --model; - for standard input.
    model
        The model that embeds the texts: a folder, or a name (docs/models-by-name.md).
    above
        The smallest cosine of duplicates, at most 1.
    out
        The .csv, .tsv, .jsonl, .parquet, .xlsx or .md file to write: all texts of groups, with the line of
        the kept text.
    """
    from osbert_lab.duplicates.find_duplicates import find_duplicates
    from osbert_lab.vector_input import VectorInput

    given = VectorInput(data=file, model=model, options=options or EmbeddedOptions(), opening=opening)
    with showing_progress("comparisons") as watch:
        groups = find_duplicates(given, above=above, out=out, watch=watch)
    for line in groups.lines():
        print(one_line(line))
    return groups
