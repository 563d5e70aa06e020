"""The report of a build: counts, rates, duplicates, repairs, and warnings about their consequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from osbert.reading.inputs import Repairs

UNKNOWN_LIMIT = 0.05
"""Fraction of words with [UNK] above which the vocabulary hardly fits the text."""


def make_report(
    shards: Sequence[Mapping[str, Any]], *, unknown: int, repairs: Repairs, rest: dict[str, Any]
) -> dict[str, Any]:
    """Return the report of a corpus as in corpus.json.

    `shards`: the entries of the manifest. `unknown`: the number of unknown pieces. `rest`: facts of the build: inputs,
    text_bytes, lines, duplicate_lines, duplicate_documents, deduplicated, sentence_ends, seconds; with filters also
    left_out, the number of documents that each filter dropped.
    """
    words = sum(shard["words"] for shard in shards)  # those that the word starts tell: segmented ones are longer
    tokens = sum(shard["tokens"] for shard in shards)
    report: dict[str, Any] = {
        "documents": sum(shard["documents"] for shard in shards),
        "sentences": sum(shard["sentences"] for shard in shards),
        "tokens": tokens,
        "words": words,
        "tokens_per_word": round(tokens / words, 4) if words else 0.0,
        "unknown": unknown,
        "unknown_rate": round(unknown / words, 6) if words else 0.0,
        **rest,
        "bytes_on_disk": sum(file["bytes"] for shard in shards for file in shard["files"].values()),
        "megabytes_per_second": round(rest["text_bytes"] / 1e6 / max(rest["seconds"], 1e-9), 2),
        "repairs": asdict(repairs),
    }
    report["warnings"] = _warnings(report)
    return report


def _warnings(report: Mapping[str, Any]) -> list[str]:
    warnings = []
    if report["documents"] == 1:
        warnings.append(
            "There is one document only: next-sentence prediction takes its wrong sentences from other documents, so "
            "it is impossible. Pretrain with mlm alone, or tell documents apart (--documents blank-line or line)."
        )
    if not report["sentence_ends"]:
        warnings.append(
            "No sentence ends (. ! ? 。) were found: each line counts as one sentence, and sentence objectives then "
            "work on lines."
        )
    if report["unknown_rate"] > UNKNOWN_LIMIT:
        warnings.append(
            f"{report['unknown_rate']:.1%} of the words are unknown to the vocabulary. Train one on this text (osbert "
            "tokenizer train), and if it is of whole words (--kind words), a larger one: --vocabulary, --minimum."
        )
    return warnings + _repair_warnings(report["repairs"])


def _repair_warnings(repairs: Mapping[str, Any]) -> list[str]:
    descriptions = {
        "empty": "file(s) without any text",
        "boms": "byte-order mark(s) removed",
        "replaced": "run(s) of undecodable bytes replaced by U+FFFD",
        "records": "record(s) without a usable text left out",
        "skipped": "file(s) in archives left out, their ending is not known",
    }
    return [f"{repairs[name]:,} {what}." for name, what in descriptions.items() if repairs[name]]
