"""Which files of a folder are for training, development and test; without development rows, a share is held out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from osbert.data.table_format import SUFFIXES, plain_suffix
from osbert.errors import UserError

USUAL: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "validation", "val", "devel", "development"),
    "test": ("test",),
}
"""What the files of each split are called, apart from their suffixes."""


def find_splits(
    path: Path, names: Mapping[str, tuple[str, ...]] = USUAL, *, instead: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Path]:
    """Return the file of each split: of a folder those named train.*, dev.* (valid.*, validation.*), test.*.

    `names`: what the files of a split are called, in small letters. "train-00000-of-00001.parquet" is called train.
    `instead`: what the file of a split may be called where there is none of these.
    One file alone is {"all": file}. Raises UserError when there is nothing, or two files for one split.
    """
    if path.is_file():
        return {"all": path}
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder.")
    files = sorted(file for file in path.iterdir() if file.is_file() and plain_suffix(file) in SUFFIXES)
    found: dict[str, Path] = {}
    for split, called in names.items():
        matches = [file for file in files if plain_name(file) in called]
        matches = matches or [file for file in files if plain_name(file) == instead.get(split)]
        if len(matches) > 1:
            raise UserError(f"{path} has several files for {split}: {', '.join(file.name for file in matches)}.")
        if matches:
            found[split] = matches[0]
    if not found:
        listed = ", ".join(file.name for file in files) or "no tables at all"
        wanted = [f"{called[0]}.*" for called in names.values()]
        raise UserError(
            f"{path} has no file called {', '.join(wanted[:-1])} or {wanted[-1]} ({', '.join(SUFFIXES)}); it has "
            f"{listed}."
        )
    return found


def plain_name(file: Path) -> str:
    """Return "train" for Train.tsv.gz and for train-00000-of-00001.parquet, the only part of its split."""
    return file.name.split(".")[0].lower().removesuffix("-00000-of-00001")


def hold_out(labels: Sequence[Hashable], share: float, *, stratified: bool = True) -> NDArray[np.bool_]:
    """Return which of n rows (n,) are held out for development: the same ones every time, for the same rows.

    `stratified`: every label gives its share, and at least one row where it has two or more. Otherwise the share is
    drawn from all rows alike.
    """
    rng = np.random.default_rng(0)
    groups: dict[Hashable, list[int]] = {}
    for place, label in enumerate(labels):
        groups.setdefault(label if stratified else None, []).append(place)
    held = np.zeros(len(labels), np.bool_)
    for places in groups.values():
        size = min(max(round(share * len(places)), 1), len(places) - 1)
        held[rng.permutation(places)[:size]] = True
    return held
