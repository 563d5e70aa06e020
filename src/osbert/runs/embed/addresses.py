"""A file of texts and the output for it as local paths, where the user gave addresses of an object store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from osbert.remote.addresses import local_copy, local_output
from osbert.remote.cache import reading_copies
from osbert.runs.embed.settings import TextFile

Out = TypeVar("Out")


@contextmanager
def local_texts(texts: TextFile, out: Out, *, inputs: Sequence[Path] = ()) -> Iterator[tuple[TextFile, Out | Path]]:
    """Yield the texts and the output with local paths; the output is uploaded when the block ends.

    `out`: a path, or an open stream, which stays as it is. `inputs`: other files that the output must not replace.
    Copies are held until the end of the block, and its errors name their addresses. Raises UserError as `local_copy`
    and `local_output`.
    """
    with ExitStack() as held:
        held.enter_context(reading_copies())
        local_out: Out | Path = out
        if isinstance(out, Path):
            local_out = held.enter_context(local_output(out, inputs=[texts.path, *inputs]))
        yield replace(texts, path=local_copy(texts.path)), local_out
