"""Models of many vectors a text (ColBERT): the files of PyLate, of sentence-transformers and of Stanford's ColBERT."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from osbert.data.late_interaction import DOCUMENT, QUERY, LateInteraction
from osbert.errors import UserError
from osbert.guarded import read_if_there
from osbert.interop.files.weight_files import read_tensors
from osbert.interop.sentence_parts import TOKENS, Dense, TokenMask, VectorPart

POOLING = "colbert"
"""Our name of what such a model does in place of a pooling."""
PYLATE = "pylate.models."
TYPES = ("ColBERT", "MultiVectorEncoder")
"""Names of such models in config_sentence_transformers.json: of PyLate, and of sentence-transformers."""
FIXED, LEAST = "fixed", "min"
"""Whether a query is filled up to a length and cut to it, or filled up alone."""
STANFORD = "HF_ColBERT"
"""The architecture in the config.json of Stanford's models, whose projection lies among the weights."""
METADATA = "artifact.metadata"
"""The settings of Stanford's models."""
PROJECTION = "linear.weight"
MAXSIM, MEAN = "maxsim", "meanmaxsim"
"""How texts are compared: the sum of the largest similarities of each of the query's tokens, or their mean."""
PUNCTUATION = tuple(string.punctuation)
BASE = "sentence_transformers.base.modules"
PACKAGES = {
    "Transformer": f"{BASE}.transformer",
    "Dense": f"{BASE}.dense",
    "Normalize": f"{BASE}.normalize",
    TokenMask.kind: "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask",
}
"""Where sentence-transformers has its parts."""


def is_late(kinds: Sequence[str], settings: Mapping[str, Any]) -> bool:
    """Return whether a folder with parts of these kinds, and these settings, gives many vectors a text."""
    return TokenMask.kind in kinds or settings.get("model_type") in TYPES


def read_pylate(settings: Mapping[str, Any], path: Path) -> tuple[LateInteraction, TokenMask, int]:
    """Return the settings of PyLate in a file, their mask, and the length of documents. Raises UserError."""
    length, expands = _count(settings, "query_length", path) or 32, settings.get("do_query_expansion", True)
    # PyLate's own defaults: 32 and 180 pieces, punctuation skipped.
    words = settings.get("skiplist_words")
    late = LateInteraction(
        query_length=length,
        expansion=length if expands else 0,
        attend=bool(settings.get("attend_to_expansion_tokens")),
        prefixes={role: settings.get(f"{role}_prefix") or "" for role in ("query", "document")},
    )
    mask = TokenMask(skipped=PUNCTUATION if words is None else tuple(map(str, words)))
    return late, mask, _count(settings, "document_length", path) or 180


def read_lengths(settings: Mapping[str, Any], path: Path) -> tuple[LateInteraction, int]:
    """Return the settings of sentence-transformers' Transformer, and the length of documents, 0 for none of their own.

    Raises UserError for values that osbert lacks.
    """
    expansion, length = settings.get("query_expansion") or {}, _count(settings, "query_length", path)
    strategy = expansion.get("strategy", FIXED) if isinstance(expansion, dict) else ""
    if strategy not in (FIXED, LEAST):
        raise UserError(
            f"{path}: query_expansion {expansion!r:.80} is not supported; its strategy must be {FIXED} or {LEAST}.",
            code="unsupported-model",
        )
    filled = _count(expansion, "length", path)
    if filled:
        length = filled if strategy == FIXED else max(length, filled) if length else 0
    late = LateInteraction(
        query_length=length,
        expansion=filled,
        attend=bool(expansion.get("attend")),
        piece=str(expansion.get("token") or ""),
    )
    return late, _count(settings, "document_length", path)


def find_prefixes(prompts: Mapping[str, str], settings: Mapping[str, Any], folder: Path) -> Mapping[str, str]:
    """Return the single pieces by role with which prompts begin, "" for none, such as "[Q] ".

    The folder's settings name them, or they are among the special pieces that its tokenizer finds in texts.
    """
    added = read_if_there(folder / "tokenizer.json").get("added_tokens") or ()
    special = sorted((str(token.get("content")) for token in added if token.get("special")), key=len, reverse=True)
    named = {role: [name] if (name := settings.get(f"{role}_prefix")) else [] for role in prompts}
    return {
        role: next(piece for piece in (*named[role], *special, "") if prompt.startswith(str(piece)))
        for role, prompt in prompts.items()
    }


