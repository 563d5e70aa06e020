"""Minimal pairs: tables with the columns sentence_good and sentence_bad, such as BLiMP's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from osbert.reading.table import Row
from osbert.terminal import format_count
from osbert_lab.analysis.forms.contract import DataForm, FileHead, Sampling
from osbert_lab.analysis.judgements import MinimalPair, work
from osbert_lab.analysis.sample import ItemSample, draw
from osbert_lab.analysis.tables import left_out, pieces_of, stem, table_rows, unusable_rows

COLUMNS = ("sentence_good", "sentence_bad")
PARADIGM, PHENOMENON = "UID", "linguistics_term"


class MinimalPairForm(DataForm):
    """Minimal pairs, a sample of each paradigm."""

    position = 2
    files = f"minimal pairs (a table with the columns {' and '.join(COLUMNS)})"

    def knows(self, file: FileHead) -> bool:
        """Return whether both columns exist."""
        return file.columns >= {*COLUMNS}

    def sample(self, files: Sequence[Path], sampling: Sampling) -> ItemSample[MinimalPair]:
        """Return a sample of each paradigm, which is the column UID, else the name of the file."""
        problems = unusable_rows("minimal pairs")
        by_paradigm: dict[str, list[tuple[Row, Path]]] = {}
        for path in files:
            for row in table_rows(path, COLUMNS, sampling, problems):
                by_paradigm.setdefault(row.values.get(PARADIGM) or stem(path), []).append((row, path))
        read = sum(map(len, by_paradigm.values())) + problems.count
        rng = np.random.default_rng([sampling.options.seed, 2])
        pairs: list[MinimalPair] = []
        for paradigm, rows in sorted(by_paradigm.items()):
            for row, path in draw(rows, sampling.options.pairs, rng)[0]:
                location = f"{path}, line {row.line}"
                good, bad = (pieces_of(row.values[name], location, sampling, problems) for name in COLUMNS)
                if good and bad:
                    phenomenon = row.values.get(PHENOMENON) or paradigm
                    pairs.append(MinimalPair(paradigm=paradigm, phenomenon=phenomenon, good=good, bad=bad))
        if sampling.reading.errors == "strict":
            problems.stop_if_any()
        notes = [
            f"{format_count(len(pairs), 'minimal pair')} of {read:,} read, of "
            f"{format_count(len(by_paradigm), 'paradigm')}"
        ]
        tokens = work((pieces for pair in pairs for pieces in (pair.good, pair.bad)), sampling.packer)
        return ItemSample(items=pairs, read=read, tokens=tokens, notes=[*notes, *left_out(problems)] if read else [])
