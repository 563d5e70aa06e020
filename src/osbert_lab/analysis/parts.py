"""The two parts of a form's data: one to select heads or train probes on, one to score them on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from osbert.reading.splits import USUAL
from osbert_lab.analysis.sample import draw

Part = Literal["select", "score"]
PARTS: dict[Part, tuple[str, ...]] = {"select": USUAL["train"], "score": (*USUAL["dev"], *USUAL["test"])}
"""Words in file names that mark each part."""
Item = TypeVar("Item")


def split_by_name(files: Sequence[Path]) -> dict[Part, list[Path]] | None:
    """Return the files to choose on, called train, and to score on, called dev or test.

    None where the name of one says neither, or both, and where one part has none.
    """
    paths_by_part: dict[Part, list[Path]] = {
        part: [path for path in files if {*words} & {*re.findall("[a-z]+", path.name.lower())}]
        for part, words in PARTS.items()
    }
    # Each file must be in exactly one part: a name such as train-dev.txt would be in both.
    once = sorted(path for paths in paths_by_part.values() for path in paths) == sorted(files)
    return paths_by_part if all(paths_by_part.values()) and once else None


def draw_parts(
    files: Sequence[Path], read: Callable[[Sequence[Path]], Iterable[Item]], most: int, rng: np.random.Generator
) -> Iterator[tuple[Part, list[Item], int]]:
    """Yield at most `most` items of each part, and how many there were to sample from.

    Where the names of the files do not say their parts, all items together are halved.
    """
    if parts := split_by_name(files):
        for part, paths in parts.items():
            yield part, *draw(read(paths), most, rng)
        return
    drawn, count = draw(read(files), 2 * most, rng)
    # A random half, not the first half: neighbouring items may come from one document.
    chosen = {*rng.permutation(len(drawn))[: len(drawn) // 2].tolist()}
    yield "select", [item for index, item in enumerate(drawn) if index in chosen], len(chosen)
    yield "score", [item for index, item in enumerate(drawn) if index not in chosen], count - len(chosen)
