"""osbert topics: clusters a file's texts by their vectors into topics with words, as tables and a page."""

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


def topics(
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    out: Path,
    model: ModelFolder | None = None,
    topics: int = 0,
    seed: int = 0,
    options: Annotated[EmbeddedOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Cluster texts by their vectors (k-means), and rank the words that distinguish each topic.

    The folder gets rows.csv, the topic of each text; topics.csv, the size, words and typical texts of each topic; and
    report.html.

    Parameters
    ----------
    file
        A file that `osbert embed` wrote, or a file of texts, as it reads them, with --model; - for standard input.
    out
        The folder to write, which is new.
    model
        The model that embeds the texts: a folder, or a name (docs/models-by-name.md).
    topics
        Number of topics, from 2 to 30 if 0: that with the largest silhouette on a sample, if it is at least 0.25, else
        a third of the square root of the number of texts.
    seed
        Seed of the k-means initialisation and of samples.
    """
    from osbert_lab.topics.find_topics import find_topics
    from osbert_lab.vector_input import VectorInput

    given = VectorInput(data=file, model=model, options=options or EmbeddedOptions(), opening=opening)
    with showing_progress("numbers of topics") as watch:
        clustering = find_topics(given, out=out, topics=topics, seed=seed, watch=watch)
    for line in clustering.lines():
        print(one_line(line))
    return clustering
