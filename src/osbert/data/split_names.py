"""Files of a folder whose names say more than their split: train-v1.1.json, story-cloze-dev.csv."""

from __future__ import annotations

import re
from pathlib import Path

from osbert.data.table_format import SUFFIXES, plain_suffix
from osbert.data.table_splits import find_splits
from osbert.errors import UserError

_WORDS = {"train": {"train", "training"}, "dev": {"dev", "devel", "val", "valid", "validation"}, "test": {"test"}}


def find_named(path: Path, *, release: str = "") -> dict[str, Path]:
    """Return the file of each split as `find_splits`; where none is called so, those with such a word in their names.

    `release`: of several releases side by side ("train-v1.1.json"), the one to take.

    Raises UserError when there is nothing, or two files for one split.
    """
    files = sorted(path.iterdir()) if path.is_dir() else []
    tables = [file for file in files if file.is_file() and plain_suffix(file) in SUFFIXES]
    if any(file.name.split(".")[0].lower() in words for file in tables for words in _WORDS.values()):
        return find_splits(path)
    found: dict[str, Path] = {}
    for split, words in _WORDS.items():
        matches = [file for file in tables if words & set(re.findall("[a-z]+", file.name.lower()))]
        releases = sorted({_release(file) for file in matches} - {""})
        matches = [file for file in matches if not release or _release(file) in ("", release)]
        if len(matches) > 1:
            asked = f"--release {' or '.join(releases)}, or one file" if len(releases) > 1 else "one file"
            listed = ", ".join(file.name for file in matches)
            raise UserError(f"{path} has several files for {split}: {listed}. Give {asked}.")
        if matches:
            found[split] = matches[0]
    return found or find_splits(path)


def _release(path: Path) -> str:
    """Return "1.1" for train-v1.1.json, "" where the name tells none."""
    match = re.search(r"v([1-9]\.\d)(?!\d)", path.name)
    return match[1] if match else ""
