"""osbert corpus mix: joins corpora to one, of which an epoch reads each by its weight."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from osbert.console.arguments import InputFile
from osbert.console.output import Result, for_people
from osbert.reports.corpus_text import mixture_text
from osbert.runs.corpus import mix_corpora
from osbert.terminal import open_console


def mix(corpora: tuple[InputFile, ...], /, *, out: Path, weights: str = "") -> Result:
    """Mix corpora by weights into one that is pretrained on like any other.

    An epoch has as many tokens as all the corpora together, divided by the weights: a small corpus is read several
    times, always with other masks; a large one goes on in the next epoch where it stopped. No text is copied where the
    file system has hard links.

    Parameters
    ----------
    corpora
        Folders that `osbert corpus build` made with one tokenizer, or mixtures of such.
    out
        The folder for the mixture, also on an object store (s3://BUCKET/MIXTURE).
    weights
        A number for each corpus, such as 3,1; or tokens^0.7: the tokens of each to this power. Equal by default.
    """
    mixed = mix_corpora(corpora, weights=weights, out=out)
    if for_people():
        open_console().print(mixture_text(mixed))
    return {"folder": out, "parts": [asdict(part) for part in mixed.parts], "report": mixed.report}