def lengths_config(late: LateInteraction, length: int) -> dict[str, Any]:
    """Return the settings of sentence-transformers' Transformer; `length`: most tokens of a document."""
    strategy = FIXED if late.query_length == late.expansion else LEAST
    expansion = {
        "strategy": strategy, "attend": late.attend, "token": late.piece or None, "length": late.expansion,
    }  # fmt: skip
    return {
        "transformer_task": "feature-extraction",
        "module_output_name": TOKENS,
        "document_length": length or None,
        "query_length": late.query_length or None,
        "query_expansion": expansion if late.expansion else None,
    }


def folder_config(late: LateInteraction) -> dict[str, Any]:
    """Return the settings of a folder; its prefixes tell sentence-transformers that they are single pieces."""
    prefixes = {f"{role}_prefix": prefix for role, prefix in late.prefixes.items() if prefix}
    return {"model_type": TYPES[1], **prefixes}


def pylate_config(late: LateInteraction, parts: Sequence[VectorPart], length: int) -> dict[str, Any]:
    """Return the settings of a folder in PyLate's form, which sentence-transformers opens, too; {} if it has none.

    It has a marker of queries and one of documents alone, a projection, a skip list for documents, and [MASK]s up to
    the length of queries.
    """
    markers = {role: prefix for role, prefix in late.prefixes.items() if prefix}
    fills = late.query_length and late.expansion in (0, late.query_length) and not late.piece
    kinds = [part.kind for part in parts]
    if kinds != [Dense.kind, TokenMask.kind] or markers.keys() != {QUERY, DOCUMENT} or not (fills and length):
        return {}
    mask = parts[1].config()
    if mask["skiplist_tasks"] != [DOCUMENT]:
        return {}
    return {f"{role}_prefix": prefix for role, prefix in markers.items()} | {
        "model_type": TYPES[0],
        "query_length": late.query_length,
        "document_length": length,
        "do_query_expansion": late.expansion > 0,
        "attend_to_expansion_tokens": late.attend,
        "skiplist_words": mask["skiplist_words"],
    }


def read_stanford(folder: Path) -> tuple[LateInteraction, tuple[VectorPart, ...], int]:
    """Return the settings of a folder of Stanford's ColBERT, its parts and the length of documents."""
    path = folder / METADATA
    settings = read_if_there(path)
    length = _count(settings, "query_maxlen", path) or 32
    late = LateInteraction(
        query_length=length,
        expansion=length,
        attend=bool(settings.get("attend_to_mask_tokens")),
        prefixes={
            "query": settings.get("query_token_id") or "[unused0]",
            "document": settings.get("doc_token_id") or "[unused1]",
        },
    )
    tensors = read_tensors(folder)
    if PROJECTION not in tensors:
        raise UserError(f"{folder}: a model of Stanford's ColBERT has the weight {PROJECTION}.", code="damaged-file")
    dense = Dense.linear(tensors[PROJECTION].float().numpy())
    mask = TokenMask(skipped=PUNCTUATION if settings.get("mask_punctuation", True) else ())
    return late, (dense, mask), _count(settings, "doc_maxlen", path)


def read_similarity(settings: Mapping[str, Any], path: Path) -> str:
    """Return how texts are compared: MAXSIM, which older files call cosine, or MEAN. Raises UserError for another."""
    name = str(settings.get("similarity_fn_name") or MAXSIM).lower().replace("cosine", MAXSIM)
    if name not in (MAXSIM, MEAN):
        raise UserError(
            f"{path}: the similarity_fn_name {name!r:.40} is not supported; many vectors are compared by MaxSim.",
            code="unsupported-model",
        )
    return name


def _count(settings: Mapping[str, Any], name: str, path: Path) -> int:
    """Return a number of tokens, 0 for none. Raises UserError unless it is a whole number."""
    count = settings.get(name) or 0
    if type(count) is not int or count < 0:
        raise UserError(f"{path}: {name} must be a number of tokens, not {count!r:.40}.", code="wrong-format")
    return count
