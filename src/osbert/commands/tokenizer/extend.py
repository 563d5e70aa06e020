"""osbert tokenizer extend: adds words to a vocabulary from texts of another domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import InputFile, OpeningOptions
from osbert.console.file_consoles import VocabularyConsole
from osbert.console.output import Result
from osbert.interop.opening import CAREFUL
from osbert.runs import tokenizer as vocabularies
from osbert.runs.tokenizer import ExtensionSettings


def extend(
    folder: InputFile,
    files: tuple[InputFile, ...],
    /,
    *,
    out: Path,
    settings: Annotated[ExtensionSettings | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Extend a vocabulary for texts of another domain.

    Words that are split into pieces, and that save the most tokens, are appended to the old pieces, which keep their
    ids. `osbert pretrain --from RUN` initialises a new piece with the mean of the old pieces that spelt it.

    Parameters
    ----------
    folder
        The vocabulary to extend: a run, a tokenizer that osbert or Hugging Face wrote, or a vocab.txt.
    files
        Text files, archives and folders of the new domain, as `osbert tokenizer train` takes.
    out
        The folder for tokenizer.json, vocab.txt and two small files beside them.
    """
    with VocabularyConsole() as watch:
        tokenizer = vocabularies.extend_tokenizer(
            folder, files, out=out, settings=settings, opening=opening, watch=watch
        )
    return {"folder": out, "pieces": len(tokenizer), "fingerprint": tokenizer.fingerprint}
