"""Which files of a repository are a model: its config, tokenizer and weights, in one format, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

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
_OTHERS = re.compile(r"sentence_\w+_config\.json|\d+_Pooling/config\.json")
"""Further files of sentence-transformers."""
_WEIGHTS = (("model", "safetensors"), ("pytorch_model", "bin"))
"""Formats of weights, the better one first."""
_ELSEWHERE = re.compile(r"\.(onnx|h5|msgpack|gguf|ot|pt|bin|safetensors|tflite)$|\.ckpt\b")


def select_files(files: Collection[str], *, where: str) -> list[str]:
    """Return which of a repository's files to fetch, weights last. Raises UserError if they are no model.

    >>> select_files(["README.md", "config.json", "vocab.txt", "model.safetensors", "pytorch_model.bin"], where="x")
    ['config.json', 'vocab.txt', 'model.safetensors']
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
    others = sorted(name for name in files if name not in NAMES and _OTHERS.fullmatch(name))
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
