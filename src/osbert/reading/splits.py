"""The training, development and test rows: files of a folder by their names, or a fraction of the rows held out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.reading.data_file import in_parts
from osbert.reading.form import SUFFIXES, plain_suffix
from osbert.reading.table import is_whole

Names = Mapping[str, tuple[str, ...]]
Found = TypeVar("Found")

USUAL: Names = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "validation", "val", "devel", "development"),
    "test": ("test",),
}
"""Names of the files of each split without suffix, or words in their names."""
PART = re.compile(r"-\d{5}-of-(\d{5})$")
"""End of the name of a part of a split that is published in several parts."""
_WHOLE = re.compile(r"-(00000-of-00001|\*-of-\d{5})$")
_DESCRIPTIONS = ("dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json")
"""Names of files in which the datasets library describes a folder's data."""


def find_splits(
    path: Path, names: Names = USUAL, *, instead: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Path]:
    """Return the table of each split of a folder: train.*, dev.* (valid.*, validation.*), test.*.

    `names`: the file names of each split, in lower case; "train-00000-of-00001.parquet" counts as train. All parts of a
    Parquet file are one table, train-*-of-00002.parquet. `instead`: the file name of a split if it has none of these. A
    single file, or a folder that is read whole, is {"all": path}. Without tables of its own, those in the folder data/
    count, or in the only folder with tables. Raises UserError if there is no table, if a split has two, or some parts
    only, or if several folders have tables.
    """
    if is_single(path):
        return {"all": path}
    tables = _tables(path)
    split_files: dict[str, Path] = {}
    for split, called in names.items():
        files = [file for file in tables if plain_name(file) in called]
        parts = [file for file in tables if PART.sub("", plain_name(file)) in called and file not in files]
        if parts:
            name = PART.sub("", plain_name(parts[0]))
            raise UserError(
                f"{path} has {name} in parts: {_list_names(parts)}. Join them to one file, {name}.*, or, if they are "
                "Parquet, get the missing ones.",
                code="missing-split",
            )
        split_files |= _only(path, split, files or [file for file in tables if plain_name(file) == instead.get(split)])
    if not split_files:
        wanted = _either([f"{called[0]}.*" for called in names.values()])
        others = _list_names([file for file in _files(path) if not file.name.startswith(".")][:5])
        listed = _list_names(tables) or f"no tables {f'but {others}' if others else 'at all'}"
        raise UserError(
            f"{path} has no file called {wanted} ({', '.join(SUFFIXES)}); it has {listed}.", code="missing-split"
        )
    return split_files


def find_named(path: Path, *, release: str = "", option: str = "") -> dict[str, Path]:
    """Return the table of each split like `find_splits`; if no name matches, search for these words within names.

    Examples are train-v1.1.json and story-cloze-dev.csv. `release`: which of several releases to use, such as "1.1".
    `option`: the command-line option for it, for advice; "" if there is none. Raises UserError if there is no table, or
    if a split has two files.
    """
    if is_single(path):
        return {"all": path}
    tables = _tables(path)
    if any(_stem(file) in words for file in tables for words in USUAL.values()):
        return find_splits(path)
    split_files: dict[str, Path] = {}
    for split, words in USUAL.items():
        files = _with_word(tables, words)
        releases = sorted({_release(file) for file in files} - {""})
        # A file without a release in its name belongs to every release.
        files = [file for file in files if not release or _release(file) in ("", release)]
        option_advice = f", or {option} {' or '.join(releases)}" if option and len(releases) > 1 else ""
        split_files |= _only(path, split, files, advice=f" Give one file{option_advice}.")
    return split_files or find_splits(path)


def find_words(path: Path, names: Names, *, whole: Callable[[Path], bool] = Path.is_file) -> dict[str, Path]:
    """Return the file of each split, with any suffix, by a word in its name.

    A single file is {"all": file}. `whole`: whether a folder counts as a file. Raises UserError if there is no file, or
    if a split has two.
    """
    if path.is_file() or whole(path):
        return {"all": path}
    files = [file for file in _files(path) if not file.name.startswith(".")]
    folders = sorted(folder for folder in path.iterdir() if folder.is_dir() and whole(folder))
    split_files: dict[str, Path] = {}
    for split, words in names.items():
        split_files |= _only(path, split, _with_word([*files, *folders], words))
    others = [file for file in files if file.suffix not in ("", ".md", ".py")]  # of a data set's card and script
    inner = None if split_files or (others and not (path / "data").is_dir()) else _inner_folder(path)
    if inner:
        return find_words(inner, names, whole=whole)
    if not split_files:
        listed = _list_names(files) or "no files at all"
        raise UserError(
            f"{path} has no file with {_either([*names])} in its name; it has {listed}.", code="missing-split"
        )
    return split_files


def select_splits(given: Mapping[str, Found], names: Names = USUAL) -> dict[str, Found]:
    """Return the data of each split of a mapping by the usual names of splits; other keys are ignored.

    Raises UserError if there is no split, or if a split has two keys.

    >>> select_splits({"train": 1, "validation": 2, "unsupervised": 3})
    {'train': 1, 'dev': 2}
    """
    splits: dict[str, Found] = {}
    for split, called in names.items():
        keys = [key for key in given if key.lower() in (split, *called)]
        if len(keys) > 1:
            raise UserError(
                f"The data has several parts for {split}: {', '.join(keys)}. Give one.", code="missing-split"
            )
        if keys:
            splits[split] = given[keys[0]]
    if not splits:
        raise UserError(
            f"The data has no part called {_either([*names])}; it has {', '.join(given) or 'none at all'}.",
            code="missing-split",
        )
    return splits


def is_test(split: str) -> bool:
    """Return whether a split has test rows; some data sets have two such splits."""
    return split.startswith("test")


