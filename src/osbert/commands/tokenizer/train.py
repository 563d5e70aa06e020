"""osbert tokenizer train: learns a WordPiece, byte-level BPE, Unigram or word vocabulary from text files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import InputFile, checks_options
from osbert.console.file_consoles import VocabularyConsole
from osbert.console.output import Result
from osbert.runs import tokenizer as vocabularies
from osbert.runs.tokenizer import VocabularySettings


@checks_options(lambda arguments: (arguments.get("settings") or VocabularySettings()).check())
def train(
    files: tuple[InputFile, ...],
    /,
    *,
    out: Path,
    settings: Annotated[VocabularySettings | None, Parameter(name="*")] = None,
) -> Result:
    """Train a vocabulary on text files: WordPiece, byte-level BPE, Unigram or whole words.

    Reads .txt, .jsonl, .json and Wikipedia dumps (.xml), all also in .gz, .xz, .zst, .bz2 and .tar, Parquet, and
    folders of these. The same text gives the same vocabulary, byte for byte, and memory does not grow with it. What is
    written loads in Hugging Face too.

    Parameters
    ----------
    files
        Text files (.txt, .jsonl, .json), Wikipedia dumps (.xml), Parquet, archives of these, and folders.
    out
        The folder for tokenizer.json and small files beside it, among them vocab.txt with WordPiece.
    """
    with VocabularyConsole() as watch:
        tokenizer = vocabularies.train_tokenizer(files, out=out, settings=settings, watch=watch)
    return {"folder": out, "pieces": len(tokenizer), "fingerprint": tokenizer.fingerprint}
