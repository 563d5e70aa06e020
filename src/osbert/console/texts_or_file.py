"""The choice that several commands give: texts on the command line, or a file of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from osbert.errors import UserError


def require_texts_or_file(
    usage: str, texts: Sequence[str], file: Path | None, out: Path | None, *, streams: bool = False
) -> None:
    """Raise UserError unless there are texts alone, or a file with its output.

    `usage`: a sentence with an example of each. `streams`: whether rows are printed without an output.
    """
    problem = ""
    if texts and (file or out):
        given = " and ".join(name for name, path in (("--file", file), ("--out", out)) if path)
        problem = f"Texts ('{texts[0]:.40}') and {given} exclude each other. "
    elif file and not (out or streams):
        problem = f"--file {file} needs --out. "
    elif texts or file:
        return
    raise UserError(problem + usage, code="missing-option")
