"""Corpora mixed by weights: a folder with the shards of all, of which an epoch reads each in proportion to its weight.

corpus.json of a mixture lists its parts, in the order of their shards, under `mixture`; the loader weighs them.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.corpus.build import make_report
from osbert.corpus.integrity import write_array
from osbert.corpus.shards import COUNTS, FORMAT, MANIFEST, Corpus, Part
from osbert.corpus.writer import shard_name
from osbert.errors import Problems
from osbert.files import sync, write_json
from osbert.reading.inputs import Repairs

SUMS = ("inputs", "text_bytes", "lines", "duplicate_lines", "duplicate_documents", "seconds")
"""Facts of reports that are added up."""
ALIKE = {"words": "--words", "capitals": "--capitals", "phrases": "--phrases"}
"""Settings of a build that change what the arrays mean, and their options: all corpora must have been built alike."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Corpora and their fractions of an epoch's tokens, which add up to 1."""

    corpora: Sequence[Corpus]
    fractions: Sequence[float]

    @property
    def parts(self) -> list[Part]:
        """The parts in the order of the shards; those of a corpus that is mixed itself divide its fraction."""
        return [
            replace(part, fraction=part.fraction * fraction)
            for corpus, fraction in zip(self.corpora, self.fractions, strict=True)
            for part in corpus.parts
        ]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often an epoch shows each piece, rounded up, (V,)."""
        tokens = sum(corpus.tokens for corpus in self.corpora)
        rates = [corpus.counts / max(1, corpus.counts.sum()) for corpus in self.corpora]
        seen: NDArray[np.float64] = np.average(rates, axis=0, weights=self.fractions) * tokens
        return np.ceil(seen).astype(np.int64)

    def check(self) -> None:
        """Raise UserError, with all that is wrong, unless the corpora have text, and the same tokenizer and marks."""
        first, *others = self.corpora
        problems = Problems(heading="These corpora cannot be mixed")
        for corpus in self.corpora:
            if not corpus.tokens:
                problems.add(
                    f"{corpus.folder}: the corpus has no text, so it cannot have a weight. Remove it from the command.",
                    code="too-little-data",
                )
        for corpus in others:
            if corpus.fingerprint != first.fingerprint:
                problems.add(
                    f"{corpus.folder}: its tokenizer differs from that of {first.folder}. Build it again with the "
                    "same tokenizer.",
                    code="mismatched-tokenizer",
                )
            known, here = (mixed_corpus.manifest["identity"]["settings"] for mixed_corpus in (first, corpus))
            for name, option in ALIKE.items():
                if known.get(name) != here.get(name):
                    problems.add(
                        f"{corpus.folder}: {option} differs from that of {first.folder}. Build one of them again.",
                        code="invalid-value",
                    )
        problems.stop_if_any()

    def write(self, folder: Path) -> None:
        """Write shards, counts and manifest into a folder. Shards are hard links where the file system has them."""
        entries: list[dict[str, Any]] = []
        for corpus in self.corpora:
            for shard in corpus.manifest["shards"]:
                name = shard_name(len(entries))
                _link(corpus.folder / shard["name"], folder / name, shard["files"])
                entries.append({**shard, "name": name})
        identities = [corpus.manifest["identity"] for corpus in self.corpora]
        settings = identities[0]["settings"] | {"deduplicate": any(corpus.deduplicated for corpus in self.corpora)}
        manifest = {
            "format": FORMAT,
            "vocabulary": self.corpora[0].vocabulary,
            "identity": {
                "inputs": [input_entry for identity in identities for input_entry in identity["inputs"]],
                "settings": settings,
                "tokenizer": self.corpora[0].fingerprint,
            },
            "mixture": [asdict(part) for part in self.parts],
            "shards": entries,
            "counts": write_array(folder / COUNTS, self.counts),
            "report": self._report(entries),
        }
        write_json(folder / MANIFEST, manifest)

    def _report(self, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the report of all text in the mixture, each corpus counted once."""
        reports = [corpus.report for corpus in self.corpora]
        rest: dict[str, Any] = {name: sum(report[name] for report in reports) for name in SUMS}
        rest["deduplicated"] = all(report["deduplicated"] for report in reports)
        rest["sentence_ends"] = any(report["sentence_ends"] for report in reports)
        if any("left_out" in report for report in reports):
            rest["left_out"] = dict(sum((Counter(report.get("left_out", {})) for report in reports), Counter()))
        repairs = Repairs()
        for report in reports:
            repairs.add(report["repairs"])
        unknown = sum(report["unknown"] for report in reports)
        return make_report(entries, unknown=unknown, repairs=repairs, rest=rest)


def _link(source: Path, target: Path, names: Sequence[str]) -> None:
    """Make the files of a shard folder appear in another one, without a copy where that is possible."""
    target.mkdir()
    for name in names:
        try:
            os.link(source / name, target / name)
        except OSError:  # another file system, or one without hard links
            shutil.copyfile(source / name, target / name)
            sync(target / name)
    sync(target)