def plain_name(file: Path) -> str:
    """Return the lower-case name without suffixes: "train" for Train.tsv.gz and train-00000-of-00001.parquet."""
    return _WHOLE.sub("", _stem(file))


def is_single(path: Path) -> bool:
    """Return whether a path is one table: a file, a folder that is read whole, or a table in parts."""
    return path.is_file() or is_whole(path) or in_parts(path)


def _stem(file: Path) -> str:
    return file.name.split(".")[0].lower()


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such file or folder.", code="missing-file")
    return _join_parts(sorted(file for file in folder.iterdir() if file.is_file() and file.name not in _DESCRIPTIONS))


def _join_parts(files: Sequence[Path]) -> list[Path]:
    """Return files with one path, train-*-of-00002.parquet, for all parts of a Parquet file."""
    patterns = {file: file.with_stem(PART.sub(r"-*-of-\1", file.stem)) for file in files if file.suffix == ".parquet"}
    joined = {path for path in {*patterns.values()} if in_parts(path) and not path.stem.endswith("-of-00001")}
    return list(dict.fromkeys(patterns[file] if patterns.get(file) in joined else file for file in files))


def _tables(folder: Path) -> list[Path]:
    tables = [file for file in _files(folder) if plain_suffix(file) in SUFFIXES]
    tables += sorted(inner for inner in folder.iterdir() if inner.is_dir() and is_whole(inner))
    inner = None if tables else _inner_folder(folder)
    return _tables(inner) if inner else tables


def _inner_folder(folder: Path) -> Path | None:
    """Return the folder data/ in a folder, else the only one with files that are tables; None if there is none.

    Data sets of the Hub have a folder for each configuration. Raises UserError if there are several.
    """
    if (folder / "data").is_dir():
        return folder / "data"
    inner = sorted(path for path in folder.iterdir() if path.is_dir() and any(map(_is_table, path.iterdir())))
    if len(inner) > 1:
        raise UserError(
            f"{folder} has no tables of its own, but several folders with tables: {_list_names(inner)}. Give one of "
            "these.",
            code="missing-split",
        )
    return inner[0] if inner else None


def _is_table(path: Path) -> bool:
    return path.is_file() and plain_suffix(path) in SUFFIXES and not path.name.startswith(".")


def _with_word(files: Sequence[Path], words: Sequence[str]) -> list[Path]:
    return [file for file in files if {*words} & {*re.findall("[a-z]+", file.name.lower())}]


def _only(path: Path, split: str, files: Sequence[Path], *, advice: str = "") -> dict[str, Path]:
    """Return the file of a split, {} if there is none. Raises UserError with `advice` if there are several."""
    if len(files) > 1:
        raise UserError(f"{path} has several files for {split}: {_list_names(files)}.{advice}", code="missing-split")
    return {split: files[0]} if files else {}


def _release(path: Path) -> str:
    """Return "1.1" for train-v1.1.json, "" if the name has no release."""
    match = re.search(r"v([1-9]\.\d)(?!\d)", path.name)
    return match[1] if match else ""


def _list_names(files: Sequence[Path]) -> str:
    return ", ".join(file.name for file in files)


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def hold_out(labels: Sequence[Hashable], fraction: float, *, stratified: bool = True) -> NDArray[np.bool_]:
    """Return which of n rows (n,) are held out for development; the same for the same rows.

    `stratified`: the fraction is taken from each label, at least one row if it has two or more. Otherwise it is sampled
    from all rows together. No more than the fraction of all rows is held out: of labels with few rows some have none.
    """
    rng = np.random.default_rng(0)
    groups: dict[Hashable, list[int]] = {}
    for row, label in enumerate(labels):
        groups.setdefault(label if stratified else None, []).append(row)
    held = np.zeros(len(labels), np.bool_)
    counts = np.array([len(rows) for rows in groups.values()], np.int64)
    sizes = np.array([_size(count, fraction) for count in counts.tolist()], np.int64)
    for rows, size in zip(groups.values(), _limit(sizes, counts, _size(len(labels), fraction))):
        held[rng.permutation(rows)[:size]] = True
    return held


def _limit(sizes: NDArray[np.int64], counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return sizes (L,) whose sum is at most `most`: labels of most rows keep one, and the rest is shared by size.

    `counts`: the rows of each label. Labels of as many rows are drawn: a file may be sorted by label.
    """
    drawn = np.random.default_rng(0).permutation(len(sizes))
    labels = np.repeat(np.arange(len(sizes)), sizes)  # (S,): the label of each row of all sizes
    rows_before = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # (S,): those of its label
    order = np.lexsort((drawn[labels], -counts[labels], rows_before / sizes[labels]))
    return np.bincount(labels[order[:most]], minlength=len(sizes))


def hold_out_known(kinds: Sequence[Collection[Hashable]], fraction: float) -> NDArray[np.bool_]:
    """Return which of n rows (n,) are held out, so that each of their `kinds` stays in a training row.

    If rows have no kinds, they are sampled from all rows, as by `hold_out` without labels.
    """
    left = Counter(kind for row_kinds in kinds for kind in row_kinds)
    size = _size(len(kinds), fraction)
    held = np.zeros(len(kinds), np.bool_)
    for row in np.random.default_rng(0).permutation(len(kinds)).tolist():
        # A row may only go if every one of its kinds stays in some other training row.
        if size > 0 and all(left[kind] > 1 for kind in kinds[row]):
            held[row] = True
            left.subtract(kinds[row])
            size -= 1
    return held


def _size(rows: int, fraction: float) -> int:
    """Return the number of rows in a fraction: at least one and never all."""
    return min(max(round(fraction * rows), 1), rows - 1)
