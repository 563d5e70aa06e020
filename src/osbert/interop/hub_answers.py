"""A hub's answers: which files of a repository are a model, and checks of their names.

A model is its config, tokenizer and weights, in one format, and nothing else. huggingface_hub joins the ETag and the
commit of an answer to its cache folder as they are (2.4.0, `file_download.py`), so "/etc/x" or "../../x" would be
written there. Every answer about a file is checked, since a hub may give two others.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from osbert.errors import UserError

CONFIG = "config.json"
_VOCABULARIES = (
    *("tokenizer.json", "vocab.txt", "vocab.json"),
    *("spiece.model", "sentencepiece.bpe.model", "spm.model", "tokenizer.model"),
)
"""A tokenizer has one of these files."""
NAMES = (
    *(CONFIG, *_VOCABULARIES, "merges.txt"),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling/config.json"),
    *("recipe.toml", "run.json"),
)
"""Config and tokenizer files, by their whole names; the last two are those of a run of osbert's."""
_OTHERS = re.compile(
    r"sentence_\w+_config\.json|\d+_[A-Za-z]+/(config\.json|(?P<weights>model\.safetensors|pytorch_model\.bin))"
)
"""Further files of sentence-transformers; a part such as Dense has weights."""
_WEIGHTS = (("model", "safetensors"), ("pytorch_model", "bin"))
"""Formats of weights, the better one first."""
_ELSEWHERE = re.compile(r"\.(onnx|h5|msgpack|gguf|ot|pt|bin|safetensors|tflite)$|\.ckpt\b")


def select_files(files: Collection[str], *, where: str) -> list[str]:
    """Return which of a repository's files to fetch, weights last. Raises UserError if they are no model.

    >>> select_files(["README.md", "config.json", "vocab.txt", "model.safetensors", "pytorch_model.bin"], where="x")
    ['config.json', 'vocab.txt', 'model.safetensors']
    >>> select_files(["config.json", "vocab.txt", "model.safetensors", "2_Dense/pytorch_model.bin"], where="x")
    ['config.json', 'vocab.txt', '2_Dense/pytorch_model.bin', 'model.safetensors']
    """
    if CONFIG not in files:
        raise UserError(f"{where} is no model that osbert reads: it has no {CONFIG}.", code="not-a-model")
    if not any(name in files for name in _VOCABULARIES):
        raise UserError(f"{where} has no tokenizer: none of {', '.join(_VOCABULARIES)}.", code="unusable-tokenizer")
    weights = next((format_files for stem, ending in _WEIGHTS if (format_files := _weights(files, stem, ending))), [])
    if not weights:
        foreign = ", ".join(sorted(name for name in files if _ELSEWHERE.search(name))[:5])
        raise UserError(
            f"{where} has no weights that osbert reads: neither model.safetensors nor pytorch_model.bin, whole or in "
            f"shards{f' (it has {foreign})' if foreign else ''}.",
            code="not-a-model",
        )
    others = sorted(
        name
        for name in files
        if name not in NAMES
        and (match := _OTHERS.fullmatch(name))
        and (match["weights"] != "pytorch_model.bin" or f"{name.partition('/')[0]}/model.safetensors" not in files)
    )
    return [*(name for name in NAMES if name in files), *others, *weights]


def lacks(folder: Path, is_absent: Callable[[str], bool]) -> str:
    """Return a file that a folder lacks to be a whole model, "" if it lacks none.

    `is_absent`: whether a file of `NAMES` is known not to exist where the folder came from.
    """
    here = {name for name in NAMES if (folder / name).is_file()}
    if CONFIG not in here:
        return CONFIG
    if not here & {*_VOCABULARIES}:
        return _VOCABULARIES[0]
    files = [entry.name for entry in folder.iterdir() if entry.is_file()]
    if not any(_weights(files, stem, ending) for stem, ending in _WEIGHTS):
        return "model.safetensors"
    return next((name for name in NAMES if name not in here and not is_absent(name)), "")


def _weights(files: Collection[str], stem: str, ending: str) -> list[str]:
    """Return the files of weights in a format, whole or with all shards; nothing if they are not there."""
    whole, index = f"{stem}.{ending}", f"{stem}.{ending}.index.json"
    if whole in files:
        return [whole]
    shards = re.compile(rf"{stem}-\d+-of-(\d+)\.{ending}")
    shard_counts = {name: int(match[1]) for name in files if (match := shards.fullmatch(name))}
    if index not in files or not shard_counts or {*shard_counts.values()} != {len(shard_counts)}:
        return []
    return [index, *sorted(shard_counts)]


NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,200}")
"""A name of a file or folder that stays where it is put, on any system."""
_ONE = threading.Lock()


def check_file_name(file: str) -> None:
    """Raise ValueError if a file of a listing may be no path below a folder.

    >>> check_file_name("1_Pooling/config.json")
    >>> check_file_name("../config.json")
    Traceback (most recent call last):
    ValueError: '../config.json' is no file name of a repository
    """
    if not all(NAME.fullmatch(part) for part in file.split("/")):
        raise ValueError(f"{file!r} is no file name of a repository")


@contextmanager
def check_metadata(commit: str) -> Iterator[None]:
    """Check each answer about a file of a commit that huggingface_hub gets inside the block, in any thread.

    The library then raises ValueError where the ETag is no plain name, or the commit is another one, before it writes.
    """
    from huggingface_hub import constants, file_download
    from huggingface_hub.errors import HfHubHTTPError

    fetch = file_download.get_hf_file_metadata

    def fetch_checked(*arguments: Any, **options: Any) -> Any:
        try:
            metadata = fetch(*arguments, **options)
        except HfHubHTTPError as error:  # of a missing file the library keeps a note in a folder of the answer's commit
            headers = {} if error.response is None else error.response.headers
            _check_commit(headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT), commit)
            raise
        _check_commit(metadata.commit_hash, commit)
        if metadata.etag is not None and not NAME.fullmatch(metadata.etag):
            raise ValueError(f"its ETag {metadata.etag[:200]!r} is no plain name")
        return metadata

    with _ONE:
        file_download.get_hf_file_metadata = fetch_checked
        try:
            yield
        finally:
            file_download.get_hf_file_metadata = fetch


def check_below(path: Path, cache: Path) -> None:
    """Raise ValueError if a fetched file, links followed, is not in the hub's cache or its repository's folder."""
    real = path.resolve()
    if not any(real.is_relative_to(folder.resolve()) for folder in (cache, cache.parent)):
        raise ValueError(f"{path} leads out of the cache, to {real}")


def _check_commit(commit: str | None, expected: str) -> None:
    if commit is not None and commit != expected:
        raise ValueError(f"its commit is {commit[:200]!r}, not {expected}")
