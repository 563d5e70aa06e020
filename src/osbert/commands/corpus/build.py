"""osbert corpus build: converts text files to a corpus for pretraining."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import InputFile, OpeningOptions, checks_options
from osbert.console.file_consoles import CorpusConsole
from osbert.console.output import Result, for_people
from osbert.interop.opening import CAREFUL
from osbert.remote import display_path
from osbert.reports.corpus_text import report_text
from osbert.runs.corpus import CorpusSettings, build_corpus
from osbert.terminal import open_console


@checks_options(lambda arguments: (arguments.get("settings") or CorpusSettings()).plan())
def build(
    files: tuple[InputFile, ...],
    /,
    *,
    tokenizer: InputFile,
    out: Path,
    settings: Annotated[CorpusSettings | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Build a corpus from text files.

    Reads .txt, .jsonl, .json and Wikipedia dumps (.xml), all also in .gz, .xz, .zst, .bz2 and .tar, Parquet, and
    folders of these. Memory does not grow with the size of a file. The same command resumes a stopped build, and gives
    the same bytes with any number of workers.

    Parameters
    ----------
    files
        Text files (.txt, .jsonl, .json), Wikipedia dumps (.xml), Parquet, archives of these, and folders. Folders give
        their files with a known ending, sorted.
    tokenizer
        A folder that `osbert tokenizer train` wrote, a Hugging Face tokenizer folder, or a vocab.txt.
    out
        The folder for the corpus, also on an object store (s3://BUCKET/CORPUS).
    """
    with CorpusConsole() as watch:
        built = build_corpus(files, tokenizer=tokenizer, out=out, settings=settings, opening=opening, watch=watch)
    if built is None:
        return None
    if for_people():
        open_console().print(report_text(display_path(out), built.report))
    return {"folder": out, "report": built.report}
