"""The choice that several commands give: texts on the command line, or a file of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from osbert.errors import UserError


def require_texts_or_file(
    usage: str, texts: Sequence[str], file: Path | None, out: Path | None, *, streams: bool = False
) -> None:
    """Raise UserError unless there are texts alone, none of which is the path of a file, or a file with its output.

    `usage`: a sentence with an example of each. `streams`: whether rows are printed without an output. A text is a path
    if it exists, and has a folder or a suffix.
    """
    problem = ""
    if texts and (file or out):
        given = " and ".join(name for name, path in (("--file", file), ("--out", out)) if path)
        problem = f"Texts ('{texts[0]:.40}') and {given} exclude each other. "
    elif file and not (out or streams):
        problem = f"--file {file} needs --out. "
    elif path := next((text for text in texts if os.path.isfile(text) and (os.sep in text or Path(text).suffix)), ""):
        problem = (
            f"{path} is a file, which --file {shlex.quote(path)} reads. If its name itself is the text, add a space to "
            "it, or start in another folder. "
        )
    elif texts or file:
        return
    raise UserError(problem + usage, code="missing-option")
