"""The number of tokens that an encoder was pretrained on, from its run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osbert.training.run_folder import RunFolder

ORIGIN_TOKENS = "origin_tokens"
"""Key in run.json: pretraining tokens of the encoder that was trained further."""


def count_pretraining_tokens(folder: Path) -> int | None:
    """Return an upper bound of the pretraining tokens of an encoder: steps x sequences x length.

    None if the folder does not say: published models, models trained further from them, and fine-tuned runs.
    """
    return tokens_of(RunFolder(folder).facts)


def origin_facts(origin: Path) -> dict[str, int]:
    """Return the entry for run.json with the tokens of the encoder in a folder that is trained further."""
    tokens = count_pretraining_tokens(origin)
    return {} if tokens is None else {ORIGIN_TOKENS: tokens}


def tokens_of(facts: Mapping[str, Any]) -> int | None:
    """Return the same from the content of run.json.

    >>> run = {"settings": {"objectives": ["mlm"], "training": {"steps": 100}, "data": {"batch": 8, "length": 64}}}
    >>> tokens_of(run)
    51200
    >>> tokens_of({**run, "origin": "a published model's hash"})
    >>> tokens_of({**run, "origin": "the hash of one of ours", "origin_tokens": 1_000_000})
    1051200
    >>> vectors = {"tokens": 1000, "settings": {"vectors": "glove", "epochs": 5}}
    >>> tokens_of(vectors), tokens_of({**vectors, "finished": {"tokens": 1700}})
    (5000, 1700)
    """
    before = facts.get(ORIGIN_TOKENS) if facts.get("origin") else 0
    settings = facts.get("settings", {})
    if "vectors" in settings:  # word2vec or GloVe, whose epochs read the whole corpus, unless a time budget ends them
        return int(facts.get("finished", {}).get("tokens", facts.get("tokens", 0) * settings.get("epochs", 1)))
    if before is None or "objectives" not in settings:  # an origin of which nothing is known, or no pretraining
        return None
    try:
        return int(before + settings["training"]["steps"] * settings["data"]["batch"] * settings["data"]["length"])
    except (KeyError, TypeError):  # written by hand
        return None
